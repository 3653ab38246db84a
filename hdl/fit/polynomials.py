"""Tables of polynomials with which every result of a function rounds correctly, checked for all numbers of a format.

The coefficients c1 and c2 interpolate the function. The intervals that the results of all numbers must hit (`cells`)
then bound c0; the table is one for which no interval is empty. Of several, the one with the smallest estimate of its
lookup tables and multipliers is taken.
"""

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from mpmath import mp

from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs import FunctionSpec
from halfulp.hdl.specs.polynomials import ANGLE, BINADES, KINDS, LOGARITHM, ODD, POWER, Polynomials
from halfulp.tools.cache import cached_value
from halfulp.tools.digests import code
from halfulp.tools.progress import Bar

from .cells import FAR, ROWS, Cells, Integers, cells_of

Lines = list[tuple[Any, Any]]
"""Coefficients c1 and c2 of polynomials, as numbers of mpmath."""

MORE_BITS = 16
"""Fraction bits of values beside those that the intervals need, at most."""

FARTHEST = 1 << 60
"""Bound of an interval without one."""

MOST_SHIFT = 38
"""Maximum places by which intervals are shifted; wider ones have no bound."""

MOST_SEGMENTS = 8
"""Maximum number of leading bits that select a polynomial."""

NUDGES = tuple(itertools.product((0, 1, -1, 2, -2, 3, -3), (0, 1, -1)))
"""Changes of c1 and c2 that are tried where an interval is empty."""


@dataclass(frozen=True)
class Task:
    """Reduced arguments and the intervals of v.

    Attributes
    ----------
    table : Polynomials
        Table without rows.
    index, rest : array of int64
        Index of the polynomial, and t.
    low, high : array of int64
        Bounds on v.
    count : int
        Number of polynomials.
    function : callable
        Value that v approximates in fixed point, for an index and at t / 2^rest in [0, 1).
    """

    table: Polynomials
    index: Integers
    rest: Integers
    low: Integers
    high: Integers
    count: int
    function: Callable[[int, Any], Any]


def _bounds(cells: Cells, shift: Integers) -> tuple[Integers, Integers] | None:
    """Return the least and the most of the integers in intervals, in units of 2^-shift; None if one is too short."""
    free = cells.free | ((cells.floor == 0) & ~cells.exact & (shift > MOST_SHIFT))
    if np.any(~free & (shift < 0) & ~(cells.exact & (cells.floor == 0))):
        return None
    scale = np.int64(1) << np.clip(shift, 0, MOST_SHIFT)
    low = np.where(free, 0, cells.floor) * scale
    return np.where(free, 1, low), np.where(free, FARTHEST, np.where(cells.exact, low, low + scale - 1))


def _split(argument: Integers, width: int, segments: int) -> tuple[Integers, Integers]:
    """Return the leading bits of an argument and the others."""
    return argument >> (width - segments), argument & ((1 << (width - segments)) - 1)


def _power(cells: Cells, spec: FunctionSpec, value: int, segments: int) -> Task | None:
    """Return the task of ``2^(x * factor)``."""
    fraction = value + 2
    places = fraction + 4 if spec.function == "exp" else 0
    with mp.workprec(200):
        factor = int(mp.nint(mp.ldexp(1 / mp.ln2, places))) if spec.function == "exp" else 1
    table = Polynomials(POWER, cells.precision, segments, 0, 0, value, (), factor, places, fraction, high=_limit(spec))
    # Farther numbers overflow or are tiny.
    near = cells.where((cells.exponent < table.high) & ~cells.free)
    down = np.maximum(places - fraction - (near.exponent - near.precision + 1), -fraction - table.high)
    product = near.significand * factor
    shifted = np.where(down >= 0, product >> np.clip(down, 0, 62), product << np.clip(-down, 0, 62))
    lost = (shifted << np.clip(down, 0, 62) != product) & (down > 0)
    scaled = np.where(near.negative, -(shifted + lost), shifted)
    found = _bounds(near, near.unit - (scaled >> fraction) + value)
    if found is None:
        return None
    index, rest = _split(scaled & ((1 << fraction) - 1), fraction, segments)
    # v begins with a one, also where the polynomials begin and end.
    count, last = 1 << segments, (1 << (fraction - segments)) - 1
    all_of = np.arange(count)
    low, high = np.maximum(found[0], 1 << value), np.minimum(found[1], (2 << value) - 1)
    ends = np.full(2 * count, 1 << value), np.full(2 * count, (2 << value) - 1)
    # The value at zero is exact.
    ends[1][0] = 1 << value
    return Task(
        table,
        np.concatenate([index, all_of, all_of]),
        np.concatenate([rest, 0 * all_of, 0 * all_of + last]),
        np.concatenate([low, ends[0]]),
        np.concatenate([high, ends[1]]),
        count,
        lambda place, u: mp.power(2, (place + u) / count),
    )


def _limit(spec: FunctionSpec) -> int:
    """Return an exponent from which on numbers have powers of two beyond the range, or far below the smallest."""
    o = spec.result
    sizes = floor_log2(max(o.largest, -o.lowest)) + 4, spec.unit_rounding.places + 4 - o.quantum
    return max(*sizes, 4).bit_length() + 1


def _logarithm(cells: Cells, spec: FunctionSpec, value: int, segments: int) -> Task | None:
    """Return the task of ``e * factor + log(m)``."""
    natural = spec.function == "log"
    with mp.workprec(200):
        factor = int(mp.nint(mp.ldexp(mp.ln2, value))) if natural else 1 << value
        scale = mp.mpf(1) if natural else 1 / mp.ln2
    found = _bounds(cells, cells.unit + value)
    if found is None:
        return None
    # The floor of a negative number is its truncation, less one.
    inexact = (~cells.exact).astype(np.int64)
    low = np.where(cells.below, -found[1] - inexact, found[0])
    high = np.where(cells.below, -found[0] - inexact, found[1])
    fraction = cells.significand - (1 << (cells.precision - 1))
    index, rest = _split(fraction, cells.precision - 1, segments)
    table = Polynomials(LOGARITHM, cells.precision, segments, 0, 0, value, (), factor)
    count = 1 << segments
    moved = cells.exponent * factor
    return Task(table, index, rest, low - moved, high - moved, count, lambda place, u: scale * mp.log1p((place + u) / count))


def _angle(cells: Cells, spec: FunctionSpec, value: int, segments: int) -> Task | None:
    """Return the task of ``sin(pi / 2 * f)`` in the quadrants of an angle."""
    fraction, cosine = value + 2, spec.function == "cos"
    # Smaller numbers are just above their sines, and 1 just above their cosines.
    first = -(max(cells.precision, spec.window) // 2 + 1)
    near = cells.where(cells.exponent >= first)
    multiples = []
    with mp.workprec(int(cells.exponent.max()) + fraction + 200):
        for exponent in range(first, int(cells.exponent.max()) + 1):
            multiple = mp.ldexp(2 / mp.pi, exponent - cells.precision + 1 + fraction)
            multiples.append(int(mp.nint(multiple)) & ((4 << fraction) - 1))
    turned = near.significand * np.array(multiples, dtype=np.int64)[near.exponent - first]
    quadrant = (turned >> fraction) + cosine
    inverted = np.where(quadrant & 1 == 1, ~turned, turned) & ((1 << fraction) - 1)
    found = _bounds(near, near.unit + value)
    if found is None or np.any((quadrant & 2 == 2) != near.below):
        return None
    index, rest = _split(inverted, fraction, segments)
    table = Polynomials(
        ANGLE, cells.precision, segments, 0, 0, value, (), fraction=fraction, low=first, multiples=tuple(multiples)
    )
    count = 1 << segments
    return Task(
        table,
        index,
        rest,
        np.maximum(found[0], 1),
        np.minimum(found[1], (1 << value) - 1),
        count,
        lambda place, u: mp.sin(mp.pi / 2 * (place + u) / count),
    )


def _binades(cells: Cells, spec: FunctionSpec, value: int, segments: int) -> Task | None:
    """Return the task of a function with polynomials for each binade of its argument."""
    low, high, function = *_ends(cells, spec), ROWS[spec.function]
    clusters = high - low + 2
    bits = (clusters - 1).bit_length()
    cluster = np.clip(cells.exponent, low - 1, high) - (low - 1)
    fraction = cells.significand - (1 << (cells.precision - 1))
    leading, rest = _split(fraction, cells.precision - 1, segments)
    index = (cells.negative.astype(np.int64) << bits | cluster) << segments | leading
    count = (1 if spec.function in ODD else 2) << (bits + segments)
    linear = _relative(spec.function, cells.negative, cluster == 0) & ((cluster == 0) | (cluster == clusters - 1))
    tops = _tops(cells) - np.where(linear, cells.exponent, 0)
    exponents = np.full(count, -FARTHEST)
    np.maximum.at(exponents, index, tops)
    used = exponents > -FARTHEST
    relative = np.zeros(count, bool)
    relative[index] = linear
    found = _bounds(cells, cells.unit - np.where(linear, cells.exponent, 0) - exponents[index] + value)
    if found is None:
        return None
    rows = tuple((int(exponent), bool(added)) for exponent, added in zip(np.where(used, exponents, 0), relative, strict=True))
    table = Polynomials(BINADES, cells.precision, segments, 0, 0, value, (), low=low, high=high, exponents=rows)

    def at(place: int, u: Any) -> Any:
        leading, place_of = place & ((1 << segments) - 1), place >> segments
        negative, within = place_of >> bits, place_of & ((1 << bits) - 1)
        exponent = min(max(within + low - 1, low - 1), high)
        x = mp.ldexp(1 + (leading + u) / (1 << segments), exponent)
        moved = exponent if rows[place][1] else 0
        return mp.ldexp(abs(function.value(-x if negative else x)), -rows[place][0] - moved)

    return Task(table, index, rest, np.maximum(found[0], 1), np.minimum(found[1], (2 << value) - 1), count, at)


def _relative(name: str, negative: Any, small: Any) -> Any:
    """Return true for numbers near zero or far from it whose value is nearly proportional to them."""
    if name == "sigmoid":
        return np.zeros_like(small)
    return small | (np.isin(name, ("gelu", "silu")) & ~negative)


@functools.lru_cache(maxsize=4)
def _tops(cells: Cells) -> Integers:
    """Return the exponents of results; those of tiny ones are the largest possible."""
    return np.array([unit - 1 + floor.bit_length() for floor, unit in zip(cells.floor.tolist(), cells.unit.tolist(), strict=True)])


@functools.lru_cache(maxsize=4)
def _ends(cells: Cells, spec: FunctionSpec) -> tuple[int, int]:
    """Return the exponents below which, and from which on, numbers of all exponents share polynomials.

    There the value is next to a constant or to a multiple of the argument, so that numbers of one sign and significand
    have results with a common interval.
    """
    exponents = range(int(cells.exponent.min()), int(cells.exponent.max()) + 1)

    def shared(order: Any, small: bool) -> int:
        common: dict[tuple[bool, int], tuple[Fraction, Fraction]] = {}
        linear = _relative(spec.function, cells.negative, np.full(len(cells.negative), small))
        units, floors, signs = cells.unit.tolist(), cells.floor.tolist(), cells.negative.tolist()
        for exponent in order:
            for place in np.flatnonzero(cells.exponent == exponent).tolist():
                unit = Fraction(2) ** (units[place] - (exponent if linear[place] else 0))
                key = signs[place], int(cells.significand[place]) if linear[place] else 0
                known = common.get(key, (Fraction(0), Fraction(2) ** (2 * FAR)))
                low, high = max(known[0], floors[place] * unit), min(known[1], (floors[place] + 1) * unit)
                # More than this is lost to the approximation.
                if high - low < unit / 4:
                    return exponent
                common[key] = low, high
        return order[-1]

    low = shared(exponents, True)
    return low, max(shared(exponents[::-1], False) + 1, low)


TASKS: dict[str, Callable[[Cells, FunctionSpec, int, int], Task | None]] = {
    POWER: _power,
    LOGARITHM: _logarithm,
    ANGLE: _angle,
    BINADES: _binades,
}


def fitted(task: Task, degree: int, known: dict[tuple[int, int], Lines]) -> Polynomials | None:
    """Return a table whose v are in all intervals, with polynomials of a degree; None if the search finds none.

    ``known`` has the interpolating polynomials by degree and number of segments.
    """
    table = task.table
    width = table.precision - 1 if table.reduction in (LOGARITHM, BINADES) else table.fraction
    rest = width - table.segments
    inner = min(rest, max(table.value - 2 * table.segments + 2, 1)) if degree == 2 else 0
    used = np.unique(task.index)
    key = degree, table.segments
    if key not in known and rest:
        known[key] = _interpolated(task, used, degree)
    lines = known[key] if rest else [(0, 0)] * len(used)
    first = [np.array([int(mp.nint(mp.ldexp(line[at], table.value))) for line in lines]) for at in (0, 1)]
    order = np.argsort(task.index, kind="stable")
    index, t, low, high = (column[order] for column in (task.index, task.rest, task.low, task.high))
    starts = np.searchsorted(index, used)
    place = np.searchsorted(used, index)
    c0, c1, c2 = np.zeros(len(used), np.int64), *first
    done = np.zeros(len(used), bool)
    for slope, bend in NUDGES:
        if bend and degree < 2:
            continue
        trial = first[0] + slope, first[1] + bend
        moved = ((trial[0][place] + ((trial[1][place] * (t >> (rest - inner))) >> inner)) * t) >> rest
        least = np.maximum.reduceat(low - moved, starts)
        most = np.minimum.reduceat(high - moved, starts)
        now = ~done & (least <= most)
        c0[now], c1[now], c2[now] = ((least + most) >> 1)[now], trial[0][now], trial[1][now]
        done |= now
        if done.all():
            rows = np.zeros((task.count, 3), np.int64)
            rows[used] = np.stack([c0, c1, c2], 1)
            return replace(table, rest=rest, inner=inner, rows=tuple(map(tuple, rows.tolist())))
    return None


def _interpolated(task: Task, used: Integers, degree: int) -> Lines:
    """Return c1 and c2 of the polynomials that interpolate the values at the nodes of Chebyshev, as real numbers."""
    with mp.workprec(120):
        nodes = [(1 + mp.cos(mp.pi * (2 * k + 1) / (2 * degree + 2))) / 2 for k in range(degree + 1)]
        lines = []
        for place in used.tolist():
            values = [task.function(place, node) for node in nodes]
            slope = (values[1] - values[0]) / (nodes[1] - nodes[0])
            bend = mp.mpf(0)
            if degree == 2:
                bend = ((values[2] - values[1]) / (nodes[2] - nodes[1]) - slope) / (nodes[2] - nodes[0])
                slope -= bend * (nodes[0] + nodes[1])
            lines.append((slope, bend))
    return lines


def cost(table: Polynomials) -> float:
    """Estimate the LUTs of tables and multipliers."""
    columns = list(zip(*table.rows, strict=True))
    if table.exponents:
        columns.append([exponent for exponent, _ in table.exponents])
    widths = [max(max(column) - min(min(column), 0), 1).bit_length() for column in columns]
    multipliers = widths[1] * table.rest / 2 + widths[2] * table.inner / 2
    return sum(widths) * max(len(table.rows) / 64, 1) + multipliers


def fit(spec: FunctionSpec) -> Polynomials:
    """Return the table of a description.

    Raises
    ------
    ValueError
        If no table within the limits of the search is correct.
    """
    cells = cells_of(spec)
    task_of = TASKS[KINDS[spec.function]]
    known: dict[tuple[int, int], Lines] = {}
    best: tuple[float, Polynomials] | None = None
    for degree, segments in itertools.product((1, 2), range(1, MOST_SEGMENTS + 1)):
        for value in range(spec.window, spec.window + MORE_BITS):
            if best is not None and value << segments > 64 * best[0]:
                break
            task = task_of(cells, spec, value, segments) if segments < cells.precision else None
            table = None if task is None else fitted(task, degree, known)
            if table is not None:
                best = min(filter(None, (best, (cost(table), table))), key=lambda pair: pair[0])
                break
    if best is None:
        raise ValueError(f"no table of polynomials of up to {1 << MOST_SEGMENTS} segments is correct for {spec}")
    return best[1]


@functools.lru_cache(maxsize=64)
def table_of(spec: FunctionSpec) -> Polynomials:
    """Return the table of a description from the cache, or make it."""
    # The result bits that the table decides depend on these fields only.
    parts = spec.function, spec.a, spec.o, spec.unit_rounding.places

    def make() -> str:
        with Bar(f"fitting polynomials to {spec.function} from {spec.a} to {spec.o}; this is done once"):
            return fit(spec).text

    text = cached_value("polynomials", (code("halfulp.hdl.fit.polynomials"), *parts), make, name=spec.function)
    return Polynomials.read(text)
