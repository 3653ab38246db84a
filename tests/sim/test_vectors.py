"""Vectors: exhaustive for small units, directed for large ones."""

import math
from fractions import Fraction

import numpy as np
import pytest

from halfulp.hdl.formats import E5M2, E6M5, FP32, FP64, RN, RZ, Float, Format, Posit, parse
from halfulp.hdl.specs.formula import Port, Role
from halfulp.sim import corner_operands, vectors
from halfulp.sim.directed import Directed, sums_of
from halfulp.sim.fields import Grid
from halfulp.sim.ports import Ports
from halfulp.sim.space import Space

TINY = Float(2, 1)

POSITS = ["posit8", "posit16e1", "posit64"]
FORMATS = ["takum16", *POSITS, "fxp4.4", "ufxp0.8", "int8", "fxp1.7-wrap", "int64", "e5m2", "fp32"]
EXTREMES = [
    "takum3",
    "takum64",
    "posit3",
    "posit3e0",
    "posit4",
    "posit64e0",
    "posit64e4",
    "int1",
    "uint1",
    "uint64",
    "fxp-8.70",
    "fxp30.-20",
]

DOT = {f"{letter}{i}": "" for i in range(3) for letter in "ab"}


ROLES = {"c": Role.START, "load": Role.STATE, "clear": Role.STATE, "random": Role.RANDOM, "subtract": Role.CONTROL}


def ports(**shapes: Format | int) -> Ports:
    """Return ports with the roles that their names have in units."""
    vectors = {name: name[0] if name[1:] else "" for name in shapes if name not in ROLES}
    return Ports(
        tuple(Port(name, of, ROLES.get(name, Role.OPERAND), vectors.get(name, "")) for name, of in shapes.items())
    )


def test_vectors_are_exhaustive_with_all_random_words() -> None:
    made = vectors.make(ports(a=E5M2, b=E5M2, subtract=1, random=3), [E5M2], seed=0)
    assert made.exhaustive
    assert made.count == 1 << 20
    rows = np.stack([made.codes[name] for name in ("a", "b", "subtract", "random")])
    packed = rows[0] | rows[1] << np.uint64(8) | rows[2] << np.uint64(16) | rows[3] << np.uint64(17)
    assert np.array_equal(np.sort(packed), np.arange(1 << 20, dtype=np.uint64))


def test_vectors_are_exhaustive_with_some_random_words() -> None:
    made = vectors.make(ports(a=E5M2, b=E5M2, random=10), [E5M2], seed=0)
    assert made.what == "exhaustive, with 8 random words each"
    pairs, counts = np.unique(made.codes["a"] | made.codes["b"] << np.uint64(8), return_counts=True)
    assert len(pairs) == 1 << 16
    assert set(counts.tolist()) == {8}
    assert made.codes["random"].max() == 1023


def test_vectors_of_stateful_unit_load_every_time() -> None:
    made = vectors.make(ports(a=TINY, b=TINY, c=TINY, load=1, clear=1), [TINY], seed=0)
    assert made.exhaustive
    assert made.count == 1 << 12
    assert set(made.codes["load"].tolist()) == {1}
    space = Space.of(ports(a=E5M2, b=E5M2, c=E6M5, load=1, clear=1))
    assert space.bits == 28
    assert space.fixed == {"load": 1, "clear": 0}


@pytest.mark.sampled(21, 2)
@pytest.mark.parametrize(
    "inputs",
    [
        ports(a=E5M2, b=E5M2, c=E6M5, load=1, clear=1),
        ports(a=FP64, b=FP64, c=FP64),
        ports(a=FP64, b=parse("e2m0"), subtract=1),
        ports(a=FP32),
        ports(a=parse("e8m0"), b=parse("e2m1fn"), c=parse("fp64-ftz"), random=10),
        *(ports(a=parse(text), b=parse(text), c=parse(text)) for text in (*FORMATS[:8], "uint64", "posit64e4")),
        ports(a=parse("posit64")),
        ports(a=parse("int64"), b=parse("posit8"), subtract=1),
        ports(a=parse("ufxp0.8"), b=parse("e5m2"), c=parse("posit32"), load=1, clear=1),
        ports(a=parse("posit16"), c=parse("fxp20.12"), load=1, clear=1),
        ports(a=parse("posit16"), b=parse("int8"), c=FP32, subtract=1, random=3),
        ports(**dict.fromkeys(DOT, parse("posit16e1"))),
        ports(**dict.fromkeys(DOT, parse("int8")), c=parse("int32"), random=7),
        ports(a0=E5M2, b0=parse("uint4"), a1=parse("posit12"), b1=FP64, c=parse("fxp1.7-wrap")),
    ],
    ids=str,
)
@pytest.mark.parametrize("limit", [1, 777, 5000])
def test_sampled_vectors_fit_ports_and_depend_on_seed(inputs: Ports, limit: int) -> None:
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


class CornerCases:
    """Counter of corner cases that directed vectors of a sum of terms reach, by decoded numbers."""

    def __init__(self, inputs: Ports, terms: list[tuple[str, ...]], fmt: Format, limit: int = 2000) -> None:
        operands = {port.name: port.fmt for port in inputs}
        codes = Directed(operands, inputs.pairs, [fmt], np.random.default_rng(0), 256).rows(limit)
        self.special, self.tie, self.overflow, self.zero, self.cancelled, self.sticky = [], [], [], [], [], []
        self.ends = set()
        for row in zip(*(codes[name].tolist() for name in operands), strict=True):
            numbers = {name: operands[name].decode(code) for name, code in zip(operands, row, strict=True)}
            self.special.append(any(isinstance(number, float) for number in numbers.values()))
            if self.special[-1]:
                continue
            parts = [math.prod(numbers[name] for name in term) for term in terms]
            total, largest = sum(parts), max(map(abs, parts))
            self.tie.append(fmt.lowest <= total <= fmt.largest and total != 0 and is_tie(fmt, total))
            self.overflow.append(not fmt.lowest <= total <= fmt.largest)
            self.zero.append(total == 0 and largest != 0)
            self.cancelled.append(0 < abs(total) < largest / 16)
            self.sticky.append(any(0 < abs(part) < largest / Fraction(2) ** (fmt.precision + 1) for part in parts))
            self.ends |= {fmt.decode(fmt.encode(total, RN, saturate=True))} & {fmt.lowest, fmt.largest}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("text", [*FORMATS, "fp64"])
def test_directed_products_cover_corner_cases(text: str) -> None:
    fmt = parse(text)
    counts = CornerCases(ports(a=fmt, b=fmt), [("a", "b")], fmt)
    assert share(counts.special) > 0.005 or not fmt.has_nan
    # Integer products are integers; products of fractions below one stay below one, except for -1 times -1.
    assert share(counts.tie) > 0.02 or text in ("int8", "int64")
    assert share(counts.overflow) > (0.05 if fmt.largest >= 1 else 0) or text == "ufxp0.8"
    assert counts.ends == {fmt.lowest, fmt.largest} or fmt.largest < 1


@pytest.mark.sampled(12)
@pytest.mark.parametrize("text", [*FORMATS, "fp64"])
@pytest.mark.parametrize("names", ["ab", "ac"])
def test_directed_sums_cover_corner_cases(names: str, text: str) -> None:
    fmt = parse(text)
    counts = CornerCases(ports(**dict.fromkeys(names, fmt)), [(name,) for name in names], fmt)
    assert share(counts.special) > 0.005 or not fmt.has_nan
    assert share(counts.tie) > 0.02 or "fxp" in text or "int" in text
    assert share(counts.overflow) > 0.005
    assert share(counts.zero) > 0.01 or fmt.lowest == 0
    # Numbers of few bits rarely cancel to a sixteenth.
    assert share(counts.cancelled) > 0.001 or fmt.lowest == 0 or fmt.precision <= 4
    assert share(counts.sticky) > 0.02 or "fxp" in text or "int" in text
    assert counts.ends == {fmt.lowest, fmt.largest}


FUSED = [
    *((text, text, text, text) for text in (*FORMATS, "fp64")),
    ("int8", "int8", "int32", "int32"),
    ("fxp1.7", "fxp1.7", "fxp4.8", "fxp4.8"),
    ("int8", "int8", "int32", "bf16"),
    ("posit8", "posit8", "fp32", "fp32"),
    ("ufxp0.8", "posit16e1", "fxp8.8", "posit8"),
    ("posit16", "e5m2", "posit32", "fxp8.8"),
    ("fp32", "fp32", "posit32", "posit16e1"),
]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("texts", FUSED, ids=" ".join)
def test_directed_fmas_cover_corner_cases(texts: tuple[str, str, str, str]) -> None:
    a, b, c, o = map(parse, texts)
    counts = CornerCases(ports(a=a, b=b, c=c), [("a", "b"), ("c",)], o)
    nothing_negative = a.lowest == b.lowest == c.lowest == 0
    assert share(counts.special) > 0.005 or not (a.has_nan or b.has_nan or c.has_nan)
    assert share(counts.tie) > 0.01 or "int" in texts[3]
    assert share(counts.overflow) > 0.003 or texts[3] in ("bf16", "fp32")
    assert share(counts.zero) > 0.002 or nothing_negative
    assert share(counts.cancelled) > 0.01 or nothing_negative or o.width <= 8
    assert counts.ends == {o.lowest, o.largest} or texts[3] == "bf16"


DOTS = [
    ("e5m2", "e6m5"),
    ("fp32", "fp32"),
    ("posit8", "posit16"),
    ("posit16e1", "posit16e1"),
    ("posit64", "posit64"),
    ("int8", "int32"),
    ("fxp1.7", "fxp4.8"),
    ("ufxp0.8", "posit8"),
]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("addend", [False, True])
@pytest.mark.parametrize("texts", DOTS, ids=" ".join)
def test_directed_dots_cover_corner_cases(texts: tuple[str, str], addend: bool) -> None:
    fmt, o = map(parse, texts)
    inputs = ports(**dict.fromkeys(DOT, fmt), **({"c": o} if addend else {}))
    terms = [("a0", "b0"), ("a1", "b1"), ("a2", "b2"), *([("c",)] if addend else [])]
    counts = CornerCases(inputs, terms, o)
    assert share(counts.special) > 0.001 or not fmt.has_nan
    assert share(counts.special) < 0.2
    assert share(counts.tie) > 0.01 or texts[1] == "int32"
    assert share(counts.zero) > 0.001 or texts[0] == "ufxp0.8"
    assert share(counts.cancelled) > 0.002 or texts[0] == "ufxp0.8"
    # A product of two 8-bit numbers next to the largest one is not negligible beyond 32 bits.
    assert share(counts.sticky) > 0.03 or texts[0] in ("int8", "fxp1.7")
    if addend:
        assert counts.ends == {o.lowest, o.largest}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("fp32", "bf16"),
        ("fxp16.16", "e5m2"),
        ("posit64", "posit16e1"),
        ("fp64", "posit32"),
        ("int64", "fp32"),
        ("uint64", "posit64"),
        ("fp32", "fxp8.8"),
        ("posit32", "fxp16.16"),
        ("fxp8.16", "ufxp0.8"),
    ],
)
def test_directed_conversions_cover_corner_cases(source: str, target: str) -> None:
    counts = CornerCases(ports(a=parse(source)), [("a",)], parse(target))
    assert share(counts.tie) > 0.02
    if parse(source).largest > 2 * parse(target).largest:
        assert share(counts.overflow) > 0.03
        assert counts.ends == {parse(target).lowest, parse(target).largest}


def test_sums_of_multiply_elements_of_the_first_operands() -> None:
    def sums(*names: str) -> list[list[tuple[str, ...]]]:
        return sums_of(names, ports(**dict.fromkeys(names, E5M2)).pairs)

    assert sums("a") == [[("a",)]]
    assert sums("a", "b") == [[("a", "b")], [("a",), ("b",)]]
    assert sums("a", "c") == [[("a",), ("c",)]]
    assert sums("a", "b", "c") == [[("a", "b"), ("c",)]]
    assert sums("a0", "b0", "a1", "b1", "c") == [[("a0", "b0"), ("a1", "b1"), ("c",)]]
    twelve = [f"{letter}{i}" for i in range(12) for letter in "ab"]
    assert sums(*twelve) == [[(f"a{i}", f"b{i}") for i in range(12)]]
    assert sums("a0", "a1", "b") == [[("a0",), ("a1",), ("b",)]]


def test_sampled_products_are_often_subnormal() -> None:
    made = vectors.make(ports(a=FP32, b=FP32), [FP32], seed=0, limit=4000)
    products = []
    for x, y in zip(made.codes["a"].tolist(), made.codes["b"].tolist(), strict=True):
        first, second = FP32.decode(x), FP32.decode(y)
        if isinstance(first, Fraction) and isinstance(second, Fraction):
            products.append(abs(first * second))
    assert share([0 < product < Fraction(2) ** FP32.emin for product in products]) > 0.1


def is_tie(fmt: Format, value: Fraction) -> bool:
    """Return True if a nonzero number is exactly halfway, so that any change of it decides the rounding."""
    for small in (Fraction(1, 2**100), Fraction(1, 2**5000)):
        if fmt.encode(value * (1 - small), RN) == fmt.encode(value * (1 + small), RN):
            return False
    return fmt.decode(fmt.encode(value, RZ)) != value


@pytest.mark.parametrize("text", ["e5m2", "e4m3fn", "e4m3fnuz", "e2m3fn", "e8m0", "fp64", "e5m2-ftz"])
def test_landmarks_include_specials_and_boundaries(text: str) -> None:
    fmt = parse(text)
    assert isinstance(fmt, Float)
    codes = set(Grid.of(fmt).corner_codes().tolist())
    for magnitude in (0, 1, (1 << fmt.man) - 1, 1 << fmt.man, fmt.max_code, max(fmt.max_code - 1, 0)):
        assert {magnitude, magnitude | fmt.sign_code} <= codes
    if fmt.inf_code is not None:
        assert {fmt.inf_code, fmt.inf_code | fmt.sign_code} <= codes
    if fmt.has_nan:
        assert fmt.nan_code in codes
    assert max(codes) < 1 << fmt.width


@pytest.mark.parametrize("text", [*FORMATS, *EXTREMES, "fp64", "e2m0", "posit32", "fxp40.-10"])
def test_grid_composes_codes_of_given_numbers(text: str) -> None:
    fmt = parse(text)
    grid = Grid.of(fmt)
    rng = np.random.default_rng(0)
    n = 300
    sign, exponent = rng.integers(0, 2, n), rng.integers(fmt.quantum - 2, grid.emax + 2, n)
    mantissa = rng.integers(0, 1 << grid.man, n, dtype=np.uint64)
    columns = [column.tolist() for column in (grid.compose(sign, exponent, mantissa), sign, exponent, mantissa)]
    agreed = 0
    for code, s, e, f in zip(*columns, strict=True):
        value = (-1) ** s * ((1 << grid.man) + f) * Fraction(2) ** (e - grid.man)
        if fmt.lowest <= value <= fmt.largest:
            assert code == fmt.encode_magnitude(abs(value), bool(s), RZ)
            agreed += 1
    assert agreed > n // 8


def some_codes(fmt: Format) -> np.ndarray:
    if fmt.width <= 8:
        return np.arange(1 << fmt.width, dtype=np.uint64)
    rng = np.random.default_rng(0)
    anywhere = rng.integers(0, (1 << fmt.width) - 1, 300, dtype=np.uint64, endpoint=True)
    return np.concatenate([Grid.of(fmt).corner_codes(), anywhere])


@pytest.mark.parametrize("text", [*FORMATS, *EXTREMES, "fp64", "e2m0", "e4m3fnuz"])
def test_grid_parts_round_trip(text: str) -> None:
    fmt = parse(text)
    grid, codes = Grid.of(fmt), some_codes(fmt)
    assert np.array_equal(grid.signed(*grid.unsigned(codes)), codes)
    sign, exponent, mantissa, *_ = grid.parts(codes)
    again, negated, places = grid.compose(sign, exponent, mantissa), grid.negated(codes), grid.last_place(exponent)
    for i, code in enumerate(codes.tolist()):
        value = fmt.decode(code)
        if not isinstance(value, Fraction) or value == 0:
            continue
        assert int(again[i]) == code
        assert abs(value) == ((1 << grid.man) + int(mantissa[i])) * Fraction(2) ** (int(exponent[i]) - grid.man)
        assert value % Fraction(2) ** min(int(places[i]), int(exponent[i])) == 0
        if fmt.lowest <= -value <= fmt.largest:
            assert fmt.decode(int(negated[i])) == -value


@pytest.mark.parametrize("text", [*FORMATS, *EXTREMES, "fp64", "e2m0"])
def test_grid_neighbours_stop_at_ends(text: str) -> None:
    fmt = parse(text)
    grid, codes = Grid.of(fmt), some_codes(fmt)
    for step in (-1, 1):
        moved = grid.neighbour(codes, np.full(len(codes), step))
        for old, new in zip(codes.tolist(), moved.tolist(), strict=True):
            before, after = fmt.decode(old), fmt.decode(new)
            if isinstance(before, Fraction) and isinstance(after, Fraction):
                at_end = before == 0 if step < 0 else before == fmt.largest or before == fmt.lowest < 0
                assert after == before if at_end else (abs(after) - abs(before)) * step > 0


@pytest.mark.parametrize("text", ["posit5", "posit8", "posit8e0", "posit16e1", "posit32", "posit62"])
def test_posit_midpoints_are_longer_posits(text: str) -> None:
    fmt = parse(text)
    assert isinstance(fmt, Posit)
    grid, wider = Grid.of(fmt), Posit(fmt.width + 2, fmt.es)
    _, magnitudes = grid.unsigned(some_codes(fmt))
    for code in magnitudes.tolist():
        if 0 < code < fmt.max_code:
            for quarters in range(5):
                assert grid.between(code, quarters) == wider.decode(4 * code + quarters)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("text", [*FORMATS, "e5m2-ftz", "posit64e4", "uint64"])
def test_targets_are_ties_and_exceed_both_ends(text: str) -> None:
    fmt = parse(text)
    found = corner_operands.targets(Grid.of(fmt), np.random.default_rng(0), 1000)
    assert share([value != 0 and is_tie(fmt, value) for value in found]) > 0.15
    assert max(found) > fmt.largest
    assert any(0 < abs(value) < fmt.smallest for value in found)
    assert {fmt.largest, fmt.lowest, fmt.smallest} <= set(found)
    if fmt.lowest < 0:
        assert min(found) < fmt.lowest


@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", ["e3m4b-9", "e3m4b99", "e2m0", "fp64", *FORMATS, *EXTREMES])
def test_chains_fit_every_format(text: str) -> None:
    fmt = parse(text)
    steps = vectors.chains(ports(a=fmt, b=fmt, c=fmt, load=1, clear=1), [fmt], 500, 0)
    assert all(int(steps[name].max()).bit_length() <= fmt.width for name in "abc")


@pytest.mark.parametrize("text", ["int8", "int64", "fxp4.4", "posit8", "posit64e4", "posit16e1", "e5m2"])
def test_chain_numbers_are_moderate(text: str) -> None:
    fmt = parse(text)
    steps = vectors.chains(ports(a=fmt, c=fmt, load=1, clear=1), [fmt], 2000, 0)
    numbers = [abs(fmt.decode(code)) for code in steps["a"].tolist()]
    bound = Fraction(2) ** 16 if fmt.width == 64 else Fraction(2) ** 8 if isinstance(fmt, Posit) else Fraction(2) ** 5
    assert share([1 / bound <= number < bound for number in numbers]) > 0.8


@pytest.mark.parametrize(
    ("names", "negated"),
    [(["a", "b"], ["a"]), (["a"], ["a"]), (["a0", "b0", "a1", "b1"], ["a0", "a1"])],
)
@pytest.mark.parametrize("text", ["int8", "posit16", "e5m2"])
def test_chains_cancel_terms(names: list[str], negated: list[str], text: str) -> None:
    fmt = parse(text)
    grid = Grid.of(fmt)
    shapes = dict.fromkeys(names, fmt) | {"c": fmt, "load": 1, "clear": 1}
    steps = vectors.chains(ports(**shapes), [fmt], 1000, 0)
    undone = np.ones(999, dtype=bool)
    for name in names:
        before = grid.negated(steps[name]) if name in negated else steps[name]
        undone &= before[:-1] == steps[name][1:]
    assert undone.sum() > 50
    # A unit with subtraction uses it for any numbers.
    steps = vectors.chains(ports(**shapes, subtract=1), [fmt], 1000, 0)
    undone = steps["subtract"][:-1] != steps["subtract"][1:]
    for name in names:
        undone &= steps[name][:-1] == steps[name][1:]
    assert undone.sum() > 50


def test_chains_start_at_reset_and_use_load_and_clear() -> None:
    inputs = ports(a=E5M2, b=E5M2, c=E6M5, load=1, clear=1)
    steps = vectors.chains(inputs, [E6M5], 4096, 0)
    assert not steps["load"][:16].any()
    assert not steps["clear"][:16].any()
    assert 50 < steps["load"].sum() < 400
    assert 50 < steps["clear"].sum() < 400
    # Both occur at once, because load has priority.
    assert (steps["load"] & steps["clear"]).any()
