"""Fits of functions by line segments that minimise the maximum error over all codes, after rounding."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from halfulp.hdl.formats import RN, Fixed, Float, Format, Rounding, parse
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.formats.checks import check_one_of
from halfulp.hdl.specs.pieces import Piece, PowerSum, last_place
from halfulp.hdl.specs.pwl import check_budget
from halfulp.hdl.specs.segments import Segments

from .error import Errors, errors
from .folding import Folding, folding_of
from .functions import Function, function_of
from .grid import Grid, fixed_for, grid_of
from .points import REDUCED_BITS, REFERENCES, Points, points_of
from .segmentation import Parts, Segmentation, Tail, TailLines, Task
from .small import Key, fewest_places, smallest_unit

SHARE = 1 / 16
"""Allowed growth of the error when coefficient formats are chosen; half of it is for the slopes."""

_EXACT = 52  # magnitude bits of integers that double precision holds
_MOST_PLACES, _MORE_PLACES = 32, 8
_STEEPEST = 1.5  # bound on slopes of reduced functions


@dataclass(frozen=True)
class Fit:
    """Result of a fit, with its parameters.

    Attributes
    ----------
    segments : Segments
    function : Function
    pieces : int
        Number of lines without saturation.
    error : float
        Maximum error in the measure of the fit. Without an error budget it is the minimum over all breakpoints and all
        coefficients of these formats that keep as much of the function's sign, f(0) and asymptotes.
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


def fit(  # noqa: PLR0913 - options of a public function, by name
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
        Function to fit; see `function_of`.
    fmt, out : Format or str
        Formats of argument and value, up to 16 bits; default of ``out``: ``fmt``.
    pieces : int, optional
        Number of lines; lines of saturation and of asymptotes are not counted.
    error : float or Fraction, optional
        Maximum error. Alone, it is met with the fewest pieces. With ``pieces`` as a limit, it is met with the
        coefficients and breakpoints that are expected to give the smallest unit.
    breakpoints : str
        ``free``; ``uniform`` for equal distances; ``power`` for changes of leading bits of the argument.
    slopes : str
        ``any``, or ``pow2`` for sums of signed powers of two.
    terms : int
        Maximum number of powers of a ``pow2`` slope.
    slope, intercept : Format or str, optional
        Formats of the coefficients. Default: fixed point of the fewest fraction bits that keep the error near that of
        unlimited coefficients: slopes add at most 1/32 of it, intercepts another 1/32. With ``error``, the fewest bits
        that meet it with the fewest pieces.
    interval : (number, number), optional
        Interval of the fit; numbers outside are replaced by the nearer end. Default: all numbers.
    symmetry : str, optional
        ``auto`` uses the symmetry of the function if the formats benefit. None uses none.
    reduction : str, optional
        ``auto`` uses the reduction of the function, for exp only if a format is not fixed point. None uses none.
    measure : str, optional
        Unit of errors: ``ulp`` of the result format at the value, or ``absolute``. Default with ``error``: ``ulp``.
        Default with ``pieces`` alone: ``ulp`` for fixed point, for reductions, whose results are of all sizes, and for
        ReLU and leaky ReLU; else ``absolute``.
    against : str
        Reference of errors: ``real`` for the function's value, ``rounded`` for its correctly rounded value.
    rounding : Rounding or str
        Rounding of the result.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type, or the request cannot be met.
    """
    if pieces is None and error is None:
        raise ValueError("a fit needs a number of pieces, an error, or both")
    check_budget(pieces=pieces, error=error, measure=measure, breakpoints=breakpoints, slopes=slopes, terms=terms)
    check_one_of("against", against, REFERENCES)
    if slopes == "pow2" and slope is not None:
        raise ValueError("slope does nothing with slopes=pow2; omit it")
    row, fmt, out = function_of(function), parse(fmt), parse(fmt if out is None else out)
    if error is not None:
        measure = measure or "ulp"
    folding = folding_of(row, fmt, out, interval, symmetry, reduction, measure)
    measure = measure or measure_of(row, out, folding.reduction)
    return _FitRequest(
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
    """Return the measure that a fit with a number of pieces alone minimises by default."""
    return "ulp" if out.spacing == "uniform" or reduction or function.scales else "absolute"


@dataclass(frozen=True)
class _FitRequest:
    """Checked parameters of a fit."""

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
        """Raise ValueError if given coefficient formats have more bits than double precision computes exactly."""
        argument = max(self.fmt.precision, self.folding.fraction)
        for held, what, most in ((self.slope, "slopes", _EXACT - argument), (self.intercept, "intercepts", _EXACT)):
            if held is not None and held.precision > most:
                raise ValueError(
                    f"{held} has {held.precision} significand bits; {what} of this fit have at most {most}"
                )

    def fit(self) -> Fit:
        self._check_widths()
        given = {name: getattr(self, name) for name in ("rounding", "measure", "against")}
        points = points_of(self.function, self.fmt, self.out, self.folding, **given)
        if self.out.wraps and np.isinf(points.rounding_table.values[points.nearest]).any():
            raise ValueError(f"{self.out} wraps and cannot hold all values of {self.function.name}")
        if self.error is not None and self.error < points.least_error():
            raise ValueError(
                f"an error of {self.error:g} is not possible: {self.function.name} rounded to {self.out} "
                f"has an error of {points.least_error():.6g}"
            )
        tails = self._tails(points)
        points, segmentation, slope, intercept = self._best(points, tails)
        try:
            segments = self._segments(points, segmentation.parts, slope, intercept)
        except ValueError as error:
            raise ValueError(
                f"{self.function.name} cannot be fitted in {self.out} with {segmentation.inner} pieces and rounding "
                f"{self.rounding}: {error}; use fewer pieces, another rounding or a more precise output format"
            ) from None
        return Fit(
            segments, self.function, segmentation.inner, segmentation.error, self.measure, self.rounding, self.folding
        )

    def _tails(self, points: Points) -> TailLines:
        """Return the lines that the function follows at the ends."""
        folding = self.folding
        if folding.reduction is not None:
            return TailLines()
        slopes: list[dict[float, float | None]] = [{}, {}]
        for side, first, second in ((0, 0, 1), (1, -1, -2)):
            asymptote = self.function.asymptote(bool(side))
            if folding.interval is None and asymptote is not None:
                # The intercept is free if the function does not reach its asymptote within the format.
                reached = points.lowest[first] == points.highest[first]
                slopes[side][asymptote[0]] = asymptote[1] if reached else None
            # The function is constant at an end: it saturates the output, or x is outside the interval.
            if (
                len(points.breakpoints) > 1
                and points.value[points.breakpoints[first]] == points.value[points.breakpoints[second]]
            ):
                saturates = points.nearest[first] in (0, len(points.rounding_table.values) - 1)
                if folding.interval is not None or saturates:
                    slopes[side].setdefault(0.0, None)
        if folding.symmetry is not None:
            slopes[0].clear()
        # A given slope format may not hold the slope of the asymptote.
        held = grid_of(self.slope) if self.slope is not None and self.power is None else None
        near: list[tuple[Tail, ...]] = [
            tuple(sorted(tail for tail in side.items() if held is None or tail[0] in held.near(tail[0])))
            for side in slopes
        ]
        return TailLines(*near)

    # Formats ---------------------------------------------------------------------------------------------------

    def _best(self, points: Points, tails: TailLines) -> tuple[Points, Segmentation, Format | PowerSum, Format]:
        """Return the best pieces, the points of their breakpoints, and the formats of their coefficients."""
        chosen: dict[str, Format | PowerSum | None] = {"slopes": self.power or self.slope, "intercepts": self.intercept}
        finest, task = self._widest(points, tails, chosen)
        try:
            self._check_ranges(replace(task, slopes=finest["slopes"], intercepts=finest["intercepts"]), chosen)
            names = [name for name, held in chosen.items() if held is None]
            if self.error is None:
                # A shape that costs nothing with fine coefficients may cost an error with those of few bits.
                both = dict.fromkeys((self._shaped(task, task.best(nearly=True))[0], task))
                tasks = [self._narrowed(problem, names) for problem in both]
                segmentation, task = min(
                    ((problem.best(), problem) for problem in tasks), key=lambda solution: solution[0].error
                )
            else:
                segmentation = task.fewest_pieces(self.error)
                if self.pieces is not None:
                    task = smallest_unit(task, self.error, names, self._key())
                else:
                    task = self._narrowed(self._shaped(task, segmentation)[0], names)
                segmentation = task.fewest_pieces(self.error)
            # Coefficients of few bits may have a larger error, which allows more of the shape.
            task, segmentation = self._shaped(task, segmentation, _bits(segmentation))
        except ValueError as error:
            asked = " and ".join(f"{name} in {held}" for name, held in chosen.items() if held is not None)
            raise ValueError(
                f"{self.function.name} cannot be fitted{f' with {asked}' if asked else ''}: {error}"
            ) from None
        segmentation = task.polished(segmentation)
        slope = chosen["slopes"] or _narrowest([line[0] for _, line in segmentation.parts])
        intercept = self.intercept or _narrowest([line[1] for _, line in segmentation.parts])
        return task.points, segmentation, slope, intercept

    def _shaped(self, task: Task, segmentation: Segmentation, most: float = inf) -> tuple[Task, Segmentation]:
        """Return the problem and pieces that keep more of the function's shape than those that are found.

        They need no larger error than the smallest or the given one, no more pieces, and at most ``most`` bits of
        coefficients.
        """
        error = segmentation.error if self.error is None else self.error
        if self.error is not None and self.breakpoints != "uniform":
            task = replace(task, pieces=segmentation.inner)
        for points in task.points.shaped():
            shaped = replace(task, points=points, tails=self._tails(points))
            if (kept := shaped.within(error)) is not None and _bits(kept) <= most:
                return shaped, kept
        return task, segmentation

    def _widest(
        self, points: Points, tails: TailLines, chosen: dict[str, Format | PowerSum | None]
    ) -> tuple[dict[str, Grid], Task]:
        """Return the grids of fine coefficients, and the problem with them where no format is given.

        Results of floats may be too small for coefficients in fixed point, which then have few significant bits.
        """
        fixed, digits = _finest(points, self.folding, self.fmt, self.out, self.measure)
        for finest in (fixed, digits):
            grids = {name: finest[name] if held is None else grid_of(held) for name, held in chosen.items()}
            task = Task(points, grids["slopes"], grids["intercepts"], tails, self.breakpoints, self.pieces)
            if digits is fixed or self.function.scales or (self.error is not None and task.meets(self.error)):
                break
        return finest, task

    def _key(self) -> Key | None:
        """Return the bits of the argument whose leading part selects the piece in a unit; None for floats."""
        folding = self.folding
        if folding.reduction == "exp2":
            return Key(folding.fraction, folding.fraction)
        if folding.reduction is not None:
            return Key(REDUCED_BITS + (2 if folding.reduction == "rsqrt" else 1), REDUCED_BITS)
        return Key(self.fmt.width, -self.fmt.quantum) if self.fmt.spacing == "uniform" else None

    def _check_ranges(self, task: Task, chosen: dict[str, Format | PowerSum | None]) -> None:
        """Raise ValueError if a given format cannot hold coefficients as large as those of the best fit."""
        named = {name: held for name, held in chosen.items() if isinstance(held, Format)}
        if not named:
            return
        segmentation = task.best(nearly=True) if self.error is None else task.fewest_pieces(self.error)
        for place, (name, what) in enumerate((("slopes", "slope"), ("intercepts", "intercept"))):
            if (held := named.get(name)) is None:
                continue
            grid = grid_of(held)
            for _, line in segmentation.parts:
                # A coefficient that rounds to the end of the range is accepted.
                inner = [end + (end - grid.neighbours(end)[0]) for end in (grid.low, grid.high)]
                if not inner[0] <= line[place] <= inner[1]:
                    raise ValueError(f"{held} cannot hold a {what} of {line[place]:.6g}")

    def _narrowed(self, task: Task, names: list[str]) -> Task:
        """Reduce the fraction bits of coefficients as far as the error allows."""
        if not names:
            return task
        if self.error is None:
            least = task.best(nearly=True).error
            bounds = {"slopes": least * (1 + SHARE / 2), "intercepts": least * (1 + SHARE)}
        else:
            bounds = dict.fromkeys(names, self.error)
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
        """Return the special values of the function at NaN, infinities and zeros."""
        function = self.function
        specials: dict[str, Any] = {"nan": function.nan, "zero": function.zero, "minus_zero": function.minus_zero}
        if self.fmt.has_inf:
            specials |= {"inf": function.inf, "minus_inf": function.minus_inf}
        if self.folding.symmetry is None:
            specials["negative"] = function.negative
        return specials

    def _with_zero(self, segments: Segments) -> Segments:
        """Set the value at -0 to -0 if the function is increasing through zero."""
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


def _finest(
    points: Points, folding: Folding, fmt: Format, out: Format, measure: str
) -> tuple[dict[str, Grid], dict[str, Grid]]:
    """Return grids of coefficients that are fine and wide enough for the best fit.

    The first are in fixed point. The second have few significant bits where fixed point has too few fraction bits.
    """
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
        # The best line is parallel to the function at some point, and its distance there is at most the error.
        rise = 2 * float(np.max(intercepts[np.isfinite(intercepts)], initial=1.0))
    cancelled, clipped = 0, places + _MORE_PLACES > _MOST_PLACES
    if clipped:
        # Product and intercept of a line may cancel most of each other.
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            ratio = np.abs(slopes * t[1:] / value[1:])
        cancelled = int(np.ceil(np.log2(np.max(ratio[np.isfinite(ratio)], initial=1.0))))
    grids, digits = {}, {}
    for name, largest, precision in (
        ("slopes", steepest, max(fmt.precision, folding.fraction) + 1),
        ("intercepts", rise, 0),
    ):
        bits = int(np.ceil(np.log2(largest))) + 1
        # Products of slopes and arguments are exact in double precision.
        last = min(max(places, 0) + _MORE_PLACES, _EXACT - precision - bits, _MOST_PLACES)
        grids[name] = Grid(-(2.0**bits), 2.0**bits, 2.0**-last)
        most = min(out.precision + _MORE_PLACES + cancelled, _EXACT - precision)
        digits[name] = Grid(-(2.0**bits), 2.0**bits, digits=most)
    return grids, digits if clipped else grids


def _bits(segmentation: Segmentation) -> int:
    """Return the width of both coefficients."""
    return sum(_narrowest([line[place] for _, line in segmentation.parts]).width for place in (0, 1))


def _narrowest(numbers: list[float]) -> Fixed | Float:
    """Return the narrowest fixed-point format of some numbers, or the narrowest float if they differ in size."""
    exact = [Fraction(number) for number in numbers if number]
    last = [last_place(number) for number in exact]
    places = max(0, -min(last, default=0))
    if places <= _MOST_PLACES:
        return fixed_for(min(numbers), max(numbers), places)
    first = [floor_log2(abs(number)) for number in exact]
    exponents = max(first) - min(first) + 1
    man = max(high - low for high, low in zip(first, last, strict=True))
    return Float(max(exponents.bit_length(), 2), max(man, 1), bias=1 - min(first), specials="finite")
