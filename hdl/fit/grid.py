"""Candidate values of coefficients, in search order."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import count, product
from typing import Any

import numpy as np

from halfulp.hdl.formats import Fixed, Format
from halfulp.hdl.specs.pieces import PowerSum

from .rounding_table import WIDEST, Numbers, numbers_of

POWERS = (-16, 6)
"""Lowest and highest exponent of the powers of two in slopes."""

MOST = 1 << 16
"""Maximum number of candidate multiples, taken from the middle; a format of 16 bits has no more."""


SMALLEST = 2.0**-900
"""Smallest magnitude of numbers with few significant bits."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Candidate values of a coefficient: multiples of a step, numbers with few significant bits, or a list.

    Attributes
    ----------
    low, high : float
        Lowest and highest value.
    step : float
        Distance of the multiples; else 0.
    listed : array of float64, optional
    digits : int
        Maximum significant bits, else 0.
    """

    low: float
    high: float
    step: float = 0.0
    listed: Numbers | None = None
    digits: int = 0

    @property
    def places(self) -> int:
        """Number of fraction bits, or of significant bits."""
        return self.digits or round(-math.log2(self.step))

    def rounded(self, places: int) -> "Grid":
        """Return the grid with another number of fraction bits, or of significant bits."""
        return replace(self, digits=places) if self.digits else replace(self, step=2.0**-places)

    def _steps(self, low: Any, high: Any) -> Any:
        """Return the distance of the candidates between bounds: of the numbers with the largest exponent there."""
        if not self.digits:
            return self.step
        largest = np.maximum(np.maximum(np.abs(low), np.abs(high)), SMALLEST)
        return np.ldexp(1.0, np.frexp(largest)[1] - self.digits)

    def between(self, low: float, high: float) -> Numbers:
        """Return the values from ``low`` to ``high``, both included, middle ones first."""
        low, high = max(low, self.low), min(high, self.high)
        if not low <= high:
            return np.empty(0)
        if self.listed is not None:
            reach = slice(*np.searchsorted(self.listed, [low, np.nextafter(high, math.inf)]))
            return _middle_first(self.listed[reach])
        step = float(self._steps(low, high))
        first, last = math.ceil(low / step), math.floor(high / step)
        if last - first > MOST:
            middle = (first + last) // 2
            first, last = middle - MOST // 2, middle + MOST // 2
        return _middle_first(np.arange(first, last + 1, dtype=np.float64) * step)

    def any_between(self, low: Numbers, high: Numbers) -> Any:
        """Return, for arrays of bounds, True if a value is between ``low`` and ``high``."""
        low, high = np.maximum(low, self.low), np.minimum(high, self.high)
        if self.listed is not None:
            return np.searchsorted(self.listed, low, "left") < np.searchsorted(self.listed, high, "right")
        steps = self._steps(low, high)
        return np.ceil(low / steps) <= np.floor(high / steps)

    def only(self, value: float) -> "Grid":
        """Return a list of the nearest values of the grid to a number."""
        near = self.near(value)
        return Grid(self.low, self.high, listed=near[np.argsort(np.abs(near - value))[:1]])

    def near(self, value: float) -> Numbers:
        """Return both neighbours of a number, or the number itself if it is a value of the grid."""
        if self.listed is not None:
            at = int(np.searchsorted(self.listed, value))
            return self.listed[max(at - 1, 0) : at + 1]
        # Division of a much larger number by the step could overflow.
        step = float(self._steps(value, value))
        if not self.low - step <= value <= self.high + step:
            return np.empty(0)
        places = {math.floor(value / step), math.ceil(value / step)}
        return np.array([place * step for place in sorted(places) if self.low <= place * step <= self.high])

    def neighbours(self, value: float) -> list[float]:
        """Return the neighbours of a value of the grid."""
        if self.listed is not None:
            at = int(np.searchsorted(self.listed, value))
            return [float(self.listed[place]) for place in (at - 1, at + 1) if 0 <= place < len(self.listed)]
        step = float(self._steps(value, value))
        return [next_ for next_ in (value - step, value + step) if self.low <= next_ <= self.high]


def _middle_first(numbers: Numbers) -> Any:
    """Sort from the middle outwards."""
    middle = (len(numbers) - 1) / 2
    return numbers[np.argsort(np.abs(np.arange(len(numbers)) - middle), kind="stable")]


@lru_cache(maxsize=64)
def grid_of(held: Format | PowerSum) -> Grid:
    """Return the numbers of a format, or the sums of powers of two.

    Raises
    ------
    ValueError
        If the format is not fixed point and has more than 16 bits.
    """
    if isinstance(held, PowerSum):
        listed = sums_of_powers(held.terms)
        return Grid(float(listed[0]), float(listed[-1]), listed=listed)
    if held.spacing == "uniform":
        return Grid(float(held.lowest), float(held.largest), float(held.smallest))
    if held.width > WIDEST:
        raise ValueError(f"coefficients cannot be in {held}; use fixed point or a format of up to {WIDEST} bits")
    numbers = numbers_of(held)
    listed = np.unique(numbers[np.isfinite(numbers)])
    return Grid(float(listed[0]), float(listed[-1]), listed=listed)


def sums_of_powers(terms: int) -> Numbers:
    """Return all sums of up to ``terms`` signed powers of two with exponents from -16 to 6, ascending."""
    powers = [sign * math.ldexp(1.0, exponent) for sign, exponent in product((-1, 1), range(POWERS[0], POWERS[1] + 1))]
    sums = np.zeros(1)
    for _ in range(min(terms, 3)):
        sums = np.unique((sums[:, None] + np.array([0.0, *powers])[None, :]).ravel())
    if terms > 3:
        # Every integer of b bits needs at most b / 2 powers, rounded up, so all integers are enumerated.
        most = 2 << (POWERS[1] - POWERS[0])
        whole = np.arange(-most, most + 1)
        few = np.array([len(PowerSum.powers(Fraction(int(number)))) <= terms for number in whole])
        sums = whole[few] * math.ldexp(1.0, POWERS[0])
    return sums


def fixed_for(low: float, high: float, places: int) -> Fixed:
    """Return the narrowest signed fixed-point format with ``places`` fraction bits that holds ``low`` to ``high``."""
    ends = ((bits, 2.0 ** (bits - 1)) for bits in count(1 - places))
    return Fixed(next(bits for bits, end in ends if -end <= low <= high <= end - 2.0**-places), places)
