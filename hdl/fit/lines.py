"""Search for a line inside a band, with coefficients of given formats.

The value of a line is an exact product plus an intercept. Double precision holds the product exactly, and the sum as
the nearest number and an exact remainder (Knuth, The Art of Computer Programming 2, 4.2.2), so comparisons are exact.
"""

from dataclasses import dataclass

import numpy as np

from .grid import Grid
from .rounding_table import Flags, Numbers

Line = tuple[float, float]
"""Slope and intercept of a line."""

_TINY, _ROUNDED = 2.0**-44, 2.0**-51

_AT_ONCE, _FEW = 1 << 20, 4  # products per step; slopes tested one by one


def sums(slope: float | Numbers, t: Numbers, intercept: float | Numbers) -> tuple[Numbers, Numbers]:
    """Return the values of a line, rounded to double precision, and the exact remainders."""
    return two_sum(slope * t, intercept)


def two_sum(x: Numbers, y: float | Numbers) -> tuple[Numbers, Numbers]:
    """Return the sum in double precision and the exact remainder (Knuth)."""
    s = x + y
    part = s - x
    return s, (x - (s - part)) + (y - part)


@dataclass(frozen=True, eq=False)
class Band:
    """Bounds on the values of a line.

    Attributes
    ----------
    t : array of float64
        Arguments in nondecreasing order.
    low, high : array of float64
        Lowest and highest value at each argument.
    low_closed, high_closed : array of bool
        True if the bound itself is allowed.
    """

    t: Numbers
    low: Numbers
    high: Numbers
    low_closed: Flags
    high_closed: Flags

    def part(self, first: int, last: int) -> "Band":
        """Return the band at the points from ``first`` to before ``last``."""
        part = slice(first, last)
        return Band(self.t[part], self.low[part], self.high[part], self.low_closed[part], self.high_closed[part])

    @property
    def empty(self) -> bool:
        """True if some point allows no value."""
        return bool(np.any(self.low > self.high))

    def holds(self, slope: float, intercept: float) -> bool:
        """Return True if a line is inside the band, computed exactly."""
        s, rest = sums(slope, self.t, intercept)
        if np.any((s < self.low) | (s > self.high)):
            return False
        below = (s == self.low) & ((rest < 0) | ((rest == 0) & ~self.low_closed))
        above = (s == self.high) & ((rest > 0) | ((rest == 0) & ~self.high_closed))
        return not (np.any(below) or np.any(above))

    # Slopes ----------------------------------------------------------------------------------------------------

    def room(self, slope: float) -> tuple[float, float, float]:
        """Return the lowest and highest intercept for a slope, and the derivative of their difference."""
        product = slope * self.t
        above, below = self.high - product, self.low - product
        top, bottom = int(np.argmin(above)), int(np.argmax(below))
        return float(below[bottom]), float(above[top]), float(self.t[bottom] - self.t[top])

    def slopes(self, low: float, high: float) -> tuple[float, float] | None:
        """Return the lowest and highest slope in a range with which a line is inside; rounded outwards.

        The difference of the intercepts is a concave function of the slope, so each tangent excludes the slopes on one
        side of its root. Newton's method converges from either side.
        """
        low, high = self._ends(low, high)
        slopes = []
        for side, slope in ((1, low), (-1, high)):
            for _ in range(64):
                if not low <= slope <= high:
                    return None
                bottom, top, growth = self.room(slope)
                slack = _TINY * (abs(bottom) + abs(top))
                if not bottom - top > slack:
                    break
                if growth * side <= 0:
                    return None
                # Stop before the root despite rounding errors.
                step = (bottom - top - slack / 2) / growth
                if abs(step) <= _TINY * abs(slope):
                    break
                slope += step
            slopes.append(slope)
        margin = _TINY * max(abs(slopes[0]), abs(slopes[1]))
        return slopes[0] - margin, slopes[1] + margin

    def _ends(self, low: float, high: float) -> tuple[float, float]:
        """Restrict slopes to those possible at the first and last point alone."""
        width = float(self.t[-1] - self.t[0])
        if width > 0:
            least, most = float(self.low[-1] - self.high[0]) / width, float(self.high[-1] - self.low[0]) / width
            low, high = max(low, least - _TINY * abs(least)), min(high, most + _TINY * abs(most))
        return low, high

    def intercept(self, slope: float, intercepts: Grid) -> float | None:
        """Return an intercept with which a line of this slope is inside, near the middle; None if there is none."""
        bottom, top, _ = self.room(slope)
        # An unbounded side is limited to a distance of one.
        if np.isinf(bottom):
            bottom = min(top - 1.0, 0.0)
        if np.isinf(top):
            top = max(bottom + 1.0, 0.0)
        # Products are exact, and differences are rounded once.
        slack = _ROUNDED * (abs(bottom) + abs(top))
        if bottom > top + slack:
            return None
        for candidate in intercepts.near((bottom + top) / 2):
            if self.holds(slope, float(candidate)):
                return float(candidate)
        for candidate in intercepts.between(bottom - slack, top + slack):
            if self.holds(slope, float(candidate)):
                return float(candidate)
        return None

    def line(self, slopes: Grid, intercepts: Grid, guess: float | None = None) -> Line | None:
        """Return a line inside the band with coefficients of the grids, or None if there is none.

        Parameters
        ----------
        slopes, intercepts : Grid
        guess : float, optional
            Slope to test first; default: `chord`.
        """
        if self.empty:
            return None
        if guess is None:
            guess = self.chord()
        for slope in slopes.near(guess):
            if (intercept := self.intercept(float(slope), intercepts)) is not None:
                return float(slope), intercept
        ends = self.slopes(slopes.low, slopes.high)
        if ends is None:
            return None
        tried = slopes.between(*ends)
        few = self._merged()
        step = max(_AT_ONCE // len(few.t), 1)
        for first in range(0, len(tried), step):
            for slope in few._likely(tried[first : first + step], intercepts):
                if (intercept := self.intercept(float(slope), intercepts)) is not None:
                    return float(slope), intercept
        return None

    def _merged(self) -> "Band":
        """Return the bounds with one point for each argument; the closed ends are those of its first point."""
        starts = np.flatnonzero(np.concatenate([[True], self.t[1:] > self.t[:-1]]))
        low, high = np.maximum.reduceat(self.low, starts), np.minimum.reduceat(self.high, starts)
        return Band(self.t[starts], low, high, self.low_closed[starts], self.high_closed[starts])

    def _likely(self, slopes: Numbers, intercepts: Grid) -> Numbers:
        """Return the slopes that have intercepts, apart from rounding errors."""
        if len(slopes) < _FEW:
            return slopes
        products = np.outer(slopes, self.t)
        bottom, top = np.max(self.low - products, axis=1), np.min(self.high - products, axis=1)
        slack = _ROUNDED * (np.abs(bottom) + np.abs(top))
        slack = np.where(np.isfinite(slack), slack, 0.0)
        return slopes[intercepts.any_between(bottom - slack, top + slack)]

    def chord(self) -> float:
        """Return the slope between the midpoints of the first and last interval, or 0."""
        first, last = 0, len(self.t) - 1
        width = float(self.t[last] - self.t[first])
        if width == 0:
            return 0.0
        with np.errstate(invalid="ignore"):
            rise = (self.low[last] + self.high[last] - self.low[first] - self.high[first]) / 2
        return float(rise / width) if np.isfinite(rise) else 0.0
