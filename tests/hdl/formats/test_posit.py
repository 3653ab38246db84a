"""Posits: decoding by the standard, encoding of single codes, and precision."""

import bisect
import itertools
import math
from fractions import Fraction

import pytest

from halfulp.hdl.formats import (
    EXACT,
    POSIT16,
    POSIT32,
    POSIT64,
    Posit,
    stochastic,
)
from tests.toy_formats import MODES, SMALL_POSITS, chosen, numbers_of


def standard_posit(code, width, es):
    """Decode a code by the formula of the Standard for Posit Arithmetic (2022, 3.3), which negates no code."""
    bits = f"{code:0{width}b}"
    sign, first, rest = int(bits[0]), bits[1], bits[1:]
    run = len(rest) - len(rest.lstrip(first))
    r = run - 1 if first == "1" else -run
    tail = rest[run + 1 :].ljust(es, "0")
    e, fraction = int(tail[:es] or "0", 2), tail[es:]
    f = Fraction(int(fraction or "0", 2), 1 << len(fraction))
    return (1 - 3 * sign + f) * Fraction(2) ** ((1 - 2 * sign) * ((r << es) + e + sign))


@pytest.mark.parametrize("fmt", SMALL_POSITS, ids=str)
def test_decode_posits_matches_standard(fmt):
    for code in range(1, 1 << fmt.width):
        if code != fmt.nan_code:
            assert fmt.decode(code) == standard_posit(code, fmt.width, fmt.es)
    assert fmt.decode(0) == 0
    assert math.isnan(fmt.decode(1 << (fmt.width - 1)))
    assert fmt.decode(1) == fmt.smallest == 1 / fmt.largest
    assert fmt.decode(fmt.max_code) == fmt.largest == -fmt.lowest


@pytest.mark.parametrize("fmt", [POSIT16, POSIT32, POSIT64, Posit(64, 0), Posit(33, 4)], ids=str)
def test_decode_wide_posits_matches_standard(fmt):
    ones = (1 << fmt.width) - 1
    codes = [*range(1, ones, ones // 997), *range(70), *(1 << shift for shift in range(fmt.width - 1))]
    for code in {code ^ flip for code in codes for flip in (0, ones)} - {0, fmt.nan_code}:
        number = fmt.decode(code)
        assert number == standard_posit(code, fmt.width, fmt.es)
        assert fmt.encode(number, EXACT) == code


def around(fmt):
    """Return magnitudes at and between the numbers of a posit with three more bits."""
    finer = Posit(fmt.width + 3, fmt.es)
    marks = [finer.decode(code) for code in range(finer.nan_code)]
    return [*marks, *((x + y) / 2 for x, y in itertools.pairwise(marks)), 2 * finer.largest]


@pytest.mark.sampled(12, 3)
@pytest.mark.parametrize("fmt", [fmt for fmt in SMALL_POSITS if fmt.width <= 7], ids=str)
def test_encode_rounds_posits_between_neighbours(fmt):
    """The posit of one more bit between two neighbours decides which is nearest (2022, 4.1)."""
    finer = Posit(fmt.width + 1, fmt.es)
    numbers = [fmt.decode(code) for code in range(fmt.nan_code)]
    for magnitude, sign in itertools.product(around(fmt), (1, -1)):
        if magnitude <= fmt.smallest or magnitude >= fmt.largest:
            # A nonzero value rounds neither to zero nor to NaR.
            end = min(max(magnitude, fmt.smallest), fmt.largest) if magnitude else Fraction(0)
            expected = dict.fromkeys(MODES, sign * end)
        else:
            code = bisect.bisect(numbers, magnitude) - 1
            near, middle, far = sign * numbers[code], sign * finer.decode(2 * code + 1), sign * numbers[code + 1]
            below, above = sorted((near, far))
            odd = near if code % 2 else far
            expected = {mode: chosen(mode, sign * magnitude, below, middle, above, odd) for mode in MODES}
        for mode, number in expected.items():
            found = fmt.encode(sign * magnitude, mode)
            assert fmt.decode(found) == number, f"{sign * magnitude} {mode}"
            assert fmt.encode(sign * magnitude, mode, saturate=True) == found


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fmt", [fmt for fmt in SMALL_POSITS if fmt.width <= 7], ids=str)
def test_encode_rounds_posits_stochastically(fmt):
    """Random words are added to the code of a posit that is longer by the width of the word."""
    finer = Posit(fmt.width + 2, fmt.es)
    numbers = [finer.decode(code) for code in range(finer.nan_code)]
    for magnitude, sign, word in itertools.product(around(fmt), (1, -1), range(4)):
        code = (bisect.bisect(numbers, magnitude) - 1 + word) >> 2
        if magnitude:
            code = min(max(code, 1), fmt.max_code)
        if magnitude <= fmt.smallest:
            code = min(code, 1)
        found = fmt.encode(sign * magnitude, stochastic(2), word)
        assert fmt.decode(found) == sign * fmt.decode(code), f"{sign * magnitude} {word}"


@pytest.mark.parametrize("fmt", SMALL_POSITS, ids=str)
def test_posit_precision_at_every_scale(fmt):
    numbers = sorted(numbers_of(fmt))
    for scale in range(-fmt.max_scale - 3, fmt.max_scale + 4):
        first, last = Fraction(2) ** scale, Fraction(2) ** (scale + 1)
        there = numbers[bisect.bisect_left(numbers, first) : bisect.bisect_left(numbers, last)]
        precision = fmt.precision_at(scale)
        assert there == [first + index * first / len(there) for index in range(len(there))]
        assert len(there) == (1 << (precision - 1) if precision else 0)
    assert max(fmt.precision_at(scale) for scale in range(-fmt.max_scale, fmt.max_scale + 1)) == fmt.precision
