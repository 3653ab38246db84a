"""The numbers of a format in rising order, and where rounding passes from one to the next."""

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from halfulp.hdl.formats import Fixed, Float, Format, Posit, Rounding

WIDEST = 16
"""Bits of the widest format whose every code is looked at."""

Numbers = np.ndarray[Any, np.dtype[np.float64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


def check_width(fmt: Format) -> None:
    """Raise ValueError unless a format is so narrow that all its codes are looked at, and double precision holds it."""
    if fmt.width > WIDEST:
        raise ValueError(
            f"{fmt} has {fmt.width} bits; errors here are proved on every code, of formats of up to {WIDEST} bits"
        )
    if fmt.quantum < -500 or fmt.largest.numerator.bit_length() > 500:
        raise ValueError(f"{fmt} has numbers beyond 2^500 or below 2^-500, and they are not fitted")


@dataclass(frozen=True, eq=False)
class RoundingTable:
    """Results of a rounding to a format.

    Attributes
    ----------
    values : array of float64
        The numbers by size, zero once. An infinite end stands for a result that is out of range.
    thresholds : array of float64
        Between each and the next: what is less is rounded to the first, what is more to the second.
    up : array of bool
        Whether the threshold itself is rounded to the second.
    """

    values: Numbers
    thresholds: Numbers
    up: Flags

    def round(self, s: Numbers, rest: Numbers | float = 0.0) -> Any:
        """Indices of the values that the exact sums of ``s`` and ``rest`` are rounded to.

        ``rest`` is less than half a unit in the last place of ``s``, which is the sum rounded to double precision.
        """
        index = np.searchsorted(self.thresholds, s, side="left")
        # On a threshold, the rest decides.
        at = self.thresholds[np.minimum(index, len(self.thresholds) - 1)] == s
        up = self.up[np.minimum(index, len(self.thresholds) - 1)]
        return index + (at & ((rest > 0) | ((rest == 0) & up)))

    def ulp(self, s: Numbers) -> Numbers:
        """Units of the last place at numbers: distances of the values around their magnitudes."""
        finite = self.values[np.isfinite(self.values)]
        magnitudes = np.unique(np.abs(finite))
        index = np.clip(np.searchsorted(magnitudes, np.abs(s), side="right"), 1, len(magnitudes) - 1)
        return magnitudes[index] - magnitudes[index - 1]


@lru_cache(maxsize=8)
def rounding_table_of(fmt: Format, rounding: Rounding) -> RoundingTable:
    """Rounding table of a format.

    Raises
    ------
    ValueError
        If the format is wider than 16 bits, or the rounding needs random words or may lose nothing.
    """
    if rounding.mode in ("sr", "exact"):
        raise ValueError(f"a table is not fitted for the rounding {rounding}; name one without random words")
    check_width(fmt)
    if isinstance(fmt, Fixed) and fmt.overflow == "wrap":
        return _wrapped(fmt, rounding)
    return _rounding_table(fmt, rounding)


def _threshold(rounding: Rounding, odd: bool, negative: bool) -> tuple[int, bool]:
    """Halves of a unit in the last place from which on a magnitude goes up from an odd or even one: 0, 1 or 2; and if
    it does so at that place itself, which of 2 halves is the next magnitude."""
    quarter, tie, rest = (rounding.round(odd + Fraction(quarters, 4), negative) > odd for quarters in (1, 2, 3))
    return (0, False) if quarter else (1, tie) if rest else (2, True)


def _rounding_table(fmt: Format, rounding: Rounding) -> RoundingTable:
    """Rounding table of a format that does not wrap."""
    numbers = np.unique(numbers_of(fmt))
    numbers = numbers[np.isfinite(numbers)]
    odd = _odd(fmt, numbers)
    middle = _middles(fmt, numbers)
    low, high = numbers[:-1], numbers[1:]
    # The neighbour nearer to zero is odd.
    inner_odd = np.where(low >= 0, odd[:-1], odd[1:])
    positive = low >= 0
    thresholds, up = np.empty(len(low)), np.empty(len(low), bool)
    for is_odd, negative in itertools.product((False, True), repeat=2):
        at = (inner_odd == is_odd) & (positive != negative)
        place, closed = _threshold(rounding, is_odd, negative)
        # Places are counted from the neighbour nearer to zero, whose side the threshold is on where it is not closed.
        inner, outer = (high, low) if negative else (low, high)
        thresholds[at] = np.choose(place, [inner, middle, outer])[at]
        up[at] = closed != negative
    if isinstance(fmt, Posit):
        _never_zero(numbers, thresholds, up)
    elif isinstance(fmt, Float) and not fmt.subnormals:
        _flushed(fmt, rounding, numbers, thresholds, up)
    rounding_table = RoundingTable(numbers, thresholds, up)
    return _with_ends(fmt, rounding, rounding_table, odd) if isinstance(fmt, Float) else rounding_table


@lru_cache(maxsize=8)
def numbers_of(fmt: Format) -> Numbers:
    """Numbers of all codes, by code."""
    if isinstance(fmt, Fixed):
        codes = np.arange(1 << fmt.width)
        return np.where(codes > fmt.largest_integer, codes - (1 << fmt.width), codes) * float(fmt.smallest)
    return np.array([float(fmt.decode(code)) for code in range(1 << fmt.width)])


def _odd(fmt: Format, numbers: Numbers) -> Flags:
    """Whether the integer that rounding to even looks at is odd."""
    if isinstance(fmt, Fixed):
        return np.mod(numbers / float(fmt.smallest), 2) == 1
    # Codes of magnitudes go up with them.
    zero = int(np.searchsorted(numbers, 0.0))
    place = np.abs(np.arange(len(numbers)) - zero)
    if isinstance(fmt, Float):
        # What a float without mantissa bits rounds is 1, whatever the exponent.
        skipped = 0 if fmt.subnormals else (1 << fmt.man) - 1
        return (place > 0) if fmt.man == 0 else (place + skipped * (place > 0)) % 2 == 1
    return place % 2 == 1


def _middles(fmt: Format, numbers: Numbers) -> Numbers:
    """Where rounding to nearest passes on."""
    if not isinstance(fmt, Posit):
        return (numbers[:-1] + numbers[1:]) / 2
    finer = Posit(fmt.width + 1, fmt.es)
    above = np.array([float(finer.decode(2 * code + 1)) for code in range(fmt.max_code)])
    return np.concatenate([-above[::-1], above])


def _never_zero(numbers: Numbers, thresholds: Numbers, up: Flags) -> None:
    """Posits: nothing but zero is rounded to zero."""
    zero = int(np.searchsorted(numbers, 0.0))
    thresholds[zero - 1 : zero + 1] = 0.0
    up[zero - 1], up[zero] = True, False


def _flushed(fmt: Float, rounding: Rounding, numbers: Numbers, thresholds: Numbers, up: Flags) -> None:
    """Floats without subnormals: zero is what would be rounded to less than the smallest normal number."""
    zero = int(np.searchsorted(numbers, 0.0))
    smallest, place = float(fmt.smallest), math.ldexp(1.0, fmt.emin - fmt.man - 1)
    # The number below the smallest normal one, were there subnormals of full precision, is odd.
    for negative, at, sign in ((False, zero, 1), (True, zero - 1, -1)):
        steps, closed = _threshold(rounding, True, negative)
        thresholds[at], up[at] = sign * (smallest - place * (2 - steps) / 2), closed != negative


def _with_ends(fmt: Float, rounding: Rounding, rounding_table: RoundingTable, odd: Flags) -> RoundingTable:
    """A float's rounding table with the ends that stand for results out of range, where these are no finite number."""
    numbers, thresholds, up = rounding_table.values, rounding_table.thresholds, rounding_table.up
    half = math.ldexp(1.0, fmt.emax - fmt.man - 1)
    to_largest = (True, True) if fmt.specials == "finite" else rounding.overflows_to_largest
    if not to_largest[False]:
        steps, closed = _threshold(rounding, bool(odd[-1]), False)
        place = numbers[-1] + steps * half
        numbers, thresholds, up = np.append(numbers, math.inf), np.append(thresholds, place), np.append(up, closed)
    if not to_largest[True]:
        steps, closed = _threshold(rounding, bool(odd[0]), True)
        place = numbers[0] - steps * half
        numbers = np.insert(numbers, 0, -math.inf)
        thresholds, up = np.insert(thresholds, 0, place), np.insert(up, 0, not closed)
    return RoundingTable(numbers, thresholds, up)


def _wrapped(fmt: Fixed, rounding: Rounding) -> RoundingTable:
    """Table of a format that wraps: that of a wider one, up to the ends of this one's range."""
    wider = _rounding_table(Fixed(fmt.int_bits + 2, fmt.frac_bits), rounding)
    first, last = np.searchsorted(wider.values, [float(fmt.lowest), float(fmt.largest)])
    values = wider.values[first - 1 : last + 2].copy()
    values[[0, -1]] = -math.inf, math.inf
    return RoundingTable(values, wider.thresholds[first - 1 : last + 1], wider.up[first - 1 : last + 1])
