"""Functions to line segments: the smallest largest error over all codes, after coefficients and results are rounded."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from halfulp.hdl.formats import RN, Fixed, Format, Rounding, parse
from halfulp.hdl.formats.checks import check_one_of
from halfulp.hdl.specs.pieces import Piece, PowerSum
from halfulp.hdl.specs.piecewise import check_budget
from halfulp.hdl.specs.segments import Segments

from .error import Errors, errors
from .folding import Folding, folding_of
from .functions import Function, function_of
from .grid import Grid, fixed_for, grid_of
from .lean import Key, fewest_places, leanest
from .points import BEHIND, MEASURES, REFERENCES, Points, points_of
from .segmentation import Found, Parts, Tails, Task

SHARE = 1 / 16
"""Growth of the error that is allowed where formats of coefficients are chosen; half of it is the slope's."""

_EXACT = 52  # bits of integers, and one for their sign, that double precision holds
_MOST_PLACES, _MORE_PLACES = 32, 8
_STEEPEST = 1.5  # the steepest of the functions on the intervals that arguments are reduced to


@dataclass(frozen=True)
class Fit:
    """A fit, with the parameters that it was made for.

    Attributes
    ----------
    segments : Segments
    function : Function
    pieces : int
        Lines that are not saturation.
    error : float
        The largest, as it was measured for the fit. Where this was to be as small as can be, no other breakpoints and
        coefficients of these formats leave less.
    measure : str
    rounding : Rounding
    folding : Folding
    """

    segments: Segments
    function: Function
    pieces: int
    error: float
    measure: str
    rounding: Rounding
    folding: Folding

    @cached_property
    def errors(self) -> Errors:
        """Errors over all codes."""
        return errors(self.segments, self.function, interval=self.folding.interval, rounding=self.rounding)


def fit(
    function: str | Function | Callable[[Any], Any],
    fmt: Format | str,
    out: Format | str | None = None,
    *,
    pieces: int | None = None,
    error: float | Fraction | None = None,
    breakpoints: str = "free",
    slopes: str = "any",
    terms: int = 2,
    slope: Format | str | None = None,
    intercept: Format | str | None = None,
    interval: tuple[Any, Any] | None = None,
    symmetry: str | None = "auto",
    reduction: str | None = "auto",
    measure: str | None = None,
    against: str = "real",
    rounding: Rounding | str = RN,
) -> Fit:
    """Approximate a function by line segments.

    Parameters
    ----------
    function : str, Function or callable
        See `function_of`.
    fmt, out : Format or str
        Of argument and value, of up to 16 bits; by default the same.
    pieces : int, optional
        Lines; those of saturation, where the function goes along a line, are beside them.
    error : float or Fraction, optional
        The largest that there may be. Instead of ``pieces``: with as few as do it. Beside ``pieces``, which then are
        the most: with the coefficients and breakpoints that are expected to make the smallest unit.
    breakpoints : str
        ``free``; ``uniform``: at equal distances; ``power``: where leading bits of the argument change.
    slopes : str
        ``any``, or ``pow2``: sums of signed powers of two.
    terms : int
        Of ``pow2``: how many powers.
    slope, intercept : Format or str, optional
        What coefficients are held in. By default the narrowest fixed point whose fraction bits keep the error near
        what it is with coefficients of any number of bits: those of the slope add a 32nd of it, those of the intercept
        then as much again; with ``error`` those with which the fewest pieces do it.
    interval : (number, number), optional
        What is outside is taken as its nearer end; by default all numbers.
    symmetry : str, optional
        ``auto``: what the function has, where the formats make it of use. None: no table is folded.
    reduction : str, optional
        ``auto``: what the function has; of exp only where a format is not fixed point. None: none.
    measure : str, optional
        ``ulp``: errors are in units of the last place of the value; ``absolute``. By default the former for fixed point
        and with a reduction, whose results have all sizes alike, and for ReLU and leaky ReLU, else the latter.
    against : str
        ``real``: the function's value, or ``rounded``: that value correctly rounded.
    rounding : Rounding or str
        Of the result.

    Raises
    ------
    TypeError, ValueError
        If something is of the wrong kind, or is asked that cannot be.
    """
    if pieces is None and error is None:
        raise ValueError("a fit is asked for by a number of pieces, by an error, or by both")
    check_budget(pieces=pieces, error=error, breakpoints=breakpoints, slopes=slopes, terms=terms)
    check_one_of("against", against, REFERENCES)
    if slopes == "pow2" and slope is not None:
        raise ValueError("slopes that are sums of powers of two have no format; leave slope out")
    row, fmt, out = function_of(function), parse(fmt), parse(fmt if out is None else out)
    folding = folding_of(row, fmt, out, interval, symmetry, reduction, measure)
    measure = measure or measure_of(row, out, folding.reduction)
    check_one_of("measure", measure, MEASURES)
    return _Asked(
        function=row,
        fmt=fmt,
        out=out,
        folding=folding,
        pieces=pieces,
        error=None if error is None else float(error),
        breakpoints=breakpoints,
        power=PowerSum(terms) if slopes == "pow2" else None,
        slope=None if slope is None else parse(slope),
        intercept=None if intercept is None else parse(intercept),
        measure=measure,
        against=against,
        rounding=Rounding.parse(rounding),
    ).fit()


def measure_of(function: Function, out: Format, reduction: str | None) -> str:
    """Default measure of a fit's errors."""
    return "ulp" if out.spacing == "uniform" or reduction or function.scales else "absolute"


@dataclass(frozen=True)
class _Asked:
    """Parameters of a fit, checked."""

    function: Function
    fmt: Format
    out: Format
    folding: Folding
    pieces: int | None
    error: float | None
    breakpoints: str
    power: PowerSum | None
    slope: Format | None
    intercept: Format | None
    measure: str
    against: str
    rounding: Rounding

    def _check_widths(self) -> None:
        """Raise ValueError if lines of named coefficients have more bits than double precision is exact in."""
        argument = max(self.fmt.precision, self.folding.fraction)
        for held, what, most in ((self.slope, "slopes", _EXACT - argument), (self.intercept, "intercepts", _EXACT)):
            if held is not None and held.precision > most:
                raise ValueError(
                    f"{held} has {held.precision} significant bits; {what} of a fit have up to {most} here"
                )

    def fit(self) -> Fit:
        self._check_widths()
        given = {name: getattr(self, name) for name in ("rounding", "measure", "against")}
        points = points_of(self.function, self.fmt, self.out, self.folding, **given)
        if self.out.wraps and np.isinf(points.rounding_table.values[points.nearest]).any():
            raise ValueError(f"{self.out} cannot hold {self.function.name} on these numbers, and it wraps")
        if self.error is not None and self.error < points.least():
            raise ValueError(
                f"{self.function.name} in {self.out} is never nearer than {points.least():.6g} everywhere, "
                f"and {self.error:g} was asked for"
            )
        tails = self._tails(points)
        points, found, slope, intercept = self._best(points, tails)
        try:
            segments = self._segments(points, found.parts, slope, intercept)
        except ValueError as error:
            raise ValueError(
                f"{self.function.name} cannot be fitted in {self.out} with {found.inner} pieces and rounding "
                f"{self.rounding}: {error}; take fewer pieces, another rounding or a more precise output format"
            ) from None
        return Fit(segments, self.function, found.inner, found.error, self.measure, self.rounding, self.folding)

    def _tails(self, points: Points) -> Tails:
        """Slopes of the lines that the function goes along at the ends."""
        folding = self.folding
        if folding.reduction is not None:
            return Tails()
        left, right = self.function.left, self.function.right
        slopes: list[set[float]] = [set(), set()]
        for side, asymptote, first, second in ((0, left, 0, 1), (1, right, -1, -2)):
            if folding.interval is None and asymptote is not None:
                slopes[side].add(float(asymptote))
            # A value at the end of the range of the output, or outside of the interval.
            if (
                len(points.breakpoints) > 1
                and points.value[points.breakpoints[first]] == points.value[points.breakpoints[second]]
            ):
                saturates = points.nearest[first] in (0, len(points.rounding_table.values) - 1)
                if folding.interval is not None or saturates:
                    slopes[side].add(0.0)
        if folding.symmetry is not None:
            slopes[0].clear()
        # A user's slopes may not have the asymptote's.
        held = grid_of(self.slope) if self.slope is not None and self.power is None else None
        near = [tuple(sorted(s for s in side if held is None or s in held.near(s))) for side in slopes]
        return Tails(*near)

    # Formats ---------------------------------------------------------------------------------------------------

    def _best(self, points: Points, tails: Tails) -> tuple[Points, Found, Format | PowerSum, Format]:
        """The best pieces, the points at which these may begin, and formats of their coefficients."""
        chosen: dict[str, Format | PowerSum | None] = {"slopes": self.power or self.slope, "intercepts": self.intercept}
        finest = _finest(points, self.folding, self.fmt, self.out, self.measure)
        grids = {name: finest[name] if held is None else grid_of(held) for name, held in chosen.items()}
        task = Task(points, grids["slopes"], grids["intercepts"], tails, self.breakpoints, self.pieces)
        try:
            self._check_ranges(replace(task, slopes=finest["slopes"], intercepts=finest["intercepts"]), chosen)
            task = self._narrowed(task, [name for name, held in chosen.items() if held is None], self._key())
            found = task.best() if self.error is None else task.reached(self.error)
        except ValueError as error:
            asked = " and ".join(f"{name} in {held}" for name, held in chosen.items() if held is not None)
            raise ValueError(
                f"{self.function.name} cannot be fitted{f' with {asked}' if asked else ''}: {error}"
            ) from None
        found = task.polished(found)
        slope = chosen["slopes"] or _narrowest([line[0] for _, line in found.parts], task.slopes.step)
        intercept = self.intercept or _narrowest([line[1] for _, line in found.parts], task.intercepts.step)
        return task.points, found, slope, intercept

    def _key(self) -> Key | None:
        """Integers whose leading bits a unit takes to find the piece of an argument."""
        folding = self.folding
        if folding.reduction == "exp2":
            return Key(folding.fraction, folding.fraction)
        if folding.reduction is not None:
            return Key(BEHIND + (2 if folding.reduction == "rsqrt" else 1), BEHIND)
        return Key(self.fmt.width, -self.fmt.quantum) if self.fmt.spacing == "uniform" else None

    def _check_ranges(self, task: Task, chosen: dict[str, Format | PowerSum | None]) -> None:
        """Raise ValueError if a format that was named has no coefficients as large as the best ones of any format."""
        named = {name: held for name, held in chosen.items() if isinstance(held, Format)}
        if not named:
            return
        found = task.best(nearly=True) if self.error is None else task.reached(self.error)
        for place, (name, what) in enumerate((("slopes", "slope"), ("intercepts", "intercept"))):
            if (held := named.get(name)) is None:
                continue
            grid = grid_of(held)
            for _, line in found.parts:
                # What is rounded to the end of the range is held well enough.
                inner = [end + (end - grid.beside(end)[0]) for end in (grid.low, grid.high)]
                if not inner[0] <= line[place] <= inner[1]:
                    raise ValueError(f"{held} cannot hold a {what} of {line[place]:.6g}")

    def _narrowed(self, task: Task, names: list[str], key: Key | None) -> Task:
        """With as few fraction bits of these coefficients as come near the error of many."""
        if self.error is not None and self.pieces is not None:
            task.reached(self.error)
            return leanest(task, self.error, names, key)
        if not names:
            return task
        if self.error is None:
            least = task.best(nearly=True).error
            bounds = {"slopes": least * (1 + SHARE / 2), "intercepts": least * (1 + SHARE)}
        else:
            bounds = dict.fromkeys(names, self.error)
            task = replace(task, pieces=task.reached(self.error).inner)
        for name in names:
            task = fewest_places(task, name, bounds[name])
        return task

    # The table -------------------------------------------------------------------------------------------------

    def _segments(self, points: Points, parts: Parts, slope: Format | PowerSum, intercept: Format) -> Segments:
        pieces: list[Piece] = []
        for place, line in parts:
            start = Fraction(float(points.t[points.breakpoints[place]]))
            piece = Piece(start, Fraction(line[0]), Fraction(line[1]))
            if not pieces or (pieces[-1].slope, pieces[-1].intercept) != (piece.slope, piece.intercept):
                pieces.append(piece)
        folding = self.folding
        folded = {item.name: getattr(folding, item.name) for item in fields(folding) if item.name != "interval"}
        segments = Segments(
            self.function.name,
            self.fmt,
            self.out,
            slope,
            intercept,
            tuple(pieces),
            **folded,
            **(self._specials() if folding.interval is None else {}),
        )
        return self._with_zero(segments) if folding.interval is None else segments

    def _specials(self) -> dict[str, Any]:
        """Values of the function at NaN, infinities and zeros, as far as there are any."""
        function = self.function
        found: dict[str, Any] = {"nan": function.nan, "zero": function.zero, "minus_zero": function.minus_zero}
        if self.fmt.has_inf:
            found |= {"inf": function.inf, "minus_inf": function.minus_inf}
        if self.folding.symmetry is None:
            found["negative"] = function.negative
        return found

    def _with_zero(self, segments: Segments) -> Segments:
        """Segments whose value at -0 is -0 where the function grows through zero."""
        if (
            segments.minus_zero is None
            and segments.symmetry in (None, "linear")
            and self.fmt.has_negative_zero
            and self.out.has_negative_zero
            and self.function.exact(Fraction(0)) == 0
            and self.function.name != "relu"
            and segments.value(Fraction(0)) == 0
        ):
            return replace(segments, minus_zero="-0")
        return segments


def _finest(points: Points, folding: Folding, fmt: Format, out: Format, measure: str) -> dict[str, Grid]:
    """Coefficients of so many bits that more are no better, and of all sizes that lines near the function have."""
    places = out.precision
    if out.spacing == "uniform":
        places = -out.quantum
    elif measure == "ulp" and folding.reduction is None:
        places = max(out.precision, 2 - out.quantum)
    steepest, rise = _STEEPEST, 2.0
    if folding.reduction is None:
        value, t = points.value[points.breakpoints], points.t[points.breakpoints]
        with np.errstate(invalid="ignore", over="ignore"):
            slopes = np.diff(value) / np.diff(t)
            intercepts = np.abs(value[1:] - slopes * t[1:])
        steepest = float(np.max(np.abs(slopes[np.isfinite(slopes)]), initial=1.0))
        # The best line is parallel to the function somewhere, and no farther from it there than its error.
        rise = 2 * float(np.max(intercepts[np.isfinite(intercepts)], initial=1.0))
    grids = {}
    for name, largest, precision in (
        ("slopes", steepest, max(fmt.precision, folding.fraction) + 1),
        ("intercepts", rise, 0),
    ):
        bits = int(np.ceil(np.log2(largest))) + 1
        # A product with an argument is exact in double precision.
        last = min(max(places, 0) + _MORE_PLACES, _EXACT - precision - bits, _MOST_PLACES)
        grids[name] = Grid(-(2.0**bits), 2.0**bits, 2.0**-last)
    return grids


def _narrowest(numbers: list[float], step: float) -> Fixed:
    """The narrowest format of all these multiples of a step."""
    places = round(-np.log2(step))
    while places > 0 and all((number * 2.0 ** (places - 1)).is_integer() for number in map(float, numbers)):
        places -= 1
    return fixed_for(min(numbers), max(numbers), places)
