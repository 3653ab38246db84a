"""Errors of a table over every code, measured exactly."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from halfulp.hdl.formats import RN, Rounding
from halfulp.hdl.specs.segments import Segments

from .folding import Folding
from .functions import Function
from .lines import sums
from .points import points_of
from .rounding_table import Numbers


@dataclass(frozen=True, eq=False)
class Errors:
    """Errors of a table over all codes that come to its pieces.

    Attributes
    ----------
    x : array of float64
        Numbers, rising.
    value : array of float64
        The function's, to 53 bits; where the output saturates, inside its range.
    got : array of float64
        The table's, rounded.
    rounded : array of float64
        The function's, correctly rounded.
    ulp, absolute : array of float64
        Differences between ``got`` and ``value``, in units of the last place of that, and as they are.
    off : array of int
        Numbers of the output from ``rounded`` to ``got``.
    """

    x: Numbers
    value: Numbers
    got: Numbers
    rounded: Numbers
    ulp: Numbers
    absolute: Numbers
    off: Numbers

    @property
    def at(self) -> float:
        """Place of the largest error in units of the last place; of several, the nearest to zero."""
        worst = self.x[self.ulp == self.ulp.max()]
        return float(min(worst.tolist(), key=lambda x: (abs(x), -x)))


def errors(
    segments: Segments,
    function: Function,
    *,
    interval: tuple[Fraction, Fraction] | None = None,
    rounding: Rounding = RN,
) -> Errors:
    """Errors of a table over all codes, specials aside.

    Parameters
    ----------
    segments : Segments
    function : Function
    interval : (Fraction, Fraction), optional
        Outside of it the function is taken at its nearer end.
    rounding : Rounding
        Of the results; the correctly rounded ones are rounded in the same way.

    Raises
    ------
    ValueError
        If a format has more than 16 bits.
    """
    folding = Folding(
        segments.symmetry, segments.centre, segments.reduction, segments.factor, segments.fraction, interval
    )
    points = points_of(function, segments.fmt, segments.out, folding, rounding=rounding)
    starts = np.array([float(piece.start) for piece in segments.pieces])
    piece = np.maximum(np.searchsorted(starts, points.t, side="right") - 1, 0)
    slopes = np.array([float(one.slope) for one in segments.pieces])
    intercepts = np.array([float(one.intercept) for one in segments.pieces])
    index = points.results(*sums(slopes[piece], points.t, intercepts[piece]))
    order = np.argsort(points.x, kind="stable")
    values = points.rounding_table.values
    inside = np.isfinite(values[index]) & np.isfinite(values[points.nearest])
    got, rounded = values[index], values[points.nearest]
    with np.errstate(invalid="ignore"):
        absolute = np.where(inside, np.abs(got - points.value), np.where(index == points.nearest, 0.0, np.inf))
    errors = points.errors(index)
    found = (points.x, points.value, got, rounded, errors, absolute, np.abs(index - points.nearest))
    return Errors(*(numbers[order] for numbers in found))
