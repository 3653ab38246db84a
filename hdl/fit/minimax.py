"""Line segments of a real function on an interval, with the smallest largest error, before anything is rounded.

On an interval where the function is convex or concave, the best line has the slope of the chord, and its error is half
of the largest distance to the chord. Elsewhere it is found by exchange: the error has the same size, and opposite
signs, at three points (Chebyshev; Remez, 1934). An interval's error does not fall when the interval grows, so that
pieces of equal errors are the best there are: of others that cover the same interval, one would be no shorter than one
of these (Lawson, 1964).
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from mpmath import mp

from halfulp.hdl.formats.checks import check_int

from .functions import Function, function_of

Real = Callable[[float], float]

_GOLDEN = (math.sqrt(5) - 1) / 2
_SEARCHES, _EXCHANGES, _HALVINGS = 26, 30, 46
_NEAR, _BITS = 1e-8, 64
_SCANNED = 512  # parts of an interval in which a callable's bends are looked for


@dataclass(frozen=True)
class Minimax:
    """Segments of smallest largest error.

    Attributes
    ----------
    breaks : tuple of float
        Ends of the pieces, one more than there are pieces.
    lines : tuple of (float, float)
        Slopes and intercepts.
    error : float
        The largest.
    """

    breaks: tuple[float, ...]
    lines: tuple[tuple[float, float], ...]
    error: float


def minimax(function: "str | Function | Callable[[Any], Any]", low: float, high: float, pieces: int) -> Minimax:
    """The best segments of a function on an interval; neighbours need not meet.

    Parameters
    ----------
    function : str, Function or callable
    low, high : float
    pieces : int

    Raises
    ------
    ValueError
        If there are no pieces, the interval is empty, or the function has no value somewhere in it.
    """
    check_int("pieces", pieces, "fit", 1)
    if not low < high:
        raise ValueError(f"the interval from {low:g} to {high:g} is empty")
    row = function_of(function)
    for x in (low, high, 0.0):
        if low <= x <= high and not row.defined(Fraction(x)):
            raise ValueError(f"{row.name} has a pole or no value at {x:g}, inside the interval")

    def real(x: float) -> float:
        return float(row.at(Fraction(x), _BITS))

    with mp.workprec(_BITS):
        bends = row.bends if row.bends is not None else _bends(real, low, high)
        return _balanced(real, tuple(bend for bend in bends if low < bend < high), low, high, pieces)


def _balanced(real: Real, bends: tuple[float, ...], low: float, high: float, pieces: int) -> Minimax:
    """Pieces of equal errors, by halving the error between one that is too small and one that is not."""
    reached = best_line(real, bends, low, high)[2]
    missed = 0.0
    breaks = [low, high]
    for _ in range(_HALVINGS if pieces > 1 else 0):
        if reached - missed <= 1e-6 * reached:
            break
        middle = (missed + reached) / 2
        found = _cover(real, bends, low, high, pieces, middle)
        if found is None:
            missed = middle
        else:
            breaks, reached = found, middle
    lines = [best_line(real, bends, first, last) for first, last in itertools.pairwise(breaks)]
    return Minimax(tuple(breaks), tuple(line[:2] for line in lines), max(line[2] for line in lines))


def _cover(
    real: Real, bends: tuple[float, ...], low: float, high: float, pieces: int, error: float
) -> list[float] | None:
    """Ends of pieces that are as long as they can be for an error, or None if they do not reach the end."""
    breaks = [low]
    width = (high - low) / pieces
    for _ in range(pieces):
        first = breaks[-1]
        if high - first <= _NEAR * (high - low) or best_line(real, bends, first, high)[2] <= error:
            return [*breaks, high]
        short, long = first, high
        guess = min(first + width, (first + high) / 2)
        # Errors grow with about the square of the length: that finds the end in few steps.
        for _ in range(_HALVINGS):
            found = best_line(real, bends, first, guess)[2]
            if found <= error:
                short = guess
            else:
                long = guess
            if long - short <= _NEAR * (high - low):
                break
            ratio = math.sqrt(error / found) if found > 0 else 2.0
            guess = first + (guess - first) * ratio * (1 - 1e-9 if found > error else 1 + 1e-9)
            if not short < guess < long:
                guess = (short + long) / 2
        breaks.append(short)
        width = max(short - first, (high - low) / 1024)
    return None


def best_line(real: Real, bends: tuple[float, ...], low: float, high: float) -> tuple[float, float, float]:
    """Slope, intercept and error of the best line on an interval."""
    inside = [bend for bend in bends if low < bend < high]
    ends = real(low), real(high)
    slope = (ends[1] - ends[0]) / (high - low)
    if not inside:
        # Convex or concave: the tangent of the chord's slope is twice the error away from the chord.
        offset = ends[0] - slope * low
        _, gap = _farthest(real, slope, offset, low, high)
        return slope, offset + gap / 2, abs(gap) / 2
    return _exchanged(real, [low, *inside, high], slope)


def _exchanged(real: Real, edges: list[float], slope: float) -> tuple[float, float, float]:
    """The same where the function bends both ways."""
    low, high = edges[0], edges[-1]
    middle = (low + high) / 2
    points = [low, middle, high]
    for _ in range(_EXCHANGES):
        first, second, third = points
        values = [real(point) for point in points]
        slope = (values[2] - values[0]) / (third - first)
        offset = (values[0] + values[1] - slope * (first + second)) / 2
        level = abs(values[0] - slope * first - offset)
        extremes = [low, high]
        for left, right in itertools.pairwise(edges):
            extremes.append(_farthest(real, slope, offset, left, right)[0])
            extremes.append(left)
        errors = {x: real(x) - slope * x - offset for x in sorted(extremes)}
        worst = max(errors, key=lambda x: abs(errors[x]))
        if abs(errors[worst]) <= level * (1 + 1e-7) + 1e-15 * max(map(abs, values)):
            break
        points = _alternating(errors, points, real, slope, offset, worst)
    return slope, offset, max(abs(error) for error in errors.values())


def _alternating(
    errors: dict[float, float], points: list[float], real: Real, slope: float, offset: float, worst: float
) -> list[float]:
    """The three points with the worst one among them, so that signs still alternate."""
    signs = [real(point) - slope * point - offset > 0 for point in points]
    sign = errors[worst] > 0
    if worst < points[0]:
        return [worst, *points[1:]] if sign == signs[0] else [worst, points[0], points[1]]
    if worst > points[2]:
        return [*points[:2], worst] if sign == signs[2] else [points[1], points[2], worst]
    place = 0 if worst < points[1] else 1
    changed = list(points)
    changed[place if sign == signs[place] else place + 1] = worst
    return changed


def _farthest(real: Real, slope: float, offset: float, low: float, high: float) -> tuple[float, float]:
    """Place at which a convex or concave function is farthest from a line between two points, and the distance.

    What is looked for is the one place inside where the distance from the chord's line turns.
    """

    def gap(x: float) -> float:
        return real(x) - slope * x - offset

    chord = (real(high) - real(low)) / (high - low)
    start, first, last = real(low) - chord * low, low, high
    side = 1.0 if real((low + high) / 2) - chord * (low + high) / 2 >= start else -1.0
    inner, outer = last - _GOLDEN * (last - first), first + _GOLDEN * (last - first)
    at_inner, at_outer = side * gap(inner), side * gap(outer)
    for _ in range(_SEARCHES):
        if at_inner > at_outer:
            last, outer, at_outer = outer, inner, at_inner
            inner = last - _GOLDEN * (last - first)
            at_inner = side * gap(inner)
        else:
            first, inner, at_inner = inner, outer, at_outer
            outer = first + _GOLDEN * (last - first)
            at_outer = side * gap(outer)
        if last - first <= 1e-5 * (high - low):
            break
    x = (first + last) / 2
    return x, gap(x)


def _bends(real: Real, low: float, high: float) -> tuple[float, ...]:
    """Places at which the second difference of a callable changes its sign; finer bends than the scan are not seen."""
    step = (high - low) / _SCANNED
    values = [real(low + step * place) for place in range(_SCANNED + 1)]
    plot_curves = [a - 2 * b + c for a, b, c in zip(values, values[1:], values[2:], strict=False)]
    noise = 1e-13 * max(map(abs, values), default=0.0)
    signs = [(place, curve > 0) for place, curve in enumerate(plot_curves) if abs(curve) > noise]
    changes = []
    for (_, before), (place, after) in itertools.pairwise(signs):
        if before != after:
            changes.append(low + step * (place + 0.5))
    return tuple(changes)
