"""Choice of a build: the smallest one of a unit that meets a clock after place and route."""

import itertools
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pandas as pd

from halfulp.boards.targets import FAMILIES, Target, check_route, target_of, used_blocks
from halfulp.fpga.synth.measure import Cost, module_of
from halfulp.fpga.synth.route import frequencies
from halfulp.fpga.synth.stages import near_stages
from halfulp.hdl.specs.build import EAGER, GOALS, STRUCTURES, Build
from halfulp.implementation import STRUCTURES as CHOICES
from halfulp.implementation import Implementation
from halfulp.tools.cache import Entry
from halfulp.tools.digests import code
from halfulp.tools.errors import CheckError
from halfulp.tools.jobs import LOCAL, Job, JobPool
from halfulp.tools.pareto import undominated
from halfulp.tools.plots import Panel, plot_front
from halfulp.tools.progress import Progress, silent
from halfulp.tools.report import Report
from halfulp.tools.tables import Table

from .limits import limit_notes
from .resources import measure_units, yosys_notes

CLOSE = 0.9
"""Share of the clock from which on a build that misses it is tried with the register placements of other families."""

WAVE = 4
"""Builds that are placed and routed at a time; a constant, so that all machines try the same builds."""

_VALUES = {"dsp": (False, True), "stochastic": (None, EAGER), "goal": GOALS, "structure": (None, *STRUCTURES)}


@dataclass(frozen=True)
class Tried:
    """Measured build of a unit.

    Attributes
    ----------
    unit : Implementation
    cost : Cost
        Without a clock if the build was not placed and routed.
    """

    unit: Implementation
    cost: Cost

    @property
    def options(self) -> str:
        """Options of the build on the command line."""
        return shlex.join(self.unit.build.options) or "default"

    def size(self, target: Target) -> tuple[Any, ...]:
        """Return the key that orders builds: LUT with carry, blocks, flip-flops, latency, and text."""
        cost = self.cost
        blocks = cost.dsp + cost.bram + cost.uram
        return cost.lut_with_carry(target), blocks, cost.ff, self.unit.component().latency, str(self.unit)


@dataclass(frozen=True)
class Choice:
    """Result of `choose`.

    Attributes
    ----------
    unit : Implementation
    target : Target
    clock_mhz : float
    tried : tuple of Tried
        Measured builds, from the smallest on.
    """

    unit: Implementation
    target: Target
    clock_mhz: float
    tried: tuple[Tried, ...]

    @property
    def chosen(self) -> Tried | None:
        """The smallest build that meets the clock after place and route; None if no measured build does."""
        return next((tried for tried in self.tried if self._meets(tried)), None)

    def _meets(self, tried: Tried) -> bool:
        return tried.cost.fmax is not None and tried.cost.fmax >= self.clock_mhz

    def reached(self, share: float) -> list[Tried]:
        """Return the builds that reach a share of the clock and miss it, of those that are smaller than the choice."""
        smaller = itertools.takewhile(lambda own: not self._meets(own), self.tried)
        return [own for own in smaller if own.cost.fmax is not None and own.cost.fmax >= share * self.clock_mhz]

    def limit(self, tried: Tried) -> str | None:
        """Return the part whose maximum clock is below the requested one; None if there is none."""
        mhz, part = self.target.max_clock(used_blocks(tried.cost))
        return f"{part}: {mhz} MHz" if mhz < self.clock_mhz else None

    def check(self) -> None:
        """Raise CheckError if no measured build meets the clock."""
        if self.chosen is not None:
            return
        clocks = {tried: tried.cost.fmax for tried in self.tried if tried.cost.fmax is not None}
        wanted = f"{self.clock_mhz:g} MHz on {self.target.name}"
        if not clocks:
            raise CheckError(
                f"no build of {self.unit.spec.text} is near {wanted} by the delay model; give numbers of stages by "
                "--stages to measure them, or request a slower clock"
            )
        best = max(clocks, key=clocks.__getitem__)
        raise CheckError(
            f"no measured build of {self.unit.spec.text} meets {wanted} after place and route; the fastest, "
            f"{best.options}, reaches {clocks[best]:.2f} MHz{best.unit.component().faster_sums}"
        )

    def data(self) -> dict[str, Any]:
        """Return the choice as data for JSON; None if there is none."""
        chosen = self.chosen
        if chosen is None:
            return {"chosen": None}
        unit = chosen.unit
        return {
            "chosen": {"unit": str(unit), "build": unit.build, "MHz": chosen.cost.fmax, "emit": unit.command("emit")}
        }

    def report(self, command: str) -> Report:
        """Return the table and the plot of all measured builds."""
        results = [self._result(tried) for tried in self.tried]
        rows = [
            {
                "build": tried.options,
                "latency": tried.unit.component().latency,
                "LUT with carry": tried.cost.lut_with_carry(self.target),
                **tried.cost.counts(),
                "path": tried.cost.path,
                "MHz": tried.cost.fmax,
                "result": result,
            }
            for tried, result in zip(self.tried, results, strict=True)
        ]
        costs = {str(tried.unit): tried.cost for tried in self.tried}
        notes = [
            *yosys_notes(costs, self.target, self.clock_mhz),
            "Builds are in the order of their size: LUT with carry, blocks, FF, latency. Chosen: the first that meets "
            "the clock. Larger: not placed and routed, because a smaller one meets it.",
            *limit_notes([cost.fmax for cost in costs.values()], self.target),
        ]
        tables = {"choose": Table(self._title, pd.DataFrame(rows), {"MHz": ".1f"}, notes)} if rows else {}
        plots = {"choose": self._plot} if any(cost.fmax for cost in costs.values()) else {}
        return Report(tables, plots, title="Choice of a build", made_by=command)

    @property
    def _title(self) -> str:
        return f"Builds of {self.unit.spec.text} for {self.clock_mhz:g} MHz on {self.target.name}"

    def _result(self, tried: Tried) -> str:
        if tried == self.chosen:
            return "chosen"
        if tried.cost.fmax is None:
            return self.limit(tried) or "larger"
        return "meets" if self._meets(tried) else "misses"

    def _plot(self) -> Any:
        """Plot clock and registers of the builds that were placed and routed against lookup tables."""
        routed = [tried for tried in self.tried if tried.cost.fmax is not None]
        luts = [float(tried.cost.lut_with_carry(self.target)) for tried in routed]
        clocks, registers = [tried.cost.fmax or 0.0 for tried in routed], [float(tried.cost.ff) for tried in routed]
        front = undominated([(lut, ff, -mhz) for lut, ff, mhz in zip(luts, registers, clocks, strict=True)])
        names = [("chosen: " if tried == self.chosen else "") + tried.options for tried in routed]
        panels = [Panel("clock, MHz", clocks, "highest"), Panel("registers (FF)", registers, "lowest")]
        caption = f"Requested clock: {self.clock_mhz:g} MHz. Builds that were not placed and routed are not shown."
        xlabel = "lookup tables (LUT), those of carry chains included"
        return plot_front(names, luts, panels, front, xlabel=xlabel, caption=caption, title=self._title)


def choose(
    unit: Implementation,
    target: Target | str,
    clock_mhz: float,
    *,
    fixed: Collection[str] = (),
    stages: Sequence[int] | None = None,
    progress: Progress = silent,
    pool: JobPool = LOCAL,
) -> Choice:
    """Search the smallest build of a unit whose clock, after place and route, meets a requested one.

    Builds differ in ``dsp``, ``stochastic``, ``goal``, ``structure`` and register stages. Three steps synthesise
    builds, and place and route those that are smaller than the choice so far, from the smallest until one meets the
    clock: all structures without stages; those that miss the clock, with the stages of `near_stages`; and builds with
    stages that reach `CLOSE` of the clock, with their stages placed by the delays of other families. The last two
    continue builds that are smaller than the choice. The cache keeps each measurement, so that a search that was
    interrupted continues.

    Parameters
    ----------
    unit : Implementation
        Fields of its build that differ from their defaults are not varied.
    target : Target or str
        Device that nextpnr supports.
    clock_mhz : float
        Requested clock, which is also the target of place and route.
    fixed : collection of str
        Further fields of the build that are not varied.
    stages : sequence of int, optional
        Numbers of register stages, in place of the first two steps.
    progress, pool
        As for `halfulp.fpga.synth.measure.measure_modules`.

    Raises
    ------
    TypeError, ValueError
        If nextpnr does not support the device, the device does not support the clock, or the unit cannot be built.
    """
    target = check_route(target_of(target))
    target.check_clock(clock_mhz)
    if unit.build.clock is not None:
        raise ValueError(f"the build of {unit} has a clock; expected a build without, and the clock beside it")
    if unit.build.pipeline or unit.build.iterations or "pipeline" in fixed:
        if stages is not None:
            raise ValueError(f"the build of {unit} fixes its stages; omit pipeline and iterations, or the range")
        unit.component()
        stages = [unit.build.pipeline]
    family = unit.build.target or target.family.name
    structures = _structures(unit, fixed)
    step = partial(_step, progress=progress, pool=pool)
    choice = Choice(unit, target, clock_mhz, ())
    if stages is None:
        choice = step(choice, structures)
        missed = choice.reached(0)
        staged = zip(missed, _numbers(missed, clock_mhz, family, progress, pool), strict=True)
        choice = step(
            choice, [_staged(own.unit, number, family, unit.build) for own, some in staged for number in some]
        )
    else:
        choice = step(choice, [_staged(own, number, family, unit.build) for own in structures for number in stages])
    close = [own.unit for own in choice.reached(CLOSE) if own.unit.build.pipeline]
    others = [name for name in FAMILIES if name != family] if unit.build.target is None else []
    return step(choice, [own.with_build(target=name) for own in close for name in others])


def _structures(unit: Implementation, fixed: Collection[str]) -> list[Implementation]:
    """Return the unit without stages in all its structures; ValueError if it cannot be built."""
    plain = unit.without_stages
    plain.component()
    default = Build()
    is_fixed = {name: name in fixed or getattr(plain.build, name) != getattr(default, name) for name in CHOICES}
    varied = [[getattr(plain.build, name)] if is_fixed[name] else _VALUES[name] for name in CHOICES]
    builds: dict[Build, None] = {}
    for values in itertools.product(*varied):
        try:
            built = plain.with_build(**dict(zip(CHOICES, values, strict=True))).component()
        except ValueError:
            # The unit has no such structure.
            continue
        builds[built.build] = None
    return [replace(plain, build=build) for build in builds]


def _numbers(
    missed: Sequence[Tried], clock_mhz: float, family: str, progress: Progress, pool: JobPool
) -> list[list[int]]:
    """Return the numbers of register stages to measure for structures whose clock without stages is measured."""
    progress.total("delay model", len(missed))
    jobs = {}
    for own in missed:
        unit, parts = own.unit, (clock_mhz, family, own.cost.fmax)
        key = code(type(unit.component()).__module__, "halfulp.fpga.synth.stages")
        jobs[Entry.of("stages", (unit.spec, unit.build, *parts, key), unit.name)] = Job(
            f"delay model of {unit}", near_stages, (unit, *parts)
        )
    found = pool.results(jobs.items(), progress, here="process")
    return [found[entry] for entry in jobs]


def _staged(structure: Implementation, stages: int, family: str, asked: Build) -> Implementation:
    """Return a structure with register stages, and the other fields of the build that was asked for."""
    if not stages:
        return structure
    return structure.with_build(pipeline=stages, target=family, reset_less=asked.reset_less)


def _step(choice: Choice, builds: Sequence[Implementation], progress: Progress, pool: JobPool) -> Choice:
    """Synthesise builds; place and route those smaller than the choice, from the smallest until one meets the clock."""
    target, clock_mhz, chosen = choice.target, choice.clock_mhz, choice.chosen
    costs = measure_units(builds, target, progress, pool=pool)
    tried = sorted((Tried(own, costs[str(own)]) for own in builds), key=lambda own: own.size(target))
    able = [
        own.unit
        for own in tried
        if choice.limit(own) is None and (chosen is None or own.size(target) < chosen.size(target))
    ]
    clocks: dict[Implementation, float] = {}
    progress.total("place and route", len(able))
    for start in range(0, len(able), WAVE):
        wave = able[start : start + WAVE]
        clocks |= zip(wave, route(wave, target, clock_mhz, progress, pool), strict=True)
        for own in tried:
            if own.unit in wave:
                lut, mhz = own.cost.lut_with_carry(target), clocks[own.unit]
                verdict = "meets" if mhz >= clock_mhz else "misses"
                progress.note(f"{own.options}: {lut} LUT with carry, {mhz:.1f} MHz, {verdict} {clock_mhz:g} MHz")
        if any(clocks[own] >= clock_mhz for own in wave):
            break
    routed = [Tried(own.unit, replace(own.cost, fmax=clocks.get(own.unit))) for own in tried]
    return replace(choice, tried=tuple(sorted((*choice.tried, *routed), key=lambda own: own.size(target))))


def route(
    builds: Sequence[Implementation], target: Target, clock_mhz: float, progress: Progress, pool: JobPool
) -> list[float]:
    """Return the clocks of builds between registers, placed and routed for a clock."""
    modules = (replace(module_of(own, registered=True), mhz=clock_mhz) for own in builds)
    return frequencies(modules, target, progress, pool)
