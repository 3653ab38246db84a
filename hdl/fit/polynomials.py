"""Tables of polynomials with which every result of a function rounds correctly, checked for all numbers of a format.

The coefficients c1 and c2 interpolate the function. The intervals that the results of all numbers must hit (`cells`)
then bound c0; the table is one for which no interval is empty. Of several, the one with the smallest estimate of its
lookup tables and multipliers is taken.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from mpmath import mp

from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs import FunctionSpec
from halfulp.hdl.specs.polynomials import ANGLE, BINADES, KINDS, LOGARITHM, POWER, Polynomials
from halfulp.tools.cache import cached_value
from halfulp.tools.digests import code
from halfulp.tools.progress import Bar

from .cells import FAR, ROWS, Cells, Integers, cells_of
from .functions import Function

Lines = list[tuple[Any, Any]]
"""Coefficients c1 and c2 of polynomials, as numbers of mpmath."""

Found = dict[int, tuple[int, list[Any], list[Any]]]
"""Number of leading bits, coefficients and exponents of v of each group."""

MORE_BITS = 16
"""Fraction bits of values beside those that the intervals need, at most."""

ANGLE_BITS = 6, 26
"""The same for angles, from the fewest to the most."""

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


def _bounds(cells: Cells, shift: Integers) -> tuple[Integers, Integers]:
    """Return the least and the most of the integers in intervals, in units of 2^-shift: none if one is too short."""
    free = cells.free | ((cells.floor == 0) & ~cells.exact & (shift > MOST_SHIFT))
    short = ~free & (shift < 0) & ~(cells.exact & (cells.floor == 0))
    scale = np.int64(1) << np.clip(shift, 0, MOST_SHIFT)
    low = np.where(free, 0, cells.floor) * scale
    high = np.where(free, FARTHEST, np.where(cells.exact, low, low + scale - 1))
    return np.where(free, 1, low), np.where(short, -FARTHEST, high)


def _split(argument: Integers, width: int, segments: int) -> tuple[Integers, Integers]:
    """Return the leading bits of an argument and the others."""
    return argument >> (width - segments), argument & ((1 << (width - segments)) - 1)


def _power(cells: Cells, spec: FunctionSpec, value: int, segments: int) -> Task:
    """Return the task of ``2^(x * factor)``."""
    fraction = value + 2
    places = fraction + 4 if spec.function == "exp" else 0
    with mp.workprec(200):
        factor = int(mp.nint(mp.ldexp(1 / mp.ln2, places))) if spec.function == "exp" else 1
    table = Polynomials(POWER, cells.precision, segments, 0, (), value, (), factor, places, fraction, high=limit(spec))
    # Farther numbers overflow or are tiny.
    near = cells.at((cells.exponent < table.high) & ~cells.free)
    down = np.maximum(places - fraction - (near.exponent - near.precision + 1), -fraction - table.high)
    product = near.significand * factor
    shifted = np.where(down >= 0, product >> np.clip(down, 0, 62), product << np.clip(-down, 0, 62))
    lost = (shifted << np.clip(down, 0, 62) != product) & (down > 0)
    scaled = np.where(near.negative, -(shifted + lost), shifted)
    found = _bounds(near, near.unit - (scaled >> fraction) + value)
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


def limit(spec: FunctionSpec) -> int:
    """Return an exponent from which on numbers have powers of two beyond the range, or far below the smallest."""
    o = spec.result
    sizes = floor_log2(max(o.largest, -o.lowest)) + 4, spec.unit_rounding.places + 4 - o.quantum
    return max(*sizes, 4).bit_length() + 1


def _logarithm(cells: Cells, spec: FunctionSpec, value: int, segments: int) -> Task:
    """Return the task of ``e * factor + log(m)``."""
    natural = spec.function == "log"
    with mp.workprec(200):
        factor = int(mp.nint(mp.ldexp(mp.ln2, value))) if natural else 1 << value
        scale = mp.mpf(1) if natural else 1 / mp.ln2
    found = _bounds(cells, cells.unit + value)
    # The floor of a negative number is its truncation, less one.
    inexact = (~cells.exact).astype(np.int64)
    low = np.where(cells.below, -found[1] - inexact, found[0])
    high = np.where(cells.below, -found[0] - inexact, found[1])
    fraction = cells.significand - (1 << (cells.precision - 1))
    index, rest = _split(fraction, cells.precision - 1, segments)
    table = Polynomials(LOGARITHM, cells.precision, segments, 0, (), value, (), factor)
    count = 1 << segments
    moved = cells.exponent * factor
    return Task(
        table, index, rest, low - moved, high - moved, count, lambda place, u: scale * mp.log1p((place + u) / count)
    )


def _angle(cells: Cells, spec: FunctionSpec, value: int, segments: int) -> Task:
    """Return the task of ``sin(pi / 2 * f)`` in the quadrants of an angle."""
    fraction, cosine = value + 2, spec.function == "cos"
    # Smaller numbers are just above their sines, and 1 just above their cosines.
    first = -(max(cells.precision, spec.window) // 2 + 1)
    near = cells.at(cells.exponent >= first)
    multiples = []
    with mp.workprec(int(cells.exponent.max()) + fraction + 200):
        for exponent in range(first, int(cells.exponent.max()) + 1):
            multiple = mp.ldexp(2 / mp.pi, exponent - cells.precision + 1 + fraction)
            multiples.append(int(mp.nint(multiple)) & ((4 << fraction) - 1))
    turned = near.significand * np.array(multiples, dtype=np.int64)[near.exponent - first]
    quadrant = (turned >> fraction) + cosine
    inverted = np.where(quadrant & 1 == 1, ~turned, turned) & ((1 << fraction) - 1)
    found = _bounds(near, near.unit + value)
    found[1][(quadrant & 2 == 2) != near.below] = -FARTHEST
    index, rest = _split(inverted, fraction, segments)
    table = Polynomials(
        ANGLE, cells.precision, segments, 0, (), value, (), fraction=fraction, low=first, multiples=tuple(multiples)
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


@dataclass(frozen=True)
class Groups:
    """Numbers of a function with polynomials for each binade, in groups of one sign and binade.

    Attributes
    ----------
    cells : Cells
    function : Function
    low, high : int
        Binades below ``low`` are one group of a sign, and so are those from ``high`` on.
    bits : int
        Bits of the number of a binade, above which is the sign.
    group : array of int64
    linear : array of bool
        The value is nearly proportional to the number, whose exponent is added to that of v.
    tops : array of int64
        Exponents of the values, less the exponent that is added.
    """

    cells: Cells
    function: Function
    low: int
    high: int
    bits: int
    group: Integers
    linear: Any
    tops: Integers

    @classmethod
    def of(cls, cells: Cells, spec: FunctionSpec) -> "Groups":
        """Return the groups of a description."""
        low, high = _ends(cells, spec)
        last = high - low + 1
        cluster = np.clip(cells.exponent, low - 1, high) - (low - 1)
        linear = _relative(spec.function, cells.negative, cluster == 0) & ((cluster == 0) | (cluster == last))
        tops = _tops(cells) - np.where(linear, cells.exponent, 0)
        bits = last.bit_length()
        group = cells.negative.astype(np.int64) << bits | cluster
        return cls(cells, ROWS[spec.function], low, high, bits, group, linear, tops)

    def lines(self, group: int, segments: int, degree: int) -> Lines:
        """Return the interpolating polynomials of a group, of values divided by the power of two of a number."""
        exponent = min((group & ((1 << self.bits) - 1)) + self.low - 1, self.high)
        negative = group >> self.bits

        def value(place: int, u: Any) -> Any:
            x = mp.ldexp(1 + (place + u) / (1 << segments), exponent)
            return abs(self.function.value(-x if negative else x))

        return _interpolated(value, range(1 << segments), degree)

    def moved(self, group: int, linear: bool) -> int:
        """Return the exponent by which the values of `lines` are too large."""
        return min((group & ((1 << self.bits) - 1)) + self.low - 1, self.high) if linear else 0

    def solve(self, value: int, degree: int, known: dict[tuple[int, int, int], Lines]) -> Polynomials | None:
        """Return the table with the fewest polynomials in each group; None if the fraction bits do not suffice."""
        cells, width = self.cells, self.cells.precision - 1
        fraction = cells.significand - (1 << width)
        found: Found = {}
        for segments in range(width + 1):
            for group in sorted({*self.group.tolist()} - {*found}):
                at = np.flatnonzero(self.group == group)
                shifted = fraction[at] << segments
                index, rest = shifted >> width, shifted & ((1 << width) - 1)
                exponents = np.full(1 << segments, -FARTHEST)
                np.maximum.at(exponents, index, self.tops[at])
                used = np.unique(index)
                linear = bool(self.linear[at[0]])
                here = cells.at(at)
                shift = here.unit - np.where(linear, here.exponent, 0) - exponents[index] + value
                low, high = _bounds(here, shift)
                if np.any(low > high):
                    continue
                key = group, segments, degree
                if key not in known:
                    known[key] = self.lines(*key)
                scales = [value - int(exponent) - self.moved(group, linear) for exponent in exponents[used]]
                lines = [known[key][place] for place in used.tolist()]
                first = [
                    np.array(
                        [int(mp.nint(mp.ldexp(line[k], scale))) for line, scale in zip(lines, scales, strict=True)]
                    )
                    for k in (0, 1)
                ]
                rows = _rows(
                    index,
                    rest,
                    np.maximum(low, 1),
                    np.minimum(high, (2 << value) - 1),
                    first,
                    width,
                    width * (degree == 2),
                )
                if rows is None:
                    continue
                all_rows = np.zeros((1 << segments, 3), np.int64)
                all_rows[used] = rows
                exponents[exponents == -FARTHEST] = 0
                found[group] = segments, all_rows.tolist(), [(exponent, linear) for exponent in exponents.tolist()]
        if len(found) < len({*self.group.tolist()}):
            return None
        return self._table(value, degree, found)

    def _table(self, value: int, degree: int, found: Found) -> Polynomials:
        precision = self.cells.precision
        empty = Polynomials(BINADES, precision, 0, precision - 1, (precision - 1,) * (degree - 1), value, ())
        return grouped(replace(empty, low=self.low, high=self.high), found)


def grouped(table: Polynomials, found: Found) -> Polynomials:
    """Return the table of groups; the longest come first, so that a first index has zeros where bits follow."""
    groups = [(0, 0)] * (max(found) + 1)
    rows: list[Any] = []
    exponents: list[Any] = []
    for group in sorted(found, key=lambda group: -found[group][0]):
        segments, own, its_exponents = found[group]
        groups[group] = segments, len(rows)
        rows += own
        exponents += its_exponents
    columns = len(table.inner) + 2
    return replace(
        table,
        rows=tuple(tuple(row[:columns]) for row in rows),
        groups=tuple(groups),
        exponents=tuple(exponents),
    )


def _relative(name: str, negative: Any, small: Any) -> Any:
    """Return true for numbers near zero or far from it whose value is nearly proportional to them."""
    if name == "sigmoid":
        return np.zeros_like(small)
    return small | (np.isin(name, ("gelu", "silu")) & ~negative)


@functools.lru_cache(maxsize=4)
def _tops(cells: Cells) -> Integers:
    """Return the exponents of results; those of tiny ones are the largest possible."""
    return np.array(
        [unit - 1 + floor.bit_length() for floor, unit in zip(cells.floor.tolist(), cells.unit.tolist(), strict=True)]
    )


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


TASKS: dict[str, Callable[[Cells, FunctionSpec, int, int], Task]] = {
    POWER: _power,
    LOGARITHM: _logarithm,
    ANGLE: _angle,
}


def fitted(task: Task, degree: int, known: dict[tuple[int, ...], Lines]) -> Polynomials | None:
    """Return a table whose v are in all intervals, with polynomials of a degree; None if the search finds none.

    ``known`` has the interpolating polynomials by degree, number of segments, and segments that are used.
    """
    table = task.table
    width = table.precision - 1 if table.reduction == LOGARITHM else table.fraction
    rest = width - table.segments
    inner = min(rest, max(table.value - 2 * table.segments + 2, 1)) if degree == 2 else 0
    used = np.unique(task.index)
    key = (degree, table.segments, *used.tolist())
    if key not in known and rest:
        known[key] = _interpolated(task.function, used.tolist(), degree)
    lines = known[key] if rest else [(0, 0)] * len(used)
    first = [np.array([int(mp.nint(mp.ldexp(line[at], table.value))) for line in lines]) for at in (0, 1)]
    found = _rows(task.index, task.rest, task.low, task.high, first, rest, inner)
    if found is None:
        return None
    rows = np.zeros((task.count, 3), np.int64)
    rows[used] = found
    return replace(
        table, rest=rest, inner=(inner,) * (degree - 1), rows=tuple(map(tuple, rows[:, : degree + 1].tolist()))
    )


def _rows(
    index: Integers, t: Integers, low: Integers, high: Integers, first: list[Integers], rest: int, inner: int
) -> Integers | None:
    """Return the coefficients of the polynomials that are used, near those given; None if the search finds none."""
    order = np.argsort(index, kind="stable")
    index, t, low, high = (column[order] for column in (index, t, low, high))
    used, starts, place = np.unique(index, return_index=True, return_inverse=True)
    rows, done = np.zeros((len(used), 3), np.int64), np.zeros(len(used), bool)
    for slope, bend in NUDGES:
        if bend and not inner:
            continue
        trial = first[0] + slope, first[1] + bend
        moved = ((trial[0][place] + ((trial[1][place] * (t >> (rest - inner))) >> inner)) * t) >> rest
        least = np.maximum.reduceat(low - moved, starts)
        most = np.minimum.reduceat(high - moved, starts)
        now = ~done & (least <= most)
        rows[now] = np.stack([(least + most) >> 1, *trial], 1)[now]
        done |= now
        if done.all():
            return rows
    return None


def _interpolated(function: Callable[[int, Any], Any], used: Iterable[int], degree: int) -> Lines:
    """Return c1 and c2 of the polynomials that interpolate a function at the nodes of Chebyshev, as real numbers."""
    with mp.workprec(120):
        nodes = [(1 + mp.cos(mp.pi * (2 * k + 1) / (2 * degree + 2))) / 2 for k in range(degree + 1)]
        lines = []
        for place in used:
            values = [function(place, node) for node in nodes]
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
        columns.append(tuple(exponent for exponent, _ in table.exponents))
    widths = [max(max(column) - min(*column, 0), 1).bit_length() for column in columns]
    multipliers = sum(bits * width for bits, width in zip((table.rest, *table.inner), widths[1:], strict=False)) / 2
    return sum(widths) * max(len(table.rows) / 64, 1) + multipliers


def fit(spec: FunctionSpec) -> Polynomials:
    """Return the table of a description.

    Raises
    ------
    ValueError
        If no table within the limits of the search is correct.
    """
    cells = cells_of(spec)
    tables = _of_binades(cells, spec) if KINDS[spec.function] == BINADES else _of_segments(cells, spec)
    best = min(tables, key=cost, default=None)
    if best is None:
        raise ValueError(f"no table of polynomials of up to {1 << MOST_SEGMENTS} segments is correct for {spec}")
    return best


def _of_segments(cells: Cells, spec: FunctionSpec) -> Iterator[Polynomials]:
    """Yield tables of functions that reduce their argument to one interval."""
    task_of = TASKS[KINDS[spec.function]]
    known: dict[tuple[int, ...], Lines] = {}
    sizes = [*itertools.product((1, 2), range(1, MOST_SEGMENTS + 1))]
    values = range(spec.window, spec.window + MORE_BITS)
    if KINDS[spec.function] == ANGLE:
        # Angles next to multiples of pi have sines with many leading zeros.
        sizes = [(2, segments) for segments in range(5, MOST_SEGMENTS + 1)]
        values = range(spec.window + ANGLE_BITS[0], spec.window + ANGLE_BITS[1], 2)
    elif KINDS[spec.function] == LOGARITHM:
        sizes = [(degree, segments) for degree, segments in sizes if segments < cells.precision]
    for degree, segments in sizes:
        # The reduced argument of an angle or a power has two bits more than v.
        for value in (value for value in values if value + 2 >= segments):
            table = fitted(task_of(cells, spec, value, segments), degree, known)
            if table is not None:
                yield table
                break


def _of_binades(cells: Cells, spec: FunctionSpec) -> Iterator[Polynomials]:
    """Yield tables of functions with polynomials for each binade."""
    groups = Groups.of(cells, spec)
    known: dict[Any, Any] = {}
    for degree, value in itertools.product((1, 2), range(spec.window, spec.window + MORE_BITS // 2)):
        table = groups.solve(value, degree, known)
        if table is not None:
            yield table


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
