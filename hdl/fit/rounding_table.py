"""Numbers of a format in ascending order, and the thresholds of rounding between neighbours."""

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from halfulp.hdl.formats import Format, Rounding
from halfulp.hdl.formats.base import floor_log2

WIDEST = 16
"""Maximum width of formats whose codes are all enumerated."""

Numbers = np.ndarray[Any, np.dtype[np.float64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


def check_width(fmt: Format) -> None:
    """Raise ValueError unless all codes of a format can be enumerated and double precision holds its numbers."""
    if fmt.width > WIDEST:
        raise ValueError(f"{fmt} has {fmt.width} bits; fits check every code of formats of up to {WIDEST} bits")
    if fmt.quantum < -500 or fmt.largest.numerator.bit_length() > 500:
        raise ValueError(f"{fmt} has numbers beyond 2^500 or below 2^-500, which cannot be fitted")


@dataclass(frozen=True, eq=False)
class RoundingTable:
    """Rounding of real numbers to a format, as values and thresholds.

    Attributes
    ----------
    values : array of float64
        Numbers in ascending order, zero once. An infinity at an end stands for results out of range.
    thresholds : array of float64
        Threshold between each value and the next: numbers below it round to the first, numbers above it to the second.
    up : array of bool
        True if the threshold itself rounds to the second value.
    """

    values: Numbers
    thresholds: Numbers
    up: Flags

    def round(self, s: Numbers, rest: Numbers | float = 0.0) -> Any:
        """Return the indices of the values to which the exact sums of ``s`` and ``rest`` round.

        ``s`` is the sum rounded to double precision; ``rest`` is the remainder, less than half a ulp of ``s``.
        """
        index = np.searchsorted(self.thresholds, s, side="left")
        # On a threshold, the remainder decides.
        at = self.thresholds[np.minimum(index, len(self.thresholds) - 1)] == s
        up = self.up[np.minimum(index, len(self.thresholds) - 1)]
        return index + (at & ((rest > 0) | ((rest == 0) & up)))

    def ulp(self, s: Numbers) -> Numbers:
        """Return the ulp at numbers: the distance of the values around each magnitude."""
        finite = self.values[np.isfinite(self.values)]
        magnitudes = np.unique(np.abs(finite))
        index = np.clip(np.searchsorted(magnitudes, np.abs(s), side="right"), 1, len(magnitudes) - 1)
        return magnitudes[index] - magnitudes[index - 1]


@lru_cache(maxsize=8)
def rounding_table_of(fmt: Format, rounding: Rounding) -> RoundingTable:
    """Return the rounding table of a format.

    Raises
    ------
    ValueError
        If the format is wider than 16 bits, or the rounding is stochastic or ``exact``.
    """
    if rounding.mode in ("sr", "exact"):
        raise ValueError(f"segments cannot be fitted for the rounding {rounding}; use a mode without random words")
    check_width(fmt)
    numbers, codes = np.unique(numbers_of(fmt), return_index=True)
    finite = np.isfinite(numbers)
    numbers, odd = numbers[finite], codes[finite] % 2 == 1
    if fmt.spacing == "relative" and fmt.precision == 1:
        # The significand of a float without mantissa bits is always 1, which is odd.
        odd = numbers != 0
    middle = _middles(fmt, numbers)
    low, high = numbers[:-1], numbers[1:]
    # Parity of the neighbour nearer to zero.
    inner_odd = np.where(low >= 0, odd[:-1], odd[1:])
    positive = low >= 0
    thresholds, up = np.empty(len(low)), np.empty(len(low), bool)
    for is_odd, negative in itertools.product((False, True), repeat=2):
        at = (inner_odd == is_odd) & (positive != negative)
        place, closed = _threshold(rounding, is_odd, negative)
        # Places are counted from the neighbour nearer to zero, to which the threshold rounds unless ``closed``.
        inner, outer = (high, low) if negative else (low, high)
        thresholds[at] = np.choose(place, [inner, middle, outer])[at]
        up[at] = closed != negative
    if fmt.rounds == "string":
        _never_zero(numbers, thresholds, up)
    elif fmt.flushes:
        _flushed(fmt, rounding, numbers, thresholds, up)
    return _with_ends(fmt, rounding, RoundingTable(numbers, thresholds, up))


def _threshold(rounding: Rounding, odd: bool, negative: bool) -> tuple[int, bool]:
    """Return the threshold of rounding a magnitude up, in half ulps, and True if the threshold itself rounds up."""
    quarter, tie, rest = (rounding.round(odd + Fraction(quarters, 4), negative) > odd for quarters in (1, 2, 3))
    return (0, False) if quarter else (1, tie) if rest else (2, True)


@lru_cache(maxsize=8)
def numbers_of(fmt: Format) -> Numbers:
    """Return the numbers of all codes, by code."""
    return np.array([float(value) for value in fmt.values])


def _middles(fmt: Format, numbers: Numbers) -> Numbers:
    """Return the thresholds of rounding to nearest between neighbours."""
    low, high = numbers[:-1], numbers[1:]
    middle = (low + high) / 2
    if fmt.rounds == "string":
        # Only codes without all exponent bits have neighbours this far apart.
        inner, outer = np.minimum(np.abs(low), np.abs(high)), np.maximum(np.abs(low), np.abs(high))
        for index in np.flatnonzero((inner > 0) & (outer >= 4 * inner)):
            place = float(fmt.middle(Fraction(inner[index]), Fraction(outer[index])))
            middle[index] = math.copysign(place, low[index])
    return middle


def _never_zero(numbers: Numbers, thresholds: Numbers, up: Flags) -> None:
    """Set thresholds of formats that round code strings, in which only zero rounds to zero."""
    zero = int(np.searchsorted(numbers, 0.0))
    thresholds[zero - 1 : zero + 1] = 0.0
    up[zero - 1], up[zero] = True, False


def _flushed(fmt: Format, rounding: Rounding, numbers: Numbers, thresholds: Numbers, up: Flags) -> None:
    """Set thresholds of formats that flush: results that round below the smallest normal number become zero."""
    zero = int(np.searchsorted(numbers, 0.0))
    smallest, place = float(fmt.smallest), math.ldexp(1.0, floor_log2(fmt.smallest) - fmt.precision)
    # With subnormals of full precision, the number below the smallest normal one would be odd.
    for negative, at, sign in ((False, zero, 1), (True, zero - 1, -1)):
        steps, closed = _threshold(rounding, True, negative)
        thresholds[at], up[at] = sign * (smallest - place * (2 - steps) / 2), closed != negative


def _with_ends(fmt: Format, rounding: Rounding, table: RoundingTable) -> RoundingTable:
    """Add an infinity at each end where results out of range do not become the last finite number."""
    values, thresholds, up = table.values, table.thresholds, table.up
    if (end := _end(fmt, rounding, negative=False)) is not None:
        values, thresholds, up = np.append(values, math.inf), np.append(thresholds, end[0]), np.append(up, not end[1])
    if (end := _end(fmt, rounding, negative=True)) is not None:
        values = np.insert(values, 0, -math.inf)
        thresholds, up = np.insert(thresholds, 0, end[0]), np.insert(up, 0, end[1])
    return RoundingTable(values, thresholds, up)


def _end(fmt: Format, rounding: Rounding, negative: bool) -> tuple[float, bool] | None:
    """Return the threshold beyond the last number of a sign, and True if the threshold rounds to that number.

    Return None if all larger results round to that number.
    """
    last, sign = (fmt.lowest_result, -1) if negative else (fmt.largest, 1)
    gap = Fraction(2) ** (fmt.quantum if fmt.wraps else floor_log2(max(-fmt.lowest, fmt.largest)) + 3)

    def stays(value: Fraction) -> bool:
        return fmt.decode(fmt.encode(value, rounding)) == last

    inside, outside, tiny = Fraction(0), gap, gap / (1 << 64)
    if stays(last + sign * gap):
        return None
    if not stays(last + sign * tiny):
        return float(last), True
    if stays(last + sign * (gap - tiny)):
        return float(last + sign * gap), False
    while True:
        place = last + sign * (inside + outside) / 2
        before, after = stays(place - sign * tiny), stays(place + sign * tiny)
        if before and not after:
            return float(place), stays(place)
        inside, outside = ((inside + outside) / 2, outside) if after else (inside, (inside + outside) / 2)
