"""Ranges of values: an exact result is accepted only if its format holds every number of the range."""

import itertools
from fractions import Fraction

import pytest

from halfulp.hdl.formats import (
    E4M3FN,
    E5M2,
    E6M5,
    EXACT,
    INT8,
    INT32,
    POSIT32,
    POSIT64,
    Fixed,
    Float,
    Posit,
    parse,
)
from halfulp.hdl.specs import DotSpec, ValueRange
from tests.toy_formats import POSITS, TOYS, holds_all, numbers_of

FINITE_TOYS = [fmt for fmt in TOYS if fmt.specials == "finite" and fmt.bias != 3]


def holds(fmt, numbers):
    """Return True if a format has every number, by trial."""
    return numbers <= numbers_of(fmt)


def accepted(span, fmt):
    """Return True if `ValueRange.check_fits` accepts the format."""
    try:
        span.check_fits(fmt, "result")
    except ValueError:
        return False
    return True


RESULTS = [
    Float(exp, man, bias, "finite", subnormals)
    for exp, man, bias, subnormals in itertools.product((2, 3, 4), range(6), (None, 3, 6), (True, False))
]


@pytest.mark.parametrize("a", FINITE_TOYS, ids=str)
def test_exact_is_accepted_only_if_result_holds(a):
    for b in FINITE_TOYS:
        xs, ys = numbers_of(a), numbers_of(b)
        for name, span, numbers in (
            ("product", ValueRange.of(a) * ValueRange.of(b), {x * y for x in xs for y in ys}),
            ("sum", ValueRange.of(a) + ValueRange.of(b), {x + y for x in xs for y in ys}),
            ("either", ValueRange.of(a) | ValueRange.of(b), xs | ys),
        ):
            for fmt in RESULTS:
                assert accepted(span, fmt) == holds(fmt, numbers), f"{name} of {a} and {b} in {fmt}"


def test_exact_rejects_sums_that_do_not_fit():
    small = [Float(2, man, None, "finite", subnormals) for man in (0, 1) for subnormals in (True, False)]
    grants = 0
    for a, b, c in itertools.product(small, small, small):
        xs, ys, zs = numbers_of(a), numbers_of(b), numbers_of(c)
        numbers = {x * y + z for x in xs for y in ys for z in zs}
        for fmt in (*RESULTS, Float(4, 6, None, "finite"), Float(4, 7, None, "finite")):
            if accepted(ValueRange.of(a) * ValueRange.of(b) + ValueRange.of(c), fmt):
                grants += 1
                assert holds(fmt, numbers)
    assert grants > 50


def test_exact_needs_specials_of_result():
    assert not accepted(ValueRange.of(E5M2), Float(6, 5, specials="fn"))
    assert not accepted(ValueRange.of(E4M3FN), Float(6, 5, specials="finite"))
    assert accepted(ValueRange.of(E5M2), E6M5)


INT2 = parse("int2")

MIXED = [
    *map(parse, ("fxp2.1", "ufxp1.2", "fxp3.-1", "int1", "ufxp0.2-wrap", "fxp-1.3")),
    *map(parse, ("posit3e0", "posit4e0", "posit4e1", "posit5", "posit5e1")),
    *map(parse, ("e2m1fn", "e3m0-finite", "e2m1-ftz", "e2m2fnuz", "e2m1")),
]
"""Operands of every family, with and without NaN and infinity."""

MIXED_RESULTS = [
    *(Fixed(*bits) for bits in itertools.product(range(8), range(-1, 8), (True, False)) if sum(bits[:2]) > 0),
    *(Posit(width, es) for width, es in itertools.product((6, 7, 8, 9, 10, 12, 15, 20, 40, 64), (0, 1, 2))),
    *(
        Float(exp, man, None, specials, subnormals)
        for exp, man, subnormals in itertools.product((2, 3, 4, 6), (2, 3, 5, 8, 23), (True, False))
        for specials in ("ieee", "fn", "finite")
    ),
]


def places(number):
    """Return the number of bits from the first to the last one."""
    return len(f"{abs(number.numerator):b}".rstrip("0"))


def check_bounds(span, numbers):
    """Check that a value range bounds all numbers, and that its ends and quantum occur."""
    assert (span.lowest, span.largest) == (min(numbers), max(numbers))
    in_quanta = [number / Fraction(2) ** span.quantum for number in numbers]
    assert all(number.denominator == 1 for number in in_quanta)
    assert any(number % 2 for number in in_quanta)
    assert span.smallest <= min(abs(number) for number in numbers if number)
    assert span.precision >= max(map(places, numbers))


def check_accepted(span, numbers, inf, nan):
    """Check that formats accepted by the range hold all numbers, and that some others are refused.

    Fixed point is accepted if and only if it holds the numbers; for other formats the range is a bound.
    """
    check_bounds(span, numbers)
    assert (span.inf, span.nan) == (inf, nan)
    grants = refusals = 0
    for fmt in MIXED_RESULTS:
        if accepted(span, fmt):
            grants += 1
            assert holds_all(fmt, numbers, inf, nan), fmt
        elif holds_all(fmt, numbers, inf, nan):
            refusals += 1
            assert not isinstance(fmt, Fixed), fmt
    return grants, refusals


@pytest.mark.sampled(24, 3)
@pytest.mark.parametrize("a", MIXED, ids=str)
def test_exact_across_families_is_accepted_if_result_holds(a):
    counts = []
    for b in MIXED:
        xs, ys, inf, nan = numbers_of(a), numbers_of(b), a.has_inf or b.has_inf, a.has_nan or b.has_nan
        counts.append(check_accepted(ValueRange.of(a) * ValueRange.of(b), {x * y for x in xs for y in ys}, inf, nan))
        counts.append(check_accepted(ValueRange.of(a) | ValueRange.of(b), xs | ys, inf, nan))
        sums = {x + y for x in xs for y in ys}
        counts.append(check_accepted(ValueRange.of(a) + ValueRange.of(b), sums, inf, nan))
        differences = {x - y for x in xs for y in ys}
        counts.append(check_accepted(ValueRange.of(a).plus_or_minus(ValueRange.of(b)), sums | differences, inf, nan))
    grants, refusals = map(sum, zip(*counts, strict=True))
    assert grants > 500
    assert refusals < grants / 10


@pytest.mark.slow
def test_exact_sums_across_families_are_accepted_if_result_holds():
    formats = [parse(name) for name in ("fxp2.1", "ufxp0.2", "int1", "posit4e1", "e2m1fn")]
    counts = []
    for a, b, c in itertools.product(formats, repeat=3):
        products = {x * y for x in numbers_of(a) for y in numbers_of(b)}
        numbers = {product + z for product in products for z in numbers_of(c)}
        nan = a.has_nan or b.has_nan or c.has_nan
        counts.append(check_accepted(ValueRange.of(a) * ValueRange.of(b) + ValueRange.of(c), numbers, False, nan))
    grants, refusals = map(sum, zip(*counts, strict=True))
    assert grants > 2000
    assert refusals < grants / 2


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fmt", [fmt for fmt in MIXED if fmt.width <= 4], ids=str)
def test_value_range_of_long_sums_is_exact(fmt):
    """Sums of a few numbers of a format, and of a few products."""
    for span, terms in (
        (ValueRange.of(fmt), numbers_of(fmt)),
        (ValueRange.of(fmt) * ValueRange.of(INT2), {x * y for x in numbers_of(fmt) for y in numbers_of(INT2)}),
    ):
        numbers = {Fraction(0)}
        for count in range(1, 4):
            numbers = {number + term for number in numbers for term in terms}
            check_accepted(span.times(count), numbers, fmt.has_inf, fmt.has_nan)


def test_exact_posit_widening_is_accepted():
    for narrow, wide in itertools.product([fmt for fmt in POSITS if fmt.width <= 7 and fmt.es <= 2], repeat=2):
        held = holds_all(wide, numbers_of(narrow), False, True)
        assert held or not accepted(ValueRange.of(narrow), wide), f"{narrow} {wide}"
        if narrow.es == wide.es:
            assert held == accepted(ValueRange.of(narrow), wide) == (narrow.width <= wide.width)
    assert accepted(ValueRange.of(POSIT32), POSIT64)
    assert not accepted(ValueRange.of(POSIT64), POSIT32)


@pytest.mark.parametrize("k", [1, 2, 3, 7, 256])
def test_exact_dot_products_are_accepted_if_result_holds(k):
    most = k * 2**14
    for start, end in ((None, most), (INT32, most + 2**31 - 1)):
        for o in (Fixed(width, 0) for width in range(14, 35)):
            fits = end <= o.largest
            specs = [{"order": order, "rounding": EXACT} for order in ("exact", "sequential")]
            for more in specs:
                try:
                    DotSpec(k, INT8, INT8, o, start, **more)
                except ValueError:
                    assert not fits
                else:
                    assert fits
