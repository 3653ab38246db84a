"""Comparison of the numbers of register stages of a unit: lookup tables, registers and clock."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd

from halfulp.boards.targets import Target
from halfulp.fpga.synth.measure import Cost
from halfulp.implementation import Implementation
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.pareto import undominated
from halfulp.tools.plots import Panel, plot_front
from halfulp.tools.progress import Progress, silent
from halfulp.tools.report import Report
from halfulp.tools.tables import Table

from .limits import limit_notes
from .resources import measure_units


def explore(
    unit: Implementation,
    stages: Sequence[int],
    target: Target,
    command: str,
    progress: Progress = silent,
    pool: JobPool = LOCAL,
) -> Report:
    """Place and route a unit with each number of register stages; the cache keeps finished ones."""
    units = [unit.with_build(pipeline=count) for count in stages]
    cost_of = measure_units(units, target, progress, route=True, pool=pool)
    costs = list(cost_of.values())
    front = undominated(
        [(own.component().latency, *_cells(cost, target)) for own, cost in zip(units, costs, strict=True)]
    )
    rows = [
        {
            "stages": count,
            "latency": own.component().latency,
            **cost.counts(),
            "path": cost.path,
            "MHz": cost.fmax,
            "Pareto": "yes" if best else "no",
        }
        for count, own, cost, best in zip(stages, units, costs, front, strict=True)
    ]
    notes = [
        f"{Cost.origin(target)}; MHz: nextpnr, after place and route between registers at all ports, which are not "
        "counted. Path counts cells between ports and flip-flops.",
        "Pareto: yes if no other row is at least as good in latency, LUT with carry, FF and MHz, and better in one.",
        *limit_notes([cost.fmax for cost in costs], target),
    ]
    title = f"Register stages of {unit.spec.text} on {target.name}"
    table = Table(title, pd.DataFrame(rows), {"MHz": ".1f"}, notes)
    plots = {"explore": partial(_plot, stages, costs, target, front, notes[1], title)}
    return Report({"explore": table}, plots, title="Register stages", made_by=command)


def _cells(cost: Cost, target: Target) -> tuple[float, float, float]:
    """Return lookup tables, registers and the negated clock, which are better if smaller."""
    assert cost.fmax is not None
    return cost.lut_with_carry(target), cost.ff, -cost.fmax


def _plot(
    stages: Sequence[int], costs: Sequence[Cost], target: Target, front: Sequence[bool], caption: str, title: str
) -> Any:
    """Plot clock and registers against lookup tables."""
    cells = [_cells(cost, target) for cost in costs]
    panels = [
        Panel("clock, MHz", [-clock for *_, clock in cells], "highest"),
        Panel("registers (FF)", [float(ff) for _, ff, _ in cells], "lowest"),
    ]
    names = [f"{count} stage{'s' * (count != 1)}" for count in stages]
    luts = [lut for lut, *_ in cells]
    return plot_front(
        names,
        luts,
        panels,
        front,
        xlabel="lookup tables (LUT), those of carry chains included",
        caption=caption,
        title=title,
    )
