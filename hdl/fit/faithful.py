"""Tables of polynomials whose results are faithful: proved bounds of all errors, without a check of each number.

A value with an error of less than a quarter of the last place rounds to one of the two numbers next to the exact value,
and to that value if it is a number. The error of a polynomial is that of Chebyshev interpolation, bounded by Taylor
coefficients (`series`), and the roundings of its coefficients and of its evaluation; those of the reduction of the
argument are subtracted from the quarter before. The table with the smallest estimate of its cost is taken.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from mpmath import mp

from halfulp.hdl.formats.base import Format, floor_log2
from halfulp.hdl.specs import FunctionSpec
from halfulp.hdl.specs.polynomials import BINADES, KINDS, LOGARITHM, ODD, POWER, RATIO, TURN, Polynomials
from halfulp.tools.cache import cached_value
from halfulp.tools.digests import code
from halfulp.tools.progress import Bar

from .functions import fraction_of
from .polynomials import Found, cost, grouped, limit
from .series import VALUES, Floats, taylor

DEGREES = 2, 3, 4
MORE_BITS = 3, 4, 5, 6
"""Fraction bits of v beside those of a result."""

MOST_SEGMENTS = 12
"""Maximum number of leading bits that select a polynomial."""

LIMIT = 5
"""Relative errors of the limits of a function near zero and far from it are at most 2^-LIMIT places."""

BITS = 200
"""Precision of constants."""

FARTHEST = 1 << 14
"""Exponent beyond those of all numbers."""

MARGIN = 2.0**-10
"""Part of a unit of v by which bounds are raised. Values in binary64 have relative errors of less than 2^-43, and
change an interpolating polynomial of degree 4 by at most 2.2 times their error (its Lebesgue constant)."""

ORDERS = range(max(DEGREES) + 2)
"""Orders of Taylor coefficients."""


@dataclass(frozen=True)
class Demand:
    """Errors of values that keep a result faithful.

    Attributes
    ----------
    window : int
        Bits of a result.
    floor : int
        Exponent below which results have one last place.
    """

    window: int
    floor: int

    @classmethod
    def of(cls, o: Format) -> "Demand":
        floor = floor_log2(o.smallest) if o.flushes else o.quantum + o.window - 1
        return cls(o.window, floor)

    def quarter(self, magnitude: Floats) -> Floats:
        """Return a quarter of the last place of results of at least a magnitude."""
        # The first number that `frexp` returns is in [1/2, 1), or is zero.
        top = np.where(magnitude > 0, np.frexp(magnitude)[1] - 1, self.floor)
        return np.ldexp(1.0, np.maximum(top, self.floor) - self.window - 1)


@dataclass(frozen=True)
class Pieces:
    """Function on the intervals of polynomials, each with an argument u from 0 to 1.

    Attributes
    ----------
    value : callable
        Value at u in all intervals, in binary64.
    taylor : list of array
        Bounds on the magnitudes of Taylor coefficients in u, from that of u^0 on, anywhere in an interval.
    low, high : array
        Bounds of the value.
    exponent : array of int
        Exponent of v: v is the value times 2^(bits - exponent).
    allowed : array
        Largest error of the value.
    other : array
        Errors of the reduction of the argument, which are not in ``allowed``.
    least : int
        Lower bound of v in units of 2^bits.
    """

    value: Callable[[float], Floats]
    taylor: list[Floats]
    low: Floats
    high: Floats
    exponent: Any
    allowed: Floats
    other: Any = 0.0
    least: int = 0

    def units(self, x: Any, bits: int) -> Floats:
        """Return values in units of v."""
        return np.ldexp(x, bits - self.exponent)

    def remainder(self, bits: int, degree: int) -> Floats:
        """Return the errors of interpolation at the nodes of Chebyshev, in units of v."""
        return self.units(self.taylor[degree + 1], bits) * 2 / 4.0 ** (degree + 1)

    def fits(self, bits: int, degree: int) -> bool:
        """Return True if the error of interpolation leaves room for the rounding errors of a polynomial."""
        room = self.units(self.allowed, bits) - self.remainder(bits, degree)
        return bool(np.all(room > 0.5 + sum(bound.any() for bound in self.taylor[1 : degree + 1])))

    def lines(self, degree: int) -> Floats:
        """Return the coefficients of the interpolating polynomials, by Newton's divided differences."""
        nodes = [(1 + math.cos(math.pi * (2 * k + 1) / (2 * degree + 2))) / 2 for k in range(degree + 1)]
        differences = [self.value(node) for node in nodes]
        for order in range(1, len(nodes)):
            for k in reversed(range(order, len(nodes))):
                differences[k] = (differences[k] - differences[k - 1]) / (nodes[k] - nodes[k - order])
        line = [differences[-1]]
        for k in reversed(range(len(nodes) - 1)):
            zero = np.zeros_like(line[0])
            line = [low - nodes[k] * high for low, high in zip([zero, *line], [*line, zero], strict=True)]
            line[0] = line[0] + differences[k]
        return np.stack(line, 1)

    def rows(self, lines: Floats, bits: int, rest: int, inner: tuple[int, ...]) -> tuple[Any, float]:
        """Return the coefficients in units of v, and the largest part of the allowed error; 1 or more if it fails."""
        exact = np.ldexp(lines, (bits - self.exponent)[:, None])
        rounded = np.rint(exact)
        change = rounded - exact
        places = (rest, *inner)
        low = high = change[:, -1]
        size = np.abs(exact[:, -1])
        for place in reversed(range(len(places))):
            # A product is rounded down, and its factor has no bits below ``places``.
            lost = size * (2.0 ** -places[place] - 2.0**-rest)
            own = change[:, place] if place else 0
            low, high = own - (size > 0) + np.minimum(low, 0) - lost, own + np.maximum(high, 0) + lost
            size = size + np.abs(exact[:, place])
        error = self.remainder(bits, len(places)) + MARGIN
        low, high = low - error, high + error
        first = np.rint(exact[:, 0] - (low + high) / 2)
        above = self.units(self.low, bits) + low + first - exact[:, 0] - (self.least << bits)
        below = (2 << bits) - 1 - self.units(self.high, bits) - high - first + exact[:, 0]
        first += np.where(above < 0, np.ceil(-above), np.where(below < 0, -np.ceil(-below), 0))
        rounded[:, 0] = first
        moved = first - exact[:, 0]
        error, other = np.maximum(-(low + moved), high + moved), self.units(self.other, bits)
        part = (error + other) / (self.units(self.allowed, bits) + other)
        return rounded.astype(np.int64), float(part.max())


def _inner(pieces: list[Pieces], bits: int, degree: int, rest: int) -> tuple[int, ...]:
    """Return bits of t for the coefficients from c2 on, so that those below change a product by an eighth at most."""

    def size(order: int) -> float:
        return max(float(piece.units(sum(piece.taylor[order:]), bits).max()) for piece in pieces)

    return tuple(min(max(math.frexp(size(order))[1] + 3, 1), rest) for order in range(2, degree + 1))


# Reductions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reduction:
    """Reduction of the argument to one interval.

    Attributes
    ----------
    table : Polynomials
        Table without rows.
    width : int
        Bits of t and of the index together.
    pieces : callable
        Pieces for a number of leading bits.
    part : float
        Largest part of the allowed error elsewhere.
    """

    table: Polynomials
    width: int
    pieces: Callable[[int], Pieces]
    part: float = 0.0


def _starts(segments: int) -> Floats:
    """Return the beginnings of intervals in [0, 1)."""
    return np.arange(1 << segments) / (1 << segments)


def _power(spec: FunctionSpec, demand: Demand, bits: int) -> Reduction:
    o, fraction, factor, places, error = spec.result, bits + 2, 1, 0, 0.0
    if spec.function == "exp":
        # Numbers that are larger have results beyond the range.
        most = max(floor_log2(max(o.largest, -o.lowest)) + 2, demand.window + 3 - demand.floor)
        places = bits + 3 + most.bit_length()
        with mp.workprec(BITS):
            factor = int(mp.nint(mp.ldexp(1 / mp.ln2, places)))
            error = most * float(abs(mp.ldexp(factor, -places) - 1 / mp.ln2))
    # The derivative of 2^f is at most 2 * log(2).
    other = 1.4 * (error + 2.0**-fraction)

    def pieces(segments: int) -> Pieces:
        step, low = 2.0**-segments, 2.0 ** _starts(segments)
        ratio = math.log(2) * step
        bound = [low * 2**step * (1 + 2.0**-40) * ratio**k / math.factorial(k) for k in ORDERS]
        quarter = np.full_like(low, 2.0 ** (-demand.window - 1))
        return Pieces(
            lambda u: np.exp2(_starts(segments) + u * step),
            bound,
            low,
            low * 2**step,
            np.zeros(len(low), int),
            quarter - other,
            other,
            least=1,
        )

    table = Polynomials(POWER, spec.a.precision, 0, 0, (), bits, (), factor, places, fraction, high=limit(spec))
    return Reduction(table, fraction, pieces)


def _ratio(spec: FunctionSpec, demand: Demand, bits: int) -> Reduction:
    natural = spec.function == "log"
    precision, places = spec.a.precision, bits + 6
    with mp.workprec(BITS):
        scale = mp.mpf(1) if natural else 1 / mp.ln2
        factor = int(mp.nint(mp.ldexp(mp.ln2, places))) if natural else 1 << places
        error = float(abs(mp.ldexp(factor, -places) - mp.ln2)) if natural else 0.0

    def pieces(segments: int) -> Pieces:
        count, step = 1 << segments, 2.0**-segments
        starts = _starts(segments)

        def distance_at(u: float) -> Floats:
            """Return m - 1; numbers from 3/2 on are halved."""
            return np.where(starts < 0.5, starts + u * step, (starts + u * step - 1) / 2)

        def value(u: float) -> Floats:
            d = distance_at(u)
            return float(scale) * np.where(d == 0, 1, np.log1p(d) / np.where(d == 0, 1, d))

        first, last = distance_at(0), distance_at(1)
        size = float(scale) * (1 + 2.0**-40)
        # log(1 + d) / d is the mean of 1 / (1 + s d) for s from 0 to 1, and so are its derivatives.
        bound = [size * (last - first) ** k / (k + 1) / (1 + np.minimum(first, 0)) ** (k + 1) for k in ORDERS]
        low, high = value(1) * (1 - 2.0**-40), value(0) * (1 + 2.0**-40)
        allowed, other = low * 2.0 ** -(demand.window + 2), np.zeros_like(low)
        distance = np.maximum(abs(first), abs(last))
        # From 4 on, a quarter grows with the exponent at least as the error of its product does.
        for exponent in (-4, -3, -2, -1, 1, 2, 3, 4):
            ends = [size * (exponent * math.log(2) + np.log1p(end)) for end in (first, last)]
            reduction = abs(exponent) * error
            size_of = np.minimum(abs(ends[0]), abs(ends[1])) * (1 - 2.0**-30)
            quarter = size_of * 2.0 ** -(demand.window + 2) if abs(exponent) == 4 else demand.quarter(size_of)
            allowed = np.minimum(allowed, (quarter - reduction) / distance)
            other = np.maximum(other, reduction / distance)
        return Pieces(value, bound, low, high, np.zeros(count, int), allowed, other)

    table = Polynomials(RATIO, precision, 0, 0, (), bits, (), factor, places)
    return Reduction(table, precision - 1, pieces)


def _turn(spec: FunctionSpec, demand: Demand, bits: int) -> Reduction:
    precision, window = spec.a.precision, demand.window
    fraction, low, multiples, nearest = _angles(spec.a, window)
    leading = window + 6
    relative = float(Fraction((1 << (precision - 1)) + 1, 1 << fraction) / nearest) + 2.0 ** (1 - leading)
    half = math.pi / 2

    def pieces(segments: int) -> Pieces:
        step, start = 2.0**-segments, _starts(segments)
        # sin(pi / 2 f) / f is pi / 2 times the mean of cos(pi / 2 f s) for s from 0 to 1.
        bound = [np.full_like(start, half * (half * step) ** k / math.factorial(k) / (k + 1)) for k in ORDERS]
        ends = (half * np.sinc((start + u) / 2) for u in (step, 0))
        least, most = (end * (1 + sign * 2.0**-40) for end, sign in zip(ends, (-1, 1), strict=True))
        # The polynomial has an argument of ``bits + 2`` bits, and its derivative is at most pi^2 / 8.
        other = most * relative + 1.25 * 2.0 ** -(bits + 2)
        return Pieces(
            lambda u: half * np.sinc((start + u * step) / 2),
            bound,
            least,
            most,
            np.zeros(len(start), int),
            least * 2.0 ** -(window + 2) - other,
            other,
            least=1,
        )

    table = Polynomials(
        TURN, precision, 0, 0, (), bits, (), fraction=fraction, low=low, multiples=multiples, leading=leading
    )
    return Reduction(table, bits + 2, pieces, part=2.0 ** (2 * low + 1 + window))


@functools.lru_cache(maxsize=4)
def _angles(a: Format, window: int) -> tuple[int, int, tuple[int, ...], Fraction]:
    """Return fraction bits of angles, exponent of small ones, multiples, and the least distance from quadrants."""
    precision, top = a.precision, floor_log2(max(a.largest, -a.lowest))
    # The sine of smaller numbers is theirs, and their cosine is 1: the error is at most x^2 / 2.
    low = min(-(window + 3) // 2, top)
    with mp.workprec(top + 4 * BITS):
        turns = {exponent: mp.ldexp(2 / mp.pi, exponent - precision + 1) for exponent in range(low, top + 1)}
        nearest = min(_distance(exponent, turn, precision) for exponent, turn in turns.items())
        fraction = precision + window + 6 - floor_log2(nearest)
        multiples = tuple(int(mp.nint(mp.ldexp(turn, fraction))) & ((4 << fraction) - 1) for turn in turns.values())
    return fraction, low, multiples, nearest


def _distance(exponent: int, turn: Any, precision: int) -> Fraction:
    """Return a lower bound of the distance of ``significand * turn`` from integers, for significands of an exponent.

    The denominators of convergents have the smallest distances of all integers up to the next one (Lagrange).
    """
    value = fraction_of(turn)
    if exponent < 0:
        # The product is below 2 / pi.
        return value * ((1 << (precision - 1)) - 1) if exponent < -1 else Fraction(31, 100)
    before, denominator, rest = 0, 1, value - math.floor(value)
    while rest:
        whole = math.floor(1 / rest)
        following = whole * denominator + before
        if following >= 1 << precision:
            break
        before, denominator, rest = denominator, following, 1 / rest - whole
    product = value * denominator
    error = Fraction(2) ** (precision + floor_log2(value) - BITS)
    return abs(product - round(product)) - error


# Functions with polynomials for each binade ------------------------------------------------------------------------

NEAR: dict[str, tuple[float, Fraction, int]] = {
    "tanh": (1.0, Fraction(1, 3), 2),
    "erf": (2 / math.sqrt(math.pi), Fraction(1, 3), 2),
    "gelu": (0.5, Fraction(4, 5), 1),
    "silu": (0.5, Fraction(1, 2), 1),
    "sigmoid": (0.5, Fraction(1, 2), 1),
}
"""Slope near zero (of ``sigmoid``: its value), and c and n so that the relative error is at most c * abs(x)^n."""

FAR: dict[str, Callable[[float], float]] = {
    "tanh": lambda x: 2 * math.exp(-2 * x),
    "erf": lambda x: math.exp(-x * x),
    "gelu": lambda x: x * math.exp(-x * x / 2),
    "silu": lambda x: x * math.exp(-x),
    "sigmoid": lambda x: math.exp(-x),
}
"""Bounds on the distance of a function from its limit, at x >= 1 and at -x."""


@dataclass(frozen=True)
class Binades:
    """Groups of the numbers of one sign and binade; see `Groups` for those of correct rounding."""

    spec: FunctionSpec
    demand: Demand

    @functools.cached_property
    def ends(self) -> tuple[int, int]:
        """Exponents below which, and from which on, numbers share polynomials."""
        _, factor, power = NEAR[self.spec.function]
        least, most = floor_log2(self.spec.a.smallest), floor_log2(max(self.spec.a.largest, -self.spec.a.lowest))
        low = -(self.demand.window + LIMIT + 1 + floor_log2(factor)) // power
        high = 1
        while high <= most:
            distance = FAR[self.spec.function](2.0**high)
            limits = 1.0 if self.spec.function in ODD else self.tiny
            if distance < min(2.0 ** -(self.demand.window + LIMIT), limits):
                break
            high += 1
        low = min(max(low, least), most)
        return low, max(min(high, most + 1), low)

    @property
    def tiny(self) -> float:
        """Half of a quarter of the smallest last place."""
        return 2.0 ** (self.demand.floor - self.demand.window - 2)

    @property
    def groups(self) -> list[int]:
        """Groups, in the bits of a sign and a binade."""
        low, high = self.ends
        last = high - low + 1
        signs = range(1 if self.spec.function in ODD or self.spec.a.lowest >= 0 else 2)
        return [sign << last.bit_length() | cluster for sign in signs for cluster in range(last + 1)]

    def is_relative(self, group: int) -> bool:
        """Return True if the exponent of the number is added to that of the value."""
        sign, cluster = self._parts(group)
        is_linear = self.spec.function in ("gelu", "silu") and not sign
        return self.spec.function != "sigmoid" and (cluster == 0 or (is_linear and cluster == self._last))

    @property
    def _last(self) -> int:
        return self.ends[1] - self.ends[0] + 1

    def _parts(self, group: int) -> tuple[int, int]:
        bits = self._last.bit_length()
        return group >> bits, group & ((1 << bits) - 1)

    @functools.lru_cache(maxsize=1 << 12)  # noqa: B019
    def pieces(self, group: int, segments: int) -> Pieces:
        """Return the function in one group."""
        sign, cluster = self._parts(group)
        if cluster in (0, self._last):
            return self._end(sign, cluster, segments)
        name, exponent, flip = self.spec.function, self.ends[0] - 1 + cluster, -1 if sign else 1
        start = np.ldexp(1 + _starts(segments), exponent)
        step = np.ldexp(1.0, exponent - segments)

        def value(u: float) -> Floats:
            return abs(VALUES[name](flip * (start + u * step)))

        low, high = (start, start + step) if flip > 0 else (-start - step, -start)
        bounds = taylor(name, low, high, max(DEGREES) + 2)
        sizes = [bound.size * step**k for k, bound in enumerate(bounds)]
        ends = np.stack([value(0), value(1)])
        # Without a sign of the derivative, the value exceeds those at the ends by an eighth of the second derivative.
        more = np.where(bounds[1].has_zero, sizes[2] / 4, 0)
        least = np.maximum(ends.min(0) * (1 - 2.0**-40) - more, 0)
        most = ends.max(0) * (1 + 2.0**-40) + more
        floor = self.demand.floor - self.demand.window - 2
        top = np.where(ends.max(0) > 0, np.frexp(np.maximum(most * (1 - 2.0**-39), 2.0**-900))[1] - 1, floor)
        return Pieces(value, sizes, least, most, np.maximum(top, floor), self.demand.quarter(least))

    @functools.lru_cache(maxsize=1 << 12)  # noqa: B019
    def lines(self, group: int, segments: int, degree: int) -> Floats:
        """Return the coefficients of the interpolating polynomials of a group."""
        return self.pieces(group, segments).lines(degree)

    def _end(self, sign: int, cluster: int, segments: int) -> Pieces:
        """Return the limit of a function near zero or far from it."""
        count, is_tiny = 1 << segments, bool(sign and cluster)
        slope = int(self.spec.function != "sigmoid" if cluster == 0 else self.is_relative(sign << 30 | cluster))
        scale = self.tiny if is_tiny else NEAR[self.spec.function][0] if cluster == 0 else 1.0
        start = slope * _starts(segments)
        low = scale * (1 + start) * (1 - 2.0**-40)
        high = scale * (1 + start + slope * 2.0**-segments) * (1 + 2.0**-40)
        # Values are below the limit, so that their last place may be that of the next lower exponent.
        relative = replace(self.demand, floor=-FARTHEST).quarter(low)
        other = high if is_tiny else high * 2.0 ** -(self.demand.window + LIMIT)
        slopes = np.full(count, slope * scale * 2.0**-segments)
        return Pieces(
            lambda u: scale * (1 + start + slope * u * 2.0**-segments),
            [high, slopes, *[np.zeros(count)] * max(DEGREES)],
            low,
            high,
            np.frexp(high * (1 - 2.0**-39))[1] - 1,
            (2 * self.tiny if is_tiny else relative) - other,
            other,
        )


# The search ---------------------------------------------------------------------------------------------------------

REDUCTIONS = {POWER: _power, LOGARITHM: _ratio, "angle": _turn}


def fit(spec: FunctionSpec) -> Polynomials:
    """Return the table of a description.

    Raises
    ------
    ValueError
        If no table within the limits of the search has a bound that is small enough.
    """
    demand = Demand.of(spec.result)
    tables = list(_of_binades(spec, demand) if KINDS[spec.function] == BINADES else _of_segments(spec, demand))
    if not tables:
        raise ValueError(f"no table of polynomials of up to {1 << MOST_SEGMENTS} segments is faithful for {spec}")
    return min(tables, key=cost)


def _of_segments(spec: FunctionSpec, demand: Demand) -> Iterator[Polynomials]:
    """Yield tables of functions that reduce their argument to one interval."""
    reduce = REDUCTIONS[KINDS[spec.function]]
    lines: dict[tuple[int, int], Floats] = {}
    for degree, more in itertools.product(DEGREES, MORE_BITS):
        bits = demand.window + more
        made = reduce(spec, demand, bits)
        for segments in range(1, min(MOST_SEGMENTS, made.width) + 1):
            pieces, rest = made.pieces(segments), made.width - segments
            if not pieces.fits(bits, degree):
                continue
            inner = _inner([pieces], bits, degree, rest)
            if (degree, segments) not in lines:
                lines[degree, segments] = pieces.lines(degree)
            rows, part = pieces.rows(lines[degree, segments], bits, rest, inner)
            if max(part, made.part) < 1:
                rows = tuple(map(tuple, rows.tolist()))
                bound = 0.5 + max(part, made.part) / 4
                yield replace(made.table, segments=segments, rest=rest, inner=inner, rows=rows, bound=bound)
                break


def _of_binades(spec: FunctionSpec, demand: Demand) -> Iterator[Polynomials]:
    """Yield tables of functions with polynomials for each binade."""
    binades = Binades(spec, demand)
    for degree in DEGREES:
        for more in MORE_BITS:
            table = _of_groups(binades, demand.window + more, degree)
            if table is not None:
                yield table
                break


def _of_groups(binades: Binades, bits: int, degree: int) -> Polynomials | None:
    """Return the table with the fewest polynomials in each group; None if the fraction bits do not suffice."""
    precision = binades.spec.a.precision
    width = precision - 1
    sizes, most = {}, min(width, MOST_SEGMENTS)
    for group in binades.groups:
        enough = (size for size in range(most + 1) if binades.pieces(group, size).fits(bits, degree))
        if (size := next(enough, None)) is None:
            return None
        sizes[group] = size
    while True:
        pieces = {group: binades.pieces(group, size) for group, size in sizes.items()}
        inner = _inner(list(pieces.values()), bits, degree, width)
        made = {
            group: piece.rows(binades.lines(group, sizes[group], degree), bits, width, inner)
            for group, piece in pieces.items()
        }
        failed = [group for group, (_, part) in made.items() if part >= 1]
        if not failed:
            break
        for group in failed:
            sizes[group] += 1
            if sizes[group] > most:
                return None
    low, high = binades.ends
    part = max(part for _, part in made.values())
    found: Found = {
        group: (
            sizes[group],
            rows.tolist(),
            [(exponent, binades.is_relative(group)) for exponent in pieces[group].exponent.tolist()],
        )
        for group, (rows, _) in made.items()
    }
    table = Polynomials(BINADES, precision, 0, width, inner, bits, (), low=low, high=high, bound=0.5 + part / 4)
    return grouped(table, found)


@functools.lru_cache(maxsize=64)
def table_of(spec: FunctionSpec) -> Polynomials:
    """Return the table of a description from the cache, or make it."""
    parts = spec.function, spec.a, spec.o

    def make() -> str:
        with Bar(f"fitting polynomials to {spec.function} from {spec.a} to {spec.o}; this is done once"):
            return fit(spec).text

    text = cached_value("faithful", (code("halfulp.hdl.fit.faithful"), *parts), make, name=spec.function)
    return Polynomials.read(text)
