"""Experiment: clocks by register stages, those of slices of the netlist, and stages that the delay model takes."""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from halfulp.boards.targets import TARGETS
from halfulp.fpga.report.limits import limit_notes
from halfulp.fpga.synth.measure import Module, module_of
from halfulp.fpga.synth.route import frequencies
from halfulp.fpga.synth.stages import fewest_stages
from halfulp.implementation import Implementation
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.progress import Progress, silent
from halfulp.tools.tables import Table

TARGET = TARGETS["ecp5-85k"]
"""Device that nextpnr places and routes for."""

UNITS = (
    *("fma fp16*fp16+fp16.rn", "fma bf16*bf16+bf16.rn", "add fp16+fp16.rn", "add fp32+fp32.rn", "mul bf16*bf16.rn"),
    *("mul fp16*fp16.rn", "mul fp32*fp32.rn", "mul posit16*posit16.rn", "dot8 e4m3fn*e4m3fn=fp32.rn"),
    "pwl tanh(fxp4.12) pieces=8",
)
"""Texts of the default units."""


@dataclass(frozen=True)
class Drawn:
    """A clock between the measured ones of two neighbouring numbers of register stages.

    Attributes
    ----------
    unit : Implementation
        Unit without register stages.
    mhz : float
    needed : int
        The larger one of the two numbers of stages.
    stages : int or None
        Number of stages by the delay model; None if it says that no number meets the clock.
    reached, fewer : float or None
        Clocks in MHz after place and route for this clock, with ``stages`` and with one stage fewer.
    """

    unit: Implementation
    mhz: float
    needed: int
    stages: int | None
    reached: float | None = None
    fewer: float | None = None

    @property
    def is_met(self) -> bool:
        """True if place and route reaches the clock with the stages of the model."""
        return self.reached is not None and self.reached >= self.mhz

    @property
    def is_least(self) -> bool:
        """True if the clock is not reached with one stage fewer."""
        return self.stages == 0 or (self.fewer is not None and self.fewer < self.mhz)


@dataclass(frozen=True)
class Measured:
    """Clocks of a unit in MHz by number of register stages, from 0.

    Attributes
    ----------
    unit : Implementation
        Unit without register stages.
    routed, model : tuple of float
        After place and route, and by the delay model.
    sliced : tuple of float
        After place and route of the netlist without stages, divided into slices by as many registers; may be empty.
    """

    unit: Implementation
    routed: tuple[float, ...]
    model: tuple[float, ...]
    sliced: tuple[float, ...] = ()


def study(  # noqa: PLR0913 - options of a study, by name
    units: Sequence[Implementation],
    *,
    stages: int = 8,
    count: int = 5,
    seed: int = 0,
    seeds: int = 1,
    slices: bool = False,
    progress: Progress = silent,
    pool: JobPool = LOCAL,
) -> tuple[list[Measured], list[Drawn]]:
    """Measure units with 0 to ``stages`` stages, and ``count`` drawn clocks of each; the cache keeps finished results.

    Parameters
    ----------
    units : sequence of Implementation
        Units without register stages.
    stages, count, seed : int
        Largest number of register stages, number of drawn clocks of each unit, and seed of the random generator.
    seeds : int
        Number of seeds of place and route, whose median clock is that by number of stages.
    slices : bool
        Measure slices of the netlist of each unit too.
    progress, pool
        As for `halfulp.fpga.synth.measure.measure_modules`.

    Raises
    ------
    ValueError
        If clocks are drawn for a unit that no stage makes faster, or slices are asked of a unit with state.
    """
    plain = [unit.with_build(pipeline=number) for unit in units for number in range(stages + 1)]
    for implementation in units:
        if slices and implementation.component().has_valid:
            raise ValueError(f"{implementation} has registers without stages, so its netlist cannot be sliced")
    progress.total("clocks by stages", len(plain) * (1 + slices))
    results = iter(frequencies(_by_stages(plain, seeds, slices), TARGET, progress, pool))
    routed = [(next(results), next(results) if slices else None) for _ in plain]
    measured = []
    for unit, place in zip(units, range(0, len(plain), stages + 1), strict=True):
        own = slice(place, place + stages + 1)
        clocks, sliced = zip(*routed[own], strict=True)
        model = tuple(staged.component().model_mhz for staged in plain[own])
        measured.append(Measured(unit, clocks, model, sliced if slices else ()))
    drawn = [draw for own in measured for draw in _draw(own, count, random.Random(f"{seed} {own.unit}"))]
    modules = [module for draw in drawn for module in _modules(draw)]
    progress.total("drawn clocks", len(modules))
    results = iter(frequencies(modules, TARGET, progress, pool))
    return measured, [_with_results(draw, results) for draw in drawn]


def _by_stages(units: Sequence[Implementation], seeds: int, slices: bool) -> Iterator[Module]:
    """Yield the modules of units with stages, each before its slices if those are measured."""
    for unit in units:
        yield replace(module_of(unit, registered=True), seeds=seeds)
        if slices:
            whole = module_of(unit.with_build(pipeline=0), registered=True)
            yield replace(whole, seeds=seeds, slices=unit.build.pipeline)


def _draw(own: Measured, count: int, rng: random.Random) -> Iterator[Drawn]:
    """Draw clocks between neighbouring numbers of stages, each pair once before any pair twice."""
    # No request exceeds the maximum clock of the device.
    clocks = [min(mhz, TARGET.max_mhz) for mhz in own.routed]
    rising = [stage for stage, (low, high) in enumerate(itertools.pairwise(clocks), start=1) if low < high]
    if not rising:
        raise ValueError(f"no register stage makes {own.unit} faster; measure more stages")
    pairs = [pair for _ in range(-(-count // len(rising))) for pair in rng.sample(rising, len(rising))]
    for needed in pairs[:count]:
        mhz = round(rng.uniform(clocks[needed - 1], clocks[needed]), 2)
        yield Drawn(own.unit, mhz, needed, fewest_stages(own.unit, mhz, TARGET.family.name))


def _tried(draw: Drawn) -> list[int]:
    """Return the numbers of stages that are measured for a drawn clock: that of the model, and one fewer."""
    return [] if draw.stages is None else [draw.stages, draw.stages - 1][: draw.stages + 1]


def _modules(draw: Drawn) -> list[Module]:
    staged = (draw.unit.with_build(pipeline=stages) for stages in _tried(draw))
    return [replace(module_of(unit, registered=True), mhz=draw.mhz) for unit in staged]


def _with_results(draw: Drawn, clocks: Iterator[float]) -> Drawn:
    reached, fewer, *_ = [*(next(clocks) for _ in _tried(draw)), None, None]
    return replace(draw, reached=reached, fewer=fewer)


def tables(measured: Sequence[Measured], drawn: Sequence[Drawn], seeds: int = 1) -> dict[str, Table]:
    """Return the table of drawn clocks, if there are any, and that of measured clocks by number of stages."""
    by_stages = _stages_table(measured, seeds)
    return {"clocks": _drawn_table(drawn), "clocks-stages": by_stages} if drawn else {"clocks-stages": by_stages}


def _drawn_table(drawn: Sequence[Drawn]) -> Table:
    count = len(drawn)
    notes = [
        f"Place and route for the clock reaches it in {sum(row.is_met for row in drawn)} of {count}, and does not with "
        f"one stage fewer in {sum(row.is_least for row in drawn)} of {count}.",
        "Between: the clock is drawn between those of this number of stages and of one stage more. Model: stages by "
        "the delay model. Met, fewer: clock of nextpnr with the stages of the model, and with one stage fewer.",
    ]
    rows = [
        {
            "unit": str(draw.unit),
            "MHz": draw.mhz,
            "between": draw.needed - 1,
            "model": draw.stages,
            "met": draw.reached,
            "fewer": draw.fewer,
        }
        for draw in drawn
    ]
    frame = pd.DataFrame(rows).astype({"model": "Int64"})
    return Table(
        f"Register stages for a clock on {TARGET.name}", frame, dict.fromkeys(("MHz", "met", "fewer"), ".1f"), notes
    )


def _stages_table(measured: Sequence[Measured], seeds: int) -> Table:
    frame = pd.DataFrame(
        [
            {"unit": str(own.unit), "stages": stages, "MHz": routed, "model MHz": model, "model / MHz": model / routed}
            for own in measured
            for stages, (routed, model) in enumerate(zip(own.routed, own.model, strict=True))
        ]
    )
    steps = [pair for own in measured for pair in itertools.pairwise(own.routed)]
    notes = [
        f"MHz: nextpnr, median of {seeds} seed{'s' * (seeds > 1)}. With one stage more, the clock falls by more than "
        f"3 % in {sum(after < 0.97 * before for before, after in steps)} of {len(steps)} cases.",
        f"The mean error of the delay model is {100 * (frame['model / MHz'] - 1).abs().mean():.1f} %.",
        *limit_notes([*frame["MHz"], *frame["model MHz"]], TARGET),
    ]
    if any(own.sliced for own in measured):
        frame["slices MHz"] = [mhz for own in measured for mhz in own.sliced]
        frame["MHz / slices"] = frame["MHz"] / frame["slices MHz"]
        notes.append(
            "Slices: the netlist of the unit without stages, divided by as many registers into parts of equal delay. "
            f"The stages of the description reach 90 % of their clock in {(frame['MHz / slices'] >= 0.9).sum()} of "
            f"{len(frame)} rows."
        )
    formats = {"MHz": ".1f", "model MHz": ".1f", "model / MHz": ".2f", "slices MHz": ".1f", "MHz / slices": ".2f"}
    formats = {name: kind for name, kind in formats.items() if name in frame}
    return Table(f"Clock by register stages on {TARGET.name}", frame, formats, notes)
