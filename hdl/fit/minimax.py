"""Line segments with the smallest maximum error for a real function on an interval, without rounding.

The best line on an interval is found by exchange: its error has equal magnitude and alternating signs at three points
(Chebyshev; Remez, 1934). The error of an interval never decreases when the interval grows, so pieces of equal errors
are optimal: any other division has a piece at least as long as one of these (Lawson, 1964). The function is sampled so
densely that interpolation adds at most a millionth to an error.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from halfulp.hdl.formats.checks import check_int

from .functions import Function, function_of
from .rounding_table import Numbers

_SAMPLES, _SAMPLES_OF_PIECE, _BITS = 1 << 15, 1 << 10, 64
_EXCHANGES = 64
_NEAR = 1e-8


@dataclass(frozen=True)
class Minimax:
    """Segments with the smallest maximum error.

    Attributes
    ----------
    breaks : tuple of float
        Ends of the pieces, one more than pieces.
    lines : tuple of (float, float)
        Slopes and intercepts of the pieces.
    error : float
        Maximum error.
    """

    breaks: tuple[float, ...]
    lines: tuple[tuple[float, float], ...]
    error: float


def minimax(function: "str | Function | Callable[[Any], Any]", low: float, high: float, pieces: int) -> Minimax:
    """Return the best segments of a function on an interval; neighbouring lines need not meet.

    Parameters
    ----------
    function : str, Function or callable
    low, high : float
    pieces : int

    Raises
    ------
    ValueError
        If ``pieces`` is below 1, the interval is empty, or the function is undefined somewhere in it.
    """
    check_int("pieces", pieces, "fit", 1)
    if not low < high:
        raise ValueError(f"the interval from {low:g} to {high:g} is empty")
    row = function_of(function)
    for x in (low, high, 0.0):
        if low <= x <= high and not row.defined(Fraction(x)):
            raise ValueError(f"{row.name} has a pole or no value at {x:g}, inside the interval")

    t = np.linspace(low, high, max(_SAMPLES, _SAMPLES_OF_PIECE * pieces) + 1)
    v = np.array([float(row.at(Fraction(x), _BITS)) for x in t.tolist()])
    breaks, reached, missed = [low, high], best_line(t, v)[2], 0.0
    while pieces > 1 and reached - missed > 1e-7 * reached:
        middle = (missed + reached) / 2
        cover = _cover(t, v, pieces, middle)
        if cover is None:
            missed = middle
        else:
            breaks, reached = cover, middle
    lines = [best_line(*_part(t, v, first, last)) for first, last in itertools.pairwise(breaks)]
    return Minimax(tuple(breaks), tuple(line[:2] for line in lines), max(line[2] for line in lines))


def _part(t: Numbers, v: Numbers, first: float, last: float) -> tuple[Numbers, Numbers]:
    """Return the samples from ``first`` to ``last``, both included."""
    part = np.concatenate([[first], t[(t > first) & (t < last)], [last]])
    return part, np.interp(part, t, v)


def _cover(t: Numbers, v: Numbers, pieces: int, error: float) -> list[float] | None:
    """Return the ends of longest pieces within an error, or None if they do not reach the end."""
    breaks, high = [float(t[0])], float(t[-1])
    for _ in range(pieces):
        first = breaks[-1]
        short, long = first, high
        if best_line(*_part(t, v, first, high))[2] <= error:
            return [*breaks, high]
        while long - short > _NEAR * (high - breaks[0]):
            middle = (short + long) / 2
            short, long = (middle, long) if best_line(*_part(t, v, first, middle))[2] <= error else (short, middle)
        breaks.append(short)
    return None


def best_line(t: Numbers, v: Numbers) -> tuple[float, float, float]:
    """Return slope, intercept and error of the best line through samples."""

    def level(points: tuple[int, ...]) -> float:
        """Return the error of the best line through three samples."""
        first, second, third = points
        slope = (v[third] - v[first]) / (t[third] - t[first])
        return float(abs(v[second] - v[first] - slope * (t[second] - t[first])) / 2)

    points: tuple[int, ...] = (0, len(t) // 2, len(t) - 1)
    for _ in range(_EXCHANGES):
        first, second, third = points
        slope = float((v[third] - v[first]) / (t[third] - t[first]))
        offset = float(v[first] + v[second] - slope * (t[first] + t[second])) / 2
        errors = np.abs(v - slope * t - offset)
        worst = int(np.argmax(errors))
        if worst in points:
            break
        points = max(itertools.combinations(sorted({*points, worst}), 3), key=level)
    return slope, offset, float(errors[worst])
