"""Values that a coefficient may have, in the order in which they are tried."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import count, product
from typing import Any

import numpy as np

from halfulp.hdl.formats import Fixed, Format
from halfulp.hdl.specs.pieces import PowerSum

from .rounding_table import WIDEST, Numbers, numbers_of

POWERS = (-16, 6)
"""Exponents of slopes that are sums of powers of two, from the first to the second."""

MOST = 1 << 16
"""Multiples that are tried at most, those in the middle: all that a format of 16 bits holds."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Numbers that a coefficient may be: multiples of a step, or a list.

    Attributes
    ----------
    low, high : float
        The least and the largest.
    step : float
        0 for those that are listed.
    listed : array of float64, optional
    """

    low: float
    high: float
    step: float = 0.0
    listed: Numbers | None = None

    def between(self, low: float, high: float) -> Numbers:
        """Values from ``low`` to ``high``, both included, the middle ones first."""
        low, high = max(low, self.low), min(high, self.high)
        if not low <= high:
            return np.empty(0)
        if self.listed is not None:
            reach = slice(*np.searchsorted(self.listed, [low, np.nextafter(high, math.inf)]))
            return _middle_first(self.listed[reach])
        first, last = math.ceil(low / self.step), math.floor(high / self.step)
        if last - first > MOST:
            middle = (first + last) // 2
            first, last = middle - MOST // 2, middle + MOST // 2
        return _middle_first(np.arange(first, last + 1, dtype=np.float64) * self.step)

    def any_between(self, low: Numbers, high: Numbers) -> Any:
        """True where there is a value from ``low`` to ``high``, for arrays of bounds."""
        low, high = np.maximum(low, self.low), np.minimum(high, self.high)
        if self.listed is not None:
            return np.searchsorted(self.listed, low, "left") < np.searchsorted(self.listed, high, "right")
        return np.ceil(low / self.step) <= np.floor(high / self.step)

    def near(self, value: float) -> Numbers:
        """Both neighbours of a number, or the number itself where it is one of the values."""
        if self.listed is not None:
            at = int(np.searchsorted(self.listed, value))
            return self.listed[max(at - 1, 0) : at + 1]
        # A number farther out may be infinite in steps.
        if not self.low - self.step <= value <= self.high + self.step:
            return np.empty(0)
        places = {math.floor(value / self.step), math.ceil(value / self.step)}
        return np.array([place * self.step for place in sorted(places) if self.low <= place * self.step <= self.high])

    def beside(self, value: float) -> list[float]:
        """Neighbours of one of the values."""
        if self.listed is not None:
            at = int(np.searchsorted(self.listed, value))
            return [float(self.listed[place]) for place in (at - 1, at + 1) if 0 <= place < len(self.listed)]
        return [next_ for next_ in (value - self.step, value + self.step) if self.low <= next_ <= self.high]


def _middle_first(numbers: Numbers) -> Any:
    """From the middle outwards."""
    middle = (len(numbers) - 1) / 2
    return numbers[np.argsort(np.abs(np.arange(len(numbers)) - middle), kind="stable")]


@lru_cache(maxsize=64)
def grid_of(held: Format | PowerSum) -> Grid:
    """The numbers that a format holds, or that are sums of so many powers of two.

    Raises
    ------
    ValueError
        If the format is neither fixed point nor of up to 16 bits.
    """
    if isinstance(held, PowerSum):
        listed = sums_of_powers(held.terms)
        return Grid(float(listed[0]), float(listed[-1]), listed=listed)
    if held.spacing == "uniform":
        return Grid(float(held.lowest), float(held.largest), float(held.smallest))
    if held.width > WIDEST:
        raise ValueError(f"coefficients in {held} are not fitted; take fixed point, or up to {WIDEST} bits")
    numbers = numbers_of(held)
    listed = np.unique(numbers[np.isfinite(numbers)])
    return Grid(float(listed[0]), float(listed[-1]), listed=listed)


def sums_of_powers(terms: int) -> Numbers:
    """All sums of up to so many signed powers of two, of exponents from -16 to 6, by size."""
    powers = [sign * math.ldexp(1.0, exponent) for sign, exponent in product((-1, 1), range(POWERS[0], POWERS[1] + 1))]
    found = np.zeros(1)
    for _ in range(min(terms, 3)):
        found = np.unique((found[:, None] + np.array([0.0, *powers])[None, :]).ravel())
    if terms > 3:
        # Every number of so few bits has at most this many: half of its bits, rounded up.
        most = 2 << (POWERS[1] - POWERS[0])
        whole = np.arange(-most, most + 1)
        few = np.array([len(PowerSum.powers(Fraction(int(number)))) <= terms for number in whole])
        found = whole[few] * math.ldexp(1.0, POWERS[0])
    return found


def fixed_for(low: float, high: float, places: int) -> Fixed:
    """The narrowest signed fixed-point format of so many places that holds all numbers from one to another."""
    ends = ((bits, 2.0 ** (bits - 1)) for bits in count(1 - places))
    return Fixed(next(bits for bits, end in ends if -end <= low <= high <= end - 2.0**-places), places)
