"""Corner cases of functions of line segments: breakpoints, zeros, and the ends of the result range."""

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

import numpy as np

from halfulp.hdl.formats import RD
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs.pieces import Piece
from halfulp.hdl.specs.segments import Segments

from .fields import Codes, Grid

POWERS = 48
"""Number of powers of two for argument reduction, spread evenly; those at the ends of the result range are added."""

REACH = 2
"""Distance of codes around a corner that are corner cases too."""


@lru_cache(maxsize=16)
def corner_arguments_of(table: Segments) -> Codes:
    """Return argument codes at and next to each breakpoint, in both signs."""
    fmt = table.fmt
    numbers = {number for number in _numbers(table) if fmt.lowest <= number <= fmt.largest}
    corners = {fmt.encode(number, RD) for number in numbers | {Fraction(0), fmt.smallest}}
    codes = np.array(sorted(corners), dtype=np.uint64)
    grid = Grid.of(fmt)
    codes = np.unique(np.concatenate([codes, grid.negated(codes)])) if grid.negatives else codes
    steps = np.arange(-REACH, REACH + 1)
    return np.unique(grid.neighbour(np.repeat(codes, len(steps)), np.tile(steps, len(codes))))


def _numbers(table: Segments) -> Iterator[Fraction]:
    """Yield the arguments as real numbers, which the format need not represent."""
    if table.reduction is None:
        for negative in (False, True):
            side = table.unfolded(negative)
            sign = -1 if negative and table.symmetry is not None else 1
            yield from (sign * place for place in _corner_arguments(table, side, sign))
        return
    places = [*(piece.start for piece in table.pieces), *_roots(table.pieces, 1, Fraction(0))]
    for power in _powers(table):
        scale = Fraction(2) ** power
        for place in places:
            yield (power + place) / table.factor if table.reduction == "exp2" else place * scale


def _corner_arguments(table: Segments, side: tuple[Piece, ...], sign: int) -> Iterator[Fraction]:
    """Yield the breakpoints and zeros of one side, and the arguments at the ends of the result range."""
    yield from (piece.start for piece in side)
    for value in (Fraction(0), table.out.largest, table.out.lowest):
        yield from _roots(side, sign, value)


def _roots(side: tuple[Piece, ...], sign: int, value: Fraction) -> Iterator[Fraction]:
    """Yield the arguments where the lines have this value; with sign -1, of the mirrored lines."""
    # The first line extends below its start.
    ends = pairwise([None, *(piece.start for piece in side[1:]), None])
    for piece, (start, end) in zip(side, ends, strict=True):
        if piece.slope:
            place = sign * (value - piece.intercept) / piece.slope
            if (start is None or place >= start) and (end is None or place < end):
                yield place


def _powers(table: Segments) -> list[int]:
    """Return the powers of two of the argument reduction."""
    fmt, out = table.fmt, table.out
    if table.reduction == "exp2":
        ends = [floor_log2(out.smallest) - 1, floor_log2(out.largest)]
        spread = np.linspace(ends[0] - 1, ends[1] + 1, POWERS)
        return sorted({round(power) for power in spread} | {end + step for end in ends for step in (-1, 0, 1)})
    powers = {round(power) for power in np.linspace(fmt.quantum, floor_log2(fmt.largest), POWERS)} | {-1, 0, 1}
    # The reduction of the inverse square root removes even powers.
    return sorted({power & ~1 for power in powers}) if table.reduction == "rsqrt" else sorted(powers)
