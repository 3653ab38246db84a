"""Segmentation with the smallest maximum error for given coefficient formats.

A given error is decided exactly: if a piece can be longer within the error, a shorter one is never better, so greedy
longest pieces are the fewest. The smallest error is found by bisection between an attained and an unattained one, and
the search ends when no smaller error is attained.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from halfulp.hdl.specs.pwl import MOST_PIECES

from .grid import Grid
from .lines import Band, Line, sums
from .points import Points

Parts = list[tuple[int, Line]]
"""Pieces as pairs of a breakpoint index and a line."""

_LOOSE, _LOOSER = 2.0**-20, 2.0**-8
_STEPS = 64
_LARGEST = 2.0**80


Tail = tuple[float, float | None]
"""Slope of a tail, and its intercept, or None if any is allowed."""


@dataclass(frozen=True)
class TailLines:
    """Candidates of the first and last segment outside the fitted pieces: slopes, each with its intercept if known."""

    left: tuple[Tail, ...] = ()
    right: tuple[Tail, ...] = ()


@dataclass(frozen=True, eq=False)
class Segmentation:
    """Pieces and their maximum error.

    Attributes
    ----------
    parts : list of (int, (float, float))
        Breakpoints and lines, tails included.
    inner : int
        Number of pieces without tails.
    error : float
    """

    parts: Parts
    inner: int
    error: float


@dataclass(frozen=True, eq=False)
class Task:
    """Segmentation problem.

    Attributes
    ----------
    points : Points
    slopes, intercepts : Grid
    tails : TailLines
    breakpoints : str
    pieces : int, optional
        Maximum number of pieces; for uniform breakpoints the exact number.
    grain : int
        Number of lowest argument bits, as an integer, that are zero in all breakpoints.
    """

    points: Points
    slopes: Grid
    intercepts: Grid
    tails: TailLines
    breakpoints: str
    pieces: int | None
    grain: int = 0

    def coarser(self, grain: int) -> "Task":
        """Return the problem with breakpoints restricted to multiples of 2^grain."""
        return replace(self, points=self.points.coarser(grain), grain=grain)

    # For one error ---------------------------------------------------------------------------------------------

    def within(self, error: float) -> Segmentation | None:
        """Return the fewest pieces within an error; None if more than allowed."""
        points = self.points
        band = points.band(error)
        if band.empty:
            return None
        ends = points.ends
        last, right = self._tail(band, self.tails.right, from_right=True)
        first, left = self._tail(band.part(0, ends[last]), self.tails.left, from_right=False) if last else (0, None)
        inner = self._inner(band, first, last)
        if inner is None:
            return None
        parts = [*([(0, left)] if left else []), *inner, *([(last, right)] if right else [])]
        return Segmentation(parts, len(inner), self.error(parts))

    def _tail(self, band: Band, tails: tuple[Tail, ...], *, from_right: bool) -> tuple[int, Line | None]:
        """Return the longest tail of the candidates: the breakpoint at its inner end, and its line."""
        ends, count = self.points.ends, len(self.points.breakpoints)
        if not from_right:
            count = ends.index(len(band.t))
        best: tuple[int, Line | None] = (count if from_right else 0, None)
        for slope, intercept in tails:
            intercepts = self.intercepts if intercept is None else self.intercepts.only(intercept)
            # Bisection between the empty tail and all points.
            short, long, line = 0, count, None
            while short < long:
                length = (short + long + 1) // 2
                part = slice(ends[count - length], len(band.t)) if from_right else slice(0, ends[length])
                constant = band.part(part.start, part.stop).intercept(slope, intercepts)
                if constant is None:
                    long = length - 1
                else:
                    short, line = length, (slope, constant)
            longest = (count - best[0]) if from_right else best[0]
            if line is not None and short > longest:
                best = (count - short if from_right else short), line
        return best

    def _inner(self, band: Band, first: int, last: int) -> Parts | None:
        """Return the pieces between two breakpoints."""
        if first == last:
            return []
        if self.breakpoints == "free":
            return self._greedy(band, first, last)
        if self.breakpoints == "uniform":
            return self._lines(band, [*self._even(first, last), last])
        return self._blocks(band, first, last)

    def _line(self, band: Band, first: int, last: int) -> Line | None:
        ends = self.points.ends
        return band.part(ends[first], ends[last]).line(self.slopes, self.intercepts)

    def _lines(self, band: Band, breakpoints: list[int]) -> Parts | None:
        """Return one line per piece; None if a piece has none."""
        parts: Parts = []
        for first, last in itertools.pairwise(breakpoints):
            line = self._line(band, first, last)
            if line is None:
                return None
            parts.append((first, line))
        return parts

    def _greedy(self, band: Band, first: int, last: int) -> Parts | None:
        """Return pieces that are each as long as possible; None if more than allowed."""
        parts: Parts = []
        length = max((last - first) // (self.pieces or 8), 1)
        while first < last:
            if len(parts) == self.pieces:
                return None
            reach, line = self._longest_piece(band, first, last, length)
            if line is None:
                return None
            parts.append((first, line))
            length, first = reach - first, reach
        return parts

    def _longest_piece(self, band: Band, first: int, last: int, guess: int) -> tuple[int, Line | None]:
        """Return the end of the longest piece, and its line."""
        short, line, step = first, None, min(guess, last - first)
        long = last + 1
        # Double the length until a piece fails, then bisect.
        while long - short > 1:
            reach = min(short + step, last) if long > last else (short + long) // 2
            piece = self._line(band, first, reach)
            if piece is None:
                long = reach
            else:
                short, line = reach, piece
                step *= 2
                if short == last:
                    break
        return short, line

    def _even(self, first: int, last: int) -> Iterator[int]:
        """Yield breakpoints at equal distances, rounded up to arguments."""
        t, breakpoints = self.points.t, self.points.breakpoints
        start = float(t[breakpoints[first]])
        end = float(t[breakpoints[last]]) if last < len(breakpoints) else float(t[-1])
        assert self.pieces is not None
        places = start + (end - start) * np.arange(self.pieces) / self.pieces
        yield from map(int, np.unique(np.clip(np.searchsorted(t[breakpoints], places), first, last - 1)))

    def _blocks(self, band: Band, first: int, last: int) -> Parts | None:
        """Return the fewest pieces that each contain all arguments with common leading bits."""
        addresses = self.points.addresses
        parts: Parts = []

        def split(base: int, bits: int) -> bool:
            low, high = np.searchsorted(addresses, [base, base + (1 << bits)])
            low, high = max(int(low), first), min(int(high), last)
            if low >= high:
                return True
            line = self._line(band, low, high)
            if line is not None:
                parts.append((low, line))
                return self.pieces is None or len(parts) <= self.pieces
            return bits > 0 and split(base, bits - 1) and split(base + (1 << (bits - 1)), bits - 1)

        return parts if split(0, int(addresses[-1]).bit_length()) else None

    # Of errors -------------------------------------------------------------------------------------------------

    def error(self, parts: Parts) -> float:
        """Return the maximum error of pieces."""
        return max(
            float(np.max(errors_of(self.points.slice(first, last), line))) for first, last, line in self.spans(parts)
        )

    def spans(self, parts: Parts) -> Iterator[tuple[int, int, Line]]:
        """Yield first point, end and line of each piece."""
        ends = self.points.ends
        stops = [place for place, _ in parts[1:]] + [len(ends) - 1]
        for (place, line), stop in zip(parts, stops, strict=True):
            yield ends[place], ends[stop], line

    def best(self, *, nearly: bool = False) -> Segmentation:
        """Return the pieces with the smallest maximum error; with ``nearly``, within a hundredth of it.

        Raises
        ------
        ValueError
            If no pieces with these coefficients have a finite error.
        """
        low, high = self.points.least_error(), max(self.points.least_error(), 2.0**-30)
        if (best := self.within(low)) is not None:
            return best
        while (best := self.within(high)) is None:
            low, high = high, 4 * high
            if high > _LARGEST:
                raise ValueError("no finite error is possible with these coefficients and pieces")
        while best.error - low > (_LOOSER if nearly else _LOOSE) * best.error:
            middle = (low + best.error) / 2
            nearer = self.within(middle)
            if nearer is None:
                low = middle
            else:
                best = nearer
        if self.breakpoints == "uniform":
            best = self._scanned(best)
        while not nearly and (nearer := self.within(float(np.nextafter(best.error, 0.0)))) is not None:
            best = nearer
        return best

    def _scanned(self, attained: Segmentation) -> Segmentation:
        """Search for a smaller error at many values below one that is attained.

        Equal distances depend on the start of the tail, so a smaller error may be possible although a larger one is
        not.
        """
        for error in np.geomspace(max(self.points.least_error(), attained.error / 2), attained.error, _STEPS)[:-1]:
            nearer = self.within(float(error))
            if nearer is not None and nearer.error < attained.error:
                return nearer
        return attained

    def meets(self, error: float) -> Segmentation | None:
        """Return the fewest pieces within an error; None if more than a fit may have."""
        segmentation = self.within(error)
        return None if segmentation is None or segmentation.inner > MOST_PIECES else segmentation

    def fewest_pieces(self, error: float) -> Segmentation:
        """Return the fewest pieces within an error.

        Raises
        ------
        ValueError
            If there are none.
        """
        if (segmentation := self.meets(error)) is None:
            most = self.pieces or MOST_PIECES
            least = replace(self, pieces=most).best(nearly=True).error
            raise ValueError(
                f"an error of {error:.6g} is not possible with {most} piece{'s' if most != 1 else ''}, whose smallest "
                f"error is about {least * (1 + _LOOSER):.4g}"
            )
        return segmentation

    def polished(self, segmentation: Segmentation) -> Segmentation:
        """Minimise the error of each piece on its own."""
        parts: Parts = []
        for (place, _), (first, last, line) in zip(segmentation.parts, self.spans(segmentation.parts), strict=True):
            left, right = place == 0, last == len(self.points)
            tails = (*(self.tails.left if left else ()), *(self.tails.right if right else ()))
            asymptote = any(line == tail for tail in tails)
            keep_slope = any(line[0] == slope for slope, _ in tails)
            parts.append((place, line if asymptote else self._minimised(first, last, line, keep_slope=keep_slope)))
        return Segmentation(parts, segmentation.inner, self.error(parts))

    def _minimised(self, first: int, last: int, line: Line, *, keep_slope: bool) -> Line:
        """Return the line of the smallest error on some points, at least as good as the given one."""
        points = self.points.slice(first, last)
        low, high = points.least_error(), float(np.max(errors_of(points, line)))
        slopes = Grid(line[0], line[0], listed=np.array([line[0]])) if keep_slope else self.slopes
        while high - low > _LOOSE * high:
            middle = (low + high) / 2
            nearer = points.band(middle).line(slopes, self.intercepts)
            if nearer is None:
                low = middle
            else:
                line, high = nearer, float(np.max(errors_of(points, nearer)))
        return line


def errors_of(points: Points, line: Line) -> Any:
    """Return the errors of a line at points."""
    return points.errors(points.results(*sums(line[0], points.t, line[1])))
