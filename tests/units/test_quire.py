"""Long sums in the RTL's quire: each reading is the exact sum, rounded once."""

import random
from fractions import Fraction

import numpy as np
import pytest

from halfulp.hdl.formats import Fixed, Posit, parse
from halfulp.hdl.specs import QuireRegister, ValueRange
from halfulp.sim.model import CompiledModel
from halfulp.units import Accumulate, Dot, Mac, Quire
from tests.settings import EXHAUSTIVE

TERMS = 1000


def run(unit, steps):
    """Return the reading after each step from reset; unnamed ports are 0."""
    columns = {name: np.array([step.get(name, 0) for step in steps], dtype=np.uint64) for name in unit.inputs}
    with CompiledModel.of_unit(unit) as loop:
        loop.reset()
        return loop.run(columns, len(steps))["o"].tolist()


def finite(fmt, rng):
    """Return the code of a random finite number, uniformly."""
    while True:
        code = rng.getrandbits(fmt.width)
        if isinstance(fmt.decode(code), Fraction):
            return code


def sums(fmt, b, minus, steps):
    """Return the exact sums after each step."""
    total, found = Fraction(0), []
    for step in steps:
        product = fmt.decode(step["a"]) * (b.decode(step["b"]) if b is not None else 1)
        total = (Fraction(0) if step.get("clear") else total) + (-product if minus and step["subtract"] else product)
        found.append(total)
    return found


@pytest.mark.slow
@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("a", "b", "o", "rounding"),
    [
        ("posit8", "posit8", "posit8", "rn"),
        ("posit8e0", "posit8e0", "posit16e1", "rz"),
        ("e5m2", "e5m2", "e5m2", "rn"),
        ("fxp4.4", "fxp4.4", "fxp8.8", "rn"),
        ("fxp1.7-wrap", "ufxp0.8", "fxp4.4-wrap", "ro"),
        ("posit8", "e4m3fn", "fxp20.12", "ru"),
    ]
    + [
        ("posit16", "posit16", "posit16", "rn"),
        ("posit32", "posit32", "posit32", "rn"),
        ("e4m3fn", "e4m3fn", "fp32", "rd"),
        ("int8", "int8", "int32", "rn"),
    ]
    * EXHAUSTIVE,
)
def test_quire_rounds_a_thousand_products_once(a, b, o, rounding):
    a, b, o = parse(a), parse(b), parse(o)
    rng = random.Random(f"{a}{b}{o}")
    unit = Quire(a=a, b=b, o=o, rounding=rounding)
    steps = [{"a": finite(a, rng), "b": finite(b, rng), "subtract": rng.getrandbits(1)} for _ in range(TERMS)]
    found = run(unit, steps)
    # The register is zero after reset, and every intermediate reading is checked.
    assert found == [o.encode(total, rounding) for total in sums(a, b, True, steps)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fmt", ["posit8", "posit16e1", "e5m2", "fxp4.4"])
def test_quire_cancels_to_zero_or_smallest(fmt):
    fmt = parse(fmt)
    rng = random.Random(str(fmt))
    half = [{"a": finite(fmt, rng), "b": finite(fmt, rng), "subtract": 0} for _ in range(TERMS // 2)]
    back = [step | {"subtract": 1} for step in half]
    rng.shuffle(back)
    one, smallest = fmt.encode(1), fmt.encode(fmt.smallest)
    assert fmt.decode(one) == 1
    last = [{"a": one, "b": smallest, "subtract": sign} for sign in (0, 1, 1)]
    found = run(Quire(a=fmt, b=fmt, o=fmt), [*half, *back, *last])
    assert found[TERMS - 1 :] == [0, smallest, 0, fmt.encode(-fmt.smallest)]


@pytest.mark.slow
def test_quire_adds_smallest_to_largest_exactly():
    fmt = Posit(16)
    largest, smallest = fmt.max_code, 1
    steps = [
        {"a": largest, "b": largest},
        {"a": smallest, "b": smallest},
        {"a": largest, "b": largest, "subtract": 1},
        # 2^-112 alone is below minpos, and a posit never rounds to zero.
        {"a": smallest, "b": smallest, "subtract": 1},
    ]
    assert run(Quire(a=fmt, b=fmt, o=fmt), steps) == [largest, largest, smallest, 0]


@pytest.mark.slow
@pytest.mark.parametrize("carry", [1, 2, 5] if EXHAUSTIVE else [2])
@pytest.mark.parametrize(("fmt", "infinite"), [("posit8", (0x80, 0x80)), ("e5m2", (0x7C, 0xFC)), ("int8", (127, 128))])
def test_quire_carry_guard_overflows_to_infinity(fmt, infinite, carry):
    """Fewer than 2^carry largest terms fit; after an overflow of the guard the sum stays infinite until a new sum."""
    fmt = parse(fmt)
    lowest = fmt.encode(fmt.lowest)
    unit = Quire(a=fmt, b=fmt, o=fmt, carry=carry)
    quire = unit.spec.quire
    term = fmt.lowest * fmt.lowest
    for minus in (0, 1):
        steps = [{"a": lowest, "b": lowest, "subtract": minus} for _ in range(2 ** (carry + 1) + 2)]
        # Returning into the range does not clear the overflow; a new sum does.
        steps += [step | {"subtract": 1 - minus} for step in steps]
        steps.append({"a": fmt.encode(1), "b": fmt.encode(1), "clear": 1})
        total, expected, lost = Fraction(0), [], False
        for step in steps[:-1]:
            total += -term if step["subtract"] else term
            lost = lost or not quire.sums.lowest <= total <= quire.sums.largest
            expected.append(infinite[minus] if lost else fmt.encode(total))
        # A wrapped register would read as numbers again on the way back.
        assert lost
        assert total == 0
        assert expected[-1] == infinite[minus]
        assert run(unit, steps) == [*expected, fmt.encode(1)]


@pytest.mark.slow
def test_quire_infinities_and_nan_stay_until_load():
    fmt = parse("e5m2")
    inf, one, nan = fmt.inf_code, fmt.encode(1), fmt.nan_code
    steps = [
        {"a": one, "b": one},
        {"a": inf, "b": one},
        {"a": one, "b": one, "subtract": 1},
        {"a": inf, "b": one, "subtract": 1},
        {"a": one, "b": one},
        {"a": one, "b": one, "clear": 1},
        {"a": one, "b": one, "load": 1, "c": inf | fmt.sign_code},
    ]
    assert run(Quire(a=fmt, b=fmt, o=fmt), steps) == [one, inf, inf, nan, nan, one, inf | fmt.sign_code]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("a", "o"), [("posit8", "posit8"), ("e5m2", "e5m2"), ("fxp1.7-wrap", "fxp4.7"), ("posit16", "fp32")]
)
def test_exact_accumulate_matches_fractions(a, o):
    a, o = parse(a), parse(o)
    rng = random.Random(f"{a}{o}")
    steps = [{"a": finite(a, rng), "clear": rng.random() < 0.01} for _ in range(TERMS)]
    assert run(Accumulate(a=a, acc="exact", o=o), steps) == [o.encode(total) for total in sums(a, None, False, steps)]


@pytest.mark.slow
def test_exact_mac_with_rounded_product_matches_fractions():
    """The sum is exact, but each product is rounded first."""
    fmt, product = parse("e4m3fn"), parse("e3m2")
    rng = random.Random(1)
    steps = [{"a": finite(fmt, rng) & 0x9F, "b": finite(fmt, rng) & 0x9F} for _ in range(TERMS)]
    unit = Mac(a=fmt, b=fmt, acc="exact", o="fp32", product=product, product_rounding="rz")
    total, expected = Fraction(0), []
    for step in steps:
        total += product.decode(product.encode(fmt.decode(step["a"]) * fmt.decode(step["b"]), "rz"))
        expected.append(parse("fp32").encode(total))
    assert run(unit, steps) == expected


@pytest.mark.slow
def test_dot_rounds_once_and_sequential_dot_at_every_step():
    fmt = Posit(8)
    rng = random.Random(2)
    rows = [[(finite(fmt, rng), finite(fmt, rng)) for _ in range(5)] for _ in range(TERMS)]
    steps = [{f"{name}{i}": pair[name == "b"] for i, pair in enumerate(row) for name in "ab"} for row in rows]
    once = [fmt.encode(sum(fmt.decode(a) * fmt.decode(b) for a, b in row)) for row in rows]
    each = []
    for row in rows:
        code = 0
        for a, b in row:
            code = fmt.encode(fmt.decode(code) + fmt.decode(a) * fmt.decode(b))
        each.append(code)
    assert run(Dot(k=5, a=fmt, b=fmt, o=fmt), steps) == once
    assert run(Dot(k=5, a=fmt, b=fmt, o=fmt, order="sequential"), steps) == each
    assert once != each


@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_quire_of_standard_posits_has_16_n_bits(width):
    quire = QuireRegister.of(ValueRange.of(Posit(width)) * ValueRange.of(Posit(width)))
    assert quire.width == 16 * width
    assert quire.quantum == -(8 * width - 16)
    assert quire.carry == 31


def test_quire_width_of_other_formats():
    assert QuireRegister.of(ValueRange.of(Posit(16, 1)) * ValueRange.of(Posit(16, 1))).width == 1 + 31 + 2 * 56
    products = ValueRange.of(parse("e5m2")) * ValueRange.of(parse("e5m2"))
    assert QuireRegister.of(products, carry=4) == QuireRegister(-32, 32, 4)
    assert QuireRegister.of(ValueRange.of(Fixed(8, 0)) * ValueRange.of(Fixed(8, 0)), carry=8).width == 1 + 8 + 14
    # Start values of a wider format widen the register.
    assert QuireRegister.of(ValueRange.of(parse("e5m2")), parse("fp32")) == QuireRegister(-149, 128)


class Forgetful(Quire):
    """User-defined unit whose register loses its guard; designs of library classes would be cached by name."""


@pytest.mark.slow
def test_quire_comparison_detects_lost_carry(monkeypatch):
    """The comparison fails if the register loses its guard."""
    fmt = Posit(8)
    right = QuireRegister.width.fget
    rng = random.Random(3)
    steps = [{"a": finite(fmt, rng), "b": finite(fmt, rng)} for _ in range(64)]
    expected = [fmt.encode(total) for total in sums(fmt, fmt, False, steps)]
    monkeypatch.setattr(QuireRegister, "width", property(lambda quire: right(quire) - 70))
    assert run(Forgetful(a=fmt, b=fmt, o=fmt), steps) != expected
