"""Vectors: all of them where they are few, and hard ones where they are many."""

from fractions import Fraction

import numpy as np
import pytest

from halfulp.hdl.formats import E5M2, E6M5, FP32, FP64, RN, RZ, Float, Format, parse
from halfulp.sim import vectors
from halfulp.sim.fields import Grid
from halfulp.sim.ports import Port, Ports
from halfulp.sim.space import Space

TINY = Float(2, 1)


def ports(**shapes: Format | int) -> Ports:
    rows = []
    for name, shape in shapes.items():
        width, fmt = (shape, None) if isinstance(shape, int) else (shape.width, shape)
        rows.append(Port(name, width, fmt))
    return Ports(tuple(rows))


def test_few_operands_are_all_run_with_every_random_word() -> None:
    made = vectors.make(ports(a=E5M2, b=E5M2, subtract=1, random=3), [E5M2], seed=0)
    assert made.exhaustive
    assert made.count == 1 << 20
    rows = np.stack([made.codes[name] for name in ("a", "b", "subtract", "random")])
    packed = rows[0] | rows[1] << np.uint64(8) | rows[2] << np.uint64(16) | rows[3] << np.uint64(17)
    assert np.array_equal(np.sort(packed), np.arange(1 << 20, dtype=np.uint64))


def test_few_operands_are_all_run_with_some_random_words() -> None:
    made = vectors.make(ports(a=E5M2, b=E5M2, random=10), [E5M2], seed=0)
    assert made.what == "exhaustive, with 8 random words each"
    pairs, counts = np.unique(made.codes["a"] | made.codes["b"] << np.uint64(8), return_counts=True)
    assert len(pairs) == 1 << 16
    assert set(counts.tolist()) == {8}
    assert made.codes["random"].max() == 1023


def test_a_stateful_unit_loads_with_every_vector() -> None:
    made = vectors.make(ports(a=TINY, b=TINY, c=TINY, load=1, clear=1), [TINY], seed=0)
    assert made.exhaustive
    assert made.count == 1 << 12
    assert set(made.codes["load"].tolist()) == {1}
    space = Space.of(ports(a=E5M2, b=E5M2, c=E6M5, load=1, clear=1))
    assert space.bits == 28
    assert space.fixed == {"load": 1, "clear": 0}


@pytest.mark.parametrize(
    "inputs",
    [
        ports(a=E5M2, b=E5M2, c=E6M5, load=1, clear=1),
        ports(a=FP64, b=FP64, c=FP64),
        ports(a=FP64, b=parse("e2m0"), subtract=1),
        ports(a=FP32),
        ports(a=parse("e8m0"), b=parse("e2m1fn"), c=parse("e11m52-ftz"), random=10),
    ],
    ids=str,
)
@pytest.mark.parametrize("limit", [1, 777, 5000])
def test_sampled_vectors_fit_their_ports_and_depend_on_the_seed_alone(inputs: Ports, limit: int) -> None:
    made = vectors.make(inputs, [E5M2], seed=3, limit=limit)
    again = vectors.make(inputs, [E5M2], seed=3, limit=limit)
    other = vectors.make(inputs, [E5M2], seed=4, limit=limit)
    assert made.count == limit
    for port in inputs:
        assert len(made.codes[port.name]) == limit
        assert int(made.codes[port.name].max()).bit_length() <= port.width
        assert np.array_equal(made.codes[port.name], again.codes[port.name])
    if limit > 1:
        assert any(not np.array_equal(made.codes[port.name], other.codes[port.name]) for port in inputs)


def share(values: list[bool]) -> float:
    return sum(values) / len(values)


def test_sampled_products_are_often_at_or_beside_a_tie() -> None:
    made = vectors.make(ports(a=FP32, b=FP32), [FP32], seed=0, limit=4000)
    ties, subnormal, overflow = [], [], []
    for x, y in zip(made.codes["a"].tolist(), made.codes["b"].tolist(), strict=True):
        first, second = FP32.decode(x), FP32.decode(y)
        if isinstance(first, float) or isinstance(second, float) or first * second == 0:
            continue
        value = abs(first * second)
        ties.append(is_tie(FP32, value))
        subnormal.append(value < Fraction(2) ** FP32.emin)
        overflow.append(value > FP32.largest)
    assert share(ties) > 0.03
    assert share(subnormal) > 0.1
    assert share(overflow) > 0.05


def test_sampled_sums_cancel_tie_and_leave_only_a_sticky_bit() -> None:
    made = vectors.make(ports(a=FP32, b=FP32, c=FP32), [FP32], seed=0, limit=4000)
    zero, cancelled, ties, sticky = [], [], [], []
    for x, y, z in zip(*(made.codes[name].tolist() for name in "abc"), strict=True):
        values = [FP32.decode(code) for code in (x, y, z)]
        if any(isinstance(value, float) for value in values):
            continue
        product, addend = values[0] * values[1], values[2]
        total = product + addend
        zero.append(total == 0 and addend != 0)
        cancelled.append(0 < abs(total) < abs(addend) / 1000)
        ties.append(total != 0 and is_tie(FP32, abs(total)))
        sticky.append(0 < abs(product) < abs(addend) / 2**30)
    assert share(zero) > 0.001
    assert share(cancelled) > 0.01
    assert share(ties) > 0.02
    assert share(sticky) > 0.05


def is_tie(fmt: Float, value: Fraction) -> bool:
    less, more = (fmt.encode(value * factor, RN) for factor in (1 - Fraction(1, 2**80), 1 + Fraction(1, 2**80)))
    return less != more and fmt.decode(fmt.encode(value, RZ)) != value


@pytest.mark.parametrize("text", ["e5m2", "e4m3fn", "e4m3fnuz", "e2m3fn", "e8m0", "e11m52", "e5m2-ftz"])
def test_landmarks_hold_every_special_and_boundary_in_both_signs(text: str) -> None:
    fmt = parse(text)
    assert isinstance(fmt, Float)
    codes = set(Grid.of(fmt).landmarks().tolist())
    for magnitude in (0, 1, (1 << fmt.man) - 1, 1 << fmt.man, fmt.max_code, max(fmt.max_code - 1, 0)):
        assert {magnitude, magnitude | fmt.sign_code} <= codes
    if fmt.inf_code is not None:
        assert {fmt.inf_code, fmt.inf_code | fmt.sign_code} <= codes
    if fmt.has_nan:
        assert fmt.nan_code in codes
    assert max(codes) < 1 << fmt.width


@pytest.mark.parametrize("fmt", [E5M2, FP64, parse("e2m0")], ids=str)
def test_composed_codes_are_the_numbers_that_were_meant(fmt: Float) -> None:
    rng = np.random.default_rng(0)
    n = 300
    sign, exponent = rng.integers(0, 2, n), rng.integers(fmt.emin - fmt.man - 2, fmt.emax + 1, n)
    mantissa = rng.integers(0, 1 << fmt.man, n)
    columns = [column.tolist() for column in (Grid.of(fmt).compose(sign, exponent, mantissa), sign, exponent, mantissa)]
    for code, s, e, f in zip(*columns, strict=True):
        magnitude = ((1 << fmt.man) + f) * Fraction(2) ** (e - fmt.man)
        if magnitude <= fmt.largest:
            assert code == fmt.encode_magnitude(magnitude, bool(s), RZ)


@pytest.mark.parametrize("text", ["e3m4b-9", "e3m4b99", "e2m0", "e11m52"])
def test_chains_of_formats_that_are_far_from_one(text: str) -> None:
    fmt = parse(text)
    steps = vectors.chains(ports(a=fmt, b=fmt, c=fmt, load=1, clear=1), [fmt], 500, 0)
    assert all(int(steps[name].max()) < 1 << fmt.width for name in "abc")


def test_chains_begin_at_reset_and_use_load_and_clear() -> None:
    inputs = ports(a=E5M2, b=E5M2, c=E6M5, load=1, clear=1)
    steps = vectors.chains(inputs, [E6M5], 4096, 0)
    assert not steps["load"][:16].any()
    assert not steps["clear"][:16].any()
    assert 50 < steps["load"].sum() < 400
    assert 50 < steps["clear"].sum() < 400
    # Both at once happens, because load goes first then.
    assert (steps["load"] & steps["clear"]).any()
