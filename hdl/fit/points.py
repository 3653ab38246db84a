"""Points of a fit: the argument of the pieces and the value of the function for every code.

Values are rounded to 53 bits. The rounded result is decided with as many bits as it needs.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import mpmath
import numpy as np
from mpmath import mp

from halfulp.hdl.formats import RN, Format, Rounding

from .folding import Folding
from .functions import ALL, GUARD, Function, fraction_of
from .lines import Band, two_sum
from .rounding_table import Numbers, RoundingTable, check_width, numbers_of, rounding_table_of

REFERENCES = ("real", "rounded")
"""References of errors: the function's value, or its correctly rounded value."""

REDUCED_BITS = 20
"""Fraction bits of reduced arguments as integers."""

_SURE = 2.0**-46
_FARTHEST = 1000  # exponent beyond which every result is out of range


@dataclass(frozen=True, eq=False)
class Points:
    """All codes that the pieces compute, by ascending argument.

    Attributes
    ----------
    x, t : array of float64
        Numbers of the input format, and arguments of the pieces.
    scale, offset : array of float64
        The result is ``scale`` times the value of the piece plus ``offset``.
    value : array of float64
        Function values to 53 bits, clipped to the range of a saturating output.
    nearest : array of int
        Index of the correctly rounded value in the rounding table.
    unit : array of float64
        Unit of errors at each point.
    lowest, highest : array of int
        Indices in the rounding table of the smallest and the largest result that is allowed.
    shapes : tuple
        Values of ``lowest`` and ``highest`` that keep sign, f(0) and asymptotes of the function, fewer and fewer of
        them; the last ones allow all results.
    rounding_table : RoundingTable
        Rounding table of the output.
    breakpoints : array of int
        Indices of points at which a piece may begin: the first point of each argument.
    addresses : array of int
        Arguments at the breakpoints as integers, whose leading bits may select a piece.
    """

    x: Numbers
    t: Numbers
    scale: Numbers
    offset: Numbers
    value: Numbers
    nearest: Any
    unit: Numbers
    lowest: Any
    highest: Any
    shapes: tuple[tuple[Any, Any], ...]
    rounding_table: RoundingTable
    breakpoints: Any
    addresses: Any

    def __len__(self) -> int:
        return len(self.t)

    @cached_property
    def ends(self) -> list[int]:
        """Indices of the breakpoints, and the number of points."""
        return [*map(int, self.breakpoints), len(self.t)]

    def slice(self, first: int, last: int) -> "Points":
        """Return the points from ``first`` to before ``last``, with only the first as breakpoint."""
        part = slice(first, last)
        arrays = ("x", "t", "scale", "offset", "value", "nearest", "unit", "lowest", "highest")
        return replace(self, **{name: getattr(self, name)[part] for name in arrays}, breakpoints=np.array([0]))

    def coarser(self, grain: int) -> "Points":
        """Return the points with breakpoints only at multiples of 2^grain and at the first argument."""
        chosen = self.addresses % (1 << grain) == 0
        chosen[0] = True
        return replace(self, breakpoints=self.breakpoints[chosen], addresses=self.addresses[chosen])

    def shaped(self) -> Iterator["Points"]:
        """Yield the points with each of the `shapes` that keep more than theirs."""
        for lowest, highest in self.shapes:
            if lowest is self.lowest:
                return
            yield replace(self, lowest=lowest, highest=highest)

    def errors(self, index: Any) -> Numbers:
        """Return the errors of results given by their indices in the rounding table."""
        got = self.rounding_table.values[index]
        with np.errstate(invalid="ignore"):
            error = np.abs(got - self.value) / self.unit
        outside = np.isinf(got) | np.isinf(self.rounding_table.values[self.nearest])
        return np.where(outside, np.where(index == self.nearest, 0.0, np.inf), error)

    def results(self, s: Numbers, rest: Numbers) -> Any:
        """Return the rounding-table indices of results, given the `lines.sums` of the pieces."""
        # The scale is a signed power of two, so the product is exact; the offset makes another sum.
        total, lost = two_sum(s * self.scale, self.offset)
        return self.rounding_table.round(*two_sum(total, lost + rest * self.scale))

    def least_error(self) -> float:
        """Return the maximum error of the best possible results."""
        top = len(self.rounding_table.values) - 1
        errors = np.minimum(self.errors(self.nearest), self.errors(np.minimum(self.nearest + 1, top)))
        return float(np.max(np.minimum(errors, self.errors(np.maximum(self.nearest - 1, 0)))))

    def band(self, error: float) -> Band:
        """Return the bounds on values of pieces within an error."""
        values, top = self.rounding_table.values, len(self.rounding_table.values) - 1
        reach = np.minimum(error * self.unit, np.finfo(float).max)
        first = np.searchsorted(values, self.value - reach, "left")
        last = np.searchsorted(values, self.value + reach, "right") - 1
        # Division and multiplication round, so the bounds are corrected to agree with `errors`.
        first = np.where(self._within(first - 1, error), first - 1, first)
        first = np.where(self._within(first, error), first, first + 1)
        last = np.where(self._within(last + 1, error), last + 1, last)
        last = np.where(self._within(last, error), last, last - 1)
        first, last = np.maximum(first, self.lowest), np.minimum(last, self.highest)
        out = np.isinf(values[self.nearest])
        first, last = np.where(out, self.nearest, first), np.where(out, self.nearest, last)
        none = first > last
        thresholds, up = self.rounding_table.thresholds, self.rounding_table.up
        low = np.where(first > 0, thresholds[np.clip(first - 1, 0, top - 1)], -np.inf)
        high = np.where(last < top, thresholds[np.clip(last, 0, top - 1)], np.inf)
        low_closed = up[np.clip(first - 1, 0, top - 1)]
        high_closed = ~up[np.clip(last, 0, top - 1)]
        with np.errstate(over="ignore"):
            low, high = (low - self.offset) / self.scale, (high - self.offset) / self.scale
        falls = self.scale < 0
        return Band(
            self.t,
            np.where(none, np.inf, np.where(falls, high, low)),
            np.where(none, -np.inf, np.where(falls, low, high)),
            np.where(falls, high_closed, low_closed),
            np.where(falls, low_closed, high_closed),
        )

    def _within(self, index: Any, error: float) -> Any:
        top = len(self.rounding_table.values) - 1
        return (index >= 0) & (index <= top) & (self.errors(np.clip(index, 0, top)) <= error)


# The function -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def _known(
    function: Function, fmt: Format, interval: tuple[Fraction, Fraction] | None
) -> tuple[Numbers, Numbers, Numbers]:
    """Return the numbers of the fit, the same clipped to the interval, and function values there to 53 bits."""
    x = np.unique(numbers_of(fmt))
    x = x[np.isfinite(x)]
    places = x if interval is None else np.clip(x, float(interval[0]), float(interval[1]))
    if function.domain != ALL:
        defined = np.array([function.defined(Fraction(place)) for place in places])
        x, places = x[defined], places[defined]
    if not len(x):
        raise ValueError(f"{function.name} is defined at none of the numbers of {fmt}, but at {function.domain}")
    is_odd = function.symmetry == "odd"
    distinct, where = np.unique(np.abs(places) if is_odd else places, return_inverse=True)
    with mp.workprec(80):
        values = np.array([_double(function.at(Fraction(place))) for place in distinct.tolist()])[where]
    return x, places, np.where(places < 0, -values, values) if is_odd else values


def _double(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def nearest_to(function: Function, x: Fraction, rounding_table: RoundingTable) -> int:
    """Return the index in the rounding table of the correctly rounded function value at x."""
    exact = function.exact(x)
    if exact is not None:
        return _place(exact, rounding_table=rounding_table)
    bits = 80
    while True:
        low, high = _bounds(function.at(x, bits), bits)
        first, last = _place(low, rounding_table=rounding_table), _place(high, rounding_table=rounding_table)
        limit = function.limit(x)
        if limit is not None and low <= limit[0] <= high:
            beside = _place(*limit, rounding_table=rounding_table)
            first, last = (beside, last) if limit[1] > 0 else (first, beside)
        if first == last:
            return first
        bits *= 2
        if bits > 1 << 14:
            raise ValueError(f"{function.name} at {float(x):g} is too near a rounding threshold to be rounded")


def _bounds(value: Any, bits: int) -> tuple[Fraction, Fraction]:
    """Return bounds on a value at a working precision; beyond double precision coarse bounds suffice."""
    if abs(value) < mpmath.ldexp(1, -1060):
        edge = Fraction(1, 1 << 1070)
        return (edge, 2 * edge) if value > 0 else (-2 * edge, -edge)
    if abs(value) > mpmath.ldexp(1, 1010):
        return (Fraction(2) ** 1010,) * 2 if value > 0 else (-(Fraction(2) ** 1010),) * 2
    middle = fraction_of(value)
    reach = abs(middle) / (1 << (bits - GUARD))
    return middle - reach, middle + reach


def _place(value: Fraction, side: int = 0, *, rounding_table: RoundingTable) -> int:
    """Return the index in the rounding table of a number, or of one just above it (1) or below it (-1)."""
    near = float(value)
    rest = value - Fraction(near)
    side = (rest > 0) - (rest < 0) or side
    return int(rounding_table.round(np.array([near]), np.array([side * 2.0**-1074]))[0])


def points_of(
    function: Function,
    fmt: Format,
    out: Format,
    folding: Folding,
    *,
    rounding: Rounding = RN,
    measure: str = "ulp",
    against: str = "real",
) -> Points:
    """Return the points of a function between two formats.

    Raises
    ------
    ValueError
        If a format is too wide, or the function fails at one of its numbers.
    """
    check_width(fmt)
    rounding_table = rounding_table_of(out, rounding)
    x, places, raw = _known(function, fmt, folding.interval)
    reference = rounding_table_of(out, RN) if against == "rounded" else rounding_table
    nearest = _nearest(function, places, raw, reference)
    finite = np.where(np.isfinite(rounding_table.values), rounding_table.values, 0)
    value = np.clip(raw, finite.min(), finite.max()) if np.isfinite(rounding_table.values[[0, -1]]).all() else raw
    unit = rounding_table.ulp(value) if measure == "ulp" else np.ones(len(x))
    if against == "rounded":
        # A result out of range in one rounding may be the end of the range in another.
        value = np.clip(reference.values[nearest], rounding_table.values[0], rounding_table.values[-1])
        nearest = np.searchsorted(rounding_table.values, value)
    t, scale, offset = _folded(x, folding)
    order = np.lexsort((x, t))
    t = t[order]
    shapes = _shapes(function, x, raw, nearest, rounding_table, folding)
    shapes = tuple((lowest[order], highest[order]) for lowest, highest in shapes)
    starts = np.flatnonzero(np.concatenate([[True], t[1:] > t[:-1]]))
    held = (t[starts] >= float(fmt.lowest)) & (t[starts] <= float(fmt.largest))
    breakpoints = starts[held | (starts == 0) | (folding.reduction is not None)]
    return Points(
        x[order],
        t,
        scale[order],
        offset[order],
        value[order],
        nearest[order],
        unit[order],
        *shapes[-1],
        shapes,
        rounding_table,
        breakpoints,
        addresses(fmt, folding, t[breakpoints]),
    )


def _nearest(function: Function, places: Numbers, raw: Numbers, rounding_table: RoundingTable) -> Any:
    """Return the indices of rounded values; values near a threshold are rounded again with more bits."""
    nearest = rounding_table.round(raw)
    at = np.clip(np.searchsorted(rounding_table.thresholds, raw), 1, max(len(rounding_table.thresholds) - 1, 1))
    last = len(rounding_table.thresholds) - 1
    gap = np.minimum(
        np.abs(raw - rounding_table.thresholds[np.minimum(at - 1, last)]),
        np.abs(raw - rounding_table.thresholds[np.minimum(at, last)]),
    )
    for index in np.flatnonzero(~(gap > _SURE * np.abs(raw)) & np.isfinite(raw)):
        nearest[index] = nearest_to(function, Fraction(float(places[index])), rounding_table)
    return nearest


def _shapes(
    function: Function, x: Numbers, raw: Numbers, nearest: Any, rounding_table: RoundingTable, folding: Folding
) -> tuple[tuple[Any, Any], ...]:
    """Return pairs of lowest and highest indices of results, from those that keep most of a function's shape to all.

    A result that keeps the sign does not have the opposite one of the function's value, and is exact at its zeros.
    A rational value at zero, and the asymptote at the ends of the format, where the function's value rounds to it, are
    exact if they are kept.
    """
    top = len(rounding_table.values) - 1
    anything = np.zeros(len(x), np.int64), np.full(len(x), top)
    if not function.shaped:
        return (anything,)
    # These are equal if there is a zero.
    above, below = (np.searchsorted(rounding_table.values, 0.0, side) for side in ("left", "right"))
    below = below - 1
    none = np.zeros(len(x), bool)
    zero, ends = none, none.copy()
    if function.defined(Fraction(0)) and function.exact(Fraction(0)) is not None:
        zero = x == 0
    if folding.interval is None and folding.reduction is None:
        for place in (0, -1):
            line = function.asymptote(x[place] > 0)
            if line is not None and rounding_table.round(line[0] * x[[place]] + line[1])[0] == nearest[place]:
                ends[place] = True
    # A value that is too small for double precision is zero here; its nearest number may have a sign.
    positive, negative = (raw > 0) | (nearest > below), (raw < 0) | (nearest < above)
    lowest = np.where(negative, 0, np.minimum(above, nearest))
    highest = np.where(positive, top, np.maximum(below, nearest))
    kept = (np.where(exact, nearest, (lowest, highest)) for exact in (zero | ends, ends, zero, none))
    return (*map(tuple, kept), anything)


def _folded(x: Numbers, folding: Folding) -> tuple[Numbers, Numbers, Numbers]:
    """Return the arguments of the pieces, and scale and offset of their values."""
    scale, offset = np.ones(len(x)), np.zeros(len(x))
    negative = x < 0
    t = x
    if folding.symmetry is not None:
        t = np.abs(x)
        if folding.symmetry in ("odd", "point"):
            scale = np.where(negative, -1.0, 1.0)
        if folding.symmetry == "point":
            offset = np.where(negative, float(folding.centre), 0.0)
        if folding.symmetry == "linear":
            offset = np.where(negative, x, 0.0)
    if folding.reduction == "exp2":
        return _powers(x, folding)
    if folding.reduction is not None:
        m, e = np.frexp(t)
        m, e = 2 * m, e - 1
        if folding.reduction == "log2":
            return m, scale, e.astype(float)
        if folding.reduction == "rsqrt":
            half = e >> 1
            return t * np.ldexp(1.0, -2 * half), np.ldexp(1.0, -half), offset
        return m, scale * np.ldexp(1.0, -e), offset
    return t, scale, offset


def _powers(x: Numbers, folding: Folding) -> tuple[Numbers, Numbers, Numbers]:
    """Return arguments, scales and offsets of ``exp2``."""
    t, k = [], []
    ones = (1 << folding.fraction) - 1
    for number in x.tolist():
        above, below = number.as_integer_ratio()
        scaled = (above * folding.factor.numerator << folding.fraction) // (below * folding.factor.denominator)
        t.append((scaled & ones) / (ones + 1))
        k.append(min(max(scaled >> folding.fraction, -_FARTHEST), _FARTHEST))
    return np.array(t), np.ldexp(1.0, np.array(k)), np.zeros(len(t))


def addresses(fmt: Format, folding: Folding, t: Numbers) -> Any:
    """Return arguments as integers in ascending order."""
    if folding.reduction == "exp2":
        return (t * (1 << folding.fraction)).astype(np.int64)
    if folding.reduction is not None:
        # Reduced arguments start at 1, which becomes the integer 0.
        return (t * (1 << REDUCED_BITS)).astype(np.int64) - (1 << REDUCED_BITS)
    if fmt.spacing == "uniform":
        low = 0.0 if folding.symmetry is not None else float(fmt.lowest)
        return ((t - low) / float(fmt.smallest)).astype(np.int64)
    # Codes of nonnegative numbers are in ascending order.
    row = numbers_of(fmt)[: 1 << (fmt.width - 1)]
    if fmt.code_order == "table":
        row = np.unique(row[row >= 0])
    magnitudes = np.searchsorted(row, np.abs(t))
    middle = 0 if folding.symmetry is not None else 1 << (fmt.width - 1)
    # Negative codes are ordered as in units: sign-magnitude codes inverted, others in two's complement.
    below = ~magnitudes if fmt.code_order == "sign-magnitude" else -magnitudes
    return np.where(t < 0, below, magnitudes) + middle
