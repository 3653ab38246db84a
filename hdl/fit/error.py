"""Exact errors of a table over all codes."""

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
    """Errors of a table over all codes that its pieces compute.

    Attributes
    ----------
    x : array of float64
        Numbers of the input format, ascending.
    value : array of float64
        Function values to 53 bits, clipped to the range of a saturating output.
    got : array of float64
        Rounded results of the table.
    rounded : array of float64
        Correctly rounded function values.
    ulp, absolute : array of float64
        Differences between ``got`` and ``value``, in ulp of the value and absolute.
    off : array of int
        Differences between ``got`` and ``rounded``, in numbers of the output format.
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
        """Argument of the largest error in ulp; the one nearest to zero if there are several."""
        worst = self.x[self.ulp == self.ulp.max()]
        return float(min(worst.tolist(), key=lambda x: (abs(x), -x)))


def errors(
    segments: Segments,
    function: Function,
    *,
    interval: tuple[Fraction, Fraction] | None = None,
    rounding: Rounding = RN,
) -> Errors:
    """Return the errors of a table over all codes, except special values.

    Parameters
    ----------
    segments : Segments
    function : Function
    interval : (Fraction, Fraction), optional
        Interval of the fit; outside, the function is evaluated at the nearer end.
    rounding : Rounding
        Rounding of the results and of the correctly rounded values.

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
    slopes = np.array([float(piece.slope) for piece in segments.pieces])
    intercepts = np.array([float(piece.intercept) for piece in segments.pieces])
    index = points.results(*sums(slopes[piece], points.t, intercepts[piece]))
    order = np.argsort(points.x, kind="stable")
    values = points.rounding_table.values
    inside = np.isfinite(values[index]) & np.isfinite(values[points.nearest])
    got, rounded = values[index], values[points.nearest]
    with np.errstate(invalid="ignore"):
        absolute = np.where(inside, np.abs(got - points.value), np.where(index == points.nearest, 0.0, np.inf))
    errors = points.errors(index)
    columns = (points.x, points.value, got, rounded, errors, absolute, np.abs(index - points.nearest))
    return Errors(*(numbers[order] for numbers in columns))
