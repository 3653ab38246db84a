"""Report of functions as line segments: error over every code, and cost, for each number of pieces."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from halfulp.boards.targets import TARGETS, Target
from halfulp.fpga.synth.measure import Cost, measure_modules, module_of
from halfulp.hdl.fit.error import Errors, errors
from halfulp.hdl.fit.fit import measure_of
from halfulp.hdl.fit.functions import function_of
from halfulp.hdl.fit.rounding_table import check_width
from halfulp.hdl.fit.store import entry_of, segments_of
from halfulp.hdl.formats import Format, parse
from halfulp.hdl.specs.segments import Segments
from halfulp.implementation import Implementation, short
from halfulp.tools.cache import Entry
from halfulp.tools.jobs import LOCAL, Job, JobPool
from halfulp.tools.plots import Approximation, plot_approximations
from halfulp.tools.progress import Progress, silent
from halfulp.tools.report import Report, versions
from halfulp.tools.tables import Table

KINDS = ("free", "uniform")
"""Kinds of breakpoints that are compared; a small unit is added for each pair."""


@dataclass(frozen=True)
class Case:
    """Unit of the report: a function, its number of pieces, and optionally a limit of the error."""

    fn: str
    fmt: Format
    out: Format
    pieces: int
    breakpoints: str
    slopes: str
    error: float | None = None
    measure: str | None = None

    @property
    def _fit(self) -> dict[str, Any]:
        """Options that differ from the defaults; without defaults, other commands share the cached fit."""
        defaults = {"breakpoints": "free", "slopes": "any", "error": None, "measure": None}
        own = {name: getattr(self, name) for name in defaults}
        return {"pieces": self.pieces} | {name: own[name] for name in own if own[name] != defaults[name]}

    @property
    def even(self) -> "Case":
        """Same case with uniform breakpoints."""
        return replace(self, breakpoints="uniform", error=None, measure=None)

    def table(self) -> Segments:
        """Return the segments, from the cache or by fitting."""
        return segments_of(self.fn, fmt=self.fmt, out=self.out, **self._fit)

    def entry(self) -> Entry:
        """Return the cache entry of the segments."""
        return entry_of(self.fn, fmt=self.fmt, out=self.out, **self._fit)

    def implementation(self) -> Implementation:
        """Return the unit that computes the segments."""
        return short("pwl", str(self.fmt), to=str(self.out), fn=self.fn, **self._fit)


@dataclass(frozen=True, eq=False)
class Measured:
    """Segments of a unit, with their errors over all codes, and the cost of the unit."""

    table: Segments
    errors: Errors
    cost: Cost


def cases(
    functions: Sequence[str], fmt: str, pieces: Sequence[int], *, to: str | None = None, slopes: str = "any"
) -> list[Case]:
    """Return the cases of all functions and numbers of pieces, with free and with uniform breakpoints.

    ValueError if a function or a format is unknown, or a format has too many codes to test all.
    """
    if not functions:
        raise ValueError("no function is named; expected one or more, such as tanh")
    taken, result = parse(fmt), parse(fmt if to is None else to)
    for number_format in (taken, result):
        check_width(number_format)
    for name in functions:
        function_of(name)
    return [
        Case(name, taken, result, count, kind, slopes)
        for name in dict.fromkeys(functions)
        for count in dict.fromkeys(pieces)
        for kind in KINDS
    ]


def study(
    wanted: Sequence[Case],
    target: Target = TARGETS["vu9p"],
    progress: Progress = silent,
    pool: JobPool = LOCAL,
) -> dict[Case, Measured]:
    """Fit all cases, measure their errors, and synthesise their units; ValueError if a fit is impossible."""
    progress.total("fits", len(wanted) + len(wanted) // len(KINDS))
    fitted: dict[Case, tuple[Segments, Errors]] = {}

    def take(cases: Sequence[Case]) -> None:
        jobs = ((case.entry(), Job(f"the fit of {case.fn}", fit, (case,))) for case in cases)
        pool.results(jobs, versions=partial(versions, "mpmath", "numpy"), here="process")
        for case in cases:
            segments = case.table()
            fitted[case] = segments, errors(segments, function_of(case.fn))
            progress.advance(1)

    take(wanted)
    free = [case for case in wanted if case.breakpoints == "free"]
    take([small(case, *(fitted[variant] for variant in (case, case.even))) for case in free])
    progress.total("synthesis", len(fitted))
    costs = measure_modules((module_of(case.implementation()) for case in fitted), target, progress, pool=pool)
    measured = (Measured(*fit, cost) for fit, cost in zip(fitted.values(), costs, strict=True))
    return dict(zip(fitted, measured, strict=True))


def fit(case: Case) -> str:
    """Fit the segments of a case and return their text."""
    return case.table().text


def small(case: Case, *sides: tuple[Segments, Errors]) -> Case:
    """Return a case whose error limit is halfway between the errors of two other cases."""
    measure = measure_of(function_of(case.fn), case.out, sides[0][0].reduction)
    largest = [float((side.ulp if measure == "ulp" else side.absolute).max()) for _, side in sides]
    # The default measure of an error is ulp.
    return replace(case, error=max(sum(largest) / 2, largest[0]), measure=None if measure == "ulp" else measure)


def table(measured: dict[Case, Measured], target: Target) -> Table:
    """Return a table with a row per function and number of pieces: free, uniform and small units."""
    first = next(iter(measured))
    rows = []
    for case, unit in measured.items():
        if case.error is not None:
            free, even = measured[replace(case, error=None, measure=None)], measured[case.even]
            named = {"function": case.fn, "pieces": case.pieces}
            rows.append(named | _cells(free) | _cells(even, "uniform ") | _cells(unit, "small "))
    kinds = ("", "uniform ", "small ")
    figures = {f"{kind}{name}": ".2f" for kind in kinds for name in ("max ulp", "mean ulp")}
    figures |= {f"{kind}{name}": ".2e" for kind in kinds for name in ("max", "mean")}
    figures |= {f"{kind}at": ".6g" for kind in kinds}
    formats = f"{first.fmt}" if first.out == first.fmt else f"{first.fmt} to {first.out}"
    return Table(
        f"Line segments in {formats}",
        pd.DataFrame(rows),
        figures,
        [
            "Errors are over all codes, with rounded slopes, intercepts and results, against values of 53 bits: in "
            "units of the last place of the value (ulp), and absolute.",
            "Off: largest distance of a result from the correctly rounded one, in numbers of the format. At: argument "
            "of the largest error in ulp, the one nearest to zero if there are several.",
            "Pieces where the function saturates do not count as pieces. Uniform: the same number of pieces with "
            "breakpoints at equal distances and the best coefficients for them.",
            "Small: at most that number of pieces, with an error at most halfway between free and uniform, and the "
            "breakpoints and coefficients with the smallest expected unit.",
            f"Cost: {Cost.origin(target)}. LUT is the sum of LUT1 to LUT6; path counts cells on the longest "
            "path. The multiplier uses lookup tables.",
        ],
        only_csv=(
            *("slope", "intercept"),
            *(f"{kind}{name}" for kind in kinds[1:] for name in ("off", "at", "max", "mean ulp", "mean")),
            *(f"{kind}{name}" for kind in kinds[1:] for name in ("slope", "intercept")),
        ),
    )


def _cells(unit: Measured, kind: str = "") -> dict[str, Any]:
    """Return the figures of a unit as cells of a table."""
    cells = {
        "max ulp": unit.errors.ulp.max(),
        "mean ulp": unit.errors.ulp.mean(),
        "off": unit.errors.off.max(),
        "max": unit.errors.absolute.max(),
        "mean": unit.errors.absolute.mean(),
        "at": unit.errors.at,
        "slope": str(unit.table.slope),
        "intercept": str(unit.table.intercept),
        "LUT": unit.cost.lut,
        "path": unit.cost.path,
    }
    return {f"{kind}{name}": cell for name, cell in cells.items()}


def report(measured: dict[Case, Measured], target: Target, command: str) -> Report:
    """Return the report: the table and the plot."""
    tables, plots = {"pwl": table(measured, target)}, {"pwl": partial(plot, measured)}
    return Report(tables, plots, title="Functions as line segments", made_by=command)


def plot(measured: dict[Case, Measured]) -> Any:
    """Plot each function, its approximations and their errors."""
    panels = {}
    free = {case: unit for case, unit in measured.items() if case.breakpoints == "free" and case.error is None}
    for name in dict.fromkeys(case.fn for case in free):
        own = [(case, unit) for case, unit in free.items() if case.fn == name]
        first = own[0][1].errors
        near = np.flatnonzero((np.abs(first.x) <= _NEAR_ZERO) & np.isfinite(first.value))
        bins = np.arange(0, len(near), max(len(near) // _DRAWN, 1))
        shown = near[bins]
        lines = [
            Approximation(
                f"{case.pieces} segments",
                unit.errors.got[shown].tolist(),
                np.maximum.reduceat(unit.errors.ulp[near], bins).tolist(),
            )
            for case, unit in own
        ]
        panels[f"{name}, {own[0][0].fmt}"] = (first.x[shown].tolist(), first.value[shown].tolist(), lines)
    return plot_approximations(panels, title="Functions as line segments", label="largest error, ulp")


_DRAWN = 512  # points per curve; each shows the largest error of its bin of arguments
_NEAR_ZERO = 8.0  # largest magnitude of the plotted arguments
