"""Tables of the costs of units in standard cells."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd

from halfulp.fpga.synth.asic import CYCLES, LOADS, RUNS, CellCost, opensta, tools
from halfulp.fpga.synth.liberty import Library
from halfulp.implementation import Implementation
from halfulp.tools.digests import version
from halfulp.tools.pareto import undominated
from halfulp.tools.plots import Panel, plot_front
from halfulp.tools.report import Report, provenance
from halfulp.tools.tables import Table

FORMATS = {"um^2": ",.0f", "GE": ",.0f", "ns": ".2f", "OpenSTA ns": ".2f", "pJ": ".3g", "leakage nW": ".3g"}
"""Number formats of the columns of `row`."""


def row(cost: CellCost) -> dict[str, object]:
    """Return the cells of a table for a cost."""
    cells: dict[str, object] = {
        "cells": cost.cells,
        "FF": cost.registers,
        "um^2": cost.area,
        "GE": cost.gates,
        "ns": cost.delay,
    }
    more = {"OpenSTA ns": cost.opensta, "pJ": cost.energy, "leakage nW": cost.leakage}
    return cells | {name: value for name, value in more.items() if value is not None}


def notes(library: Library, costs: Sequence[CellCost]) -> list[str]:
    """Return notes on the origin of the figures."""
    assert library.nand is not None
    assert library.inverter is not None
    lines = [
        f"{library.name} ({library.file}, {library.conditions}): Yosys {version('pyosys')} with ABC, each unit alone, "
        "without wires.",
        f"um^2: sum of the areas of all cells. GE: gate equivalents, of the area of {library.nand.name} "
        f"({library.nand.area:g}).",
        "ns: longest path of gates between ports and flip-flops, by stime of ABC, without setup times and delays of "
        f"flip-flops; {library.inverter.name} drives each input, and {LOADS} of its inputs load each output.",
    ]
    if any(cost.opensta is not None for cost in costs):
        lines.append(f"OpenSTA ns: the same by OpenSTA {opensta()}, with setup times and delays of flip-flops.")
    if any(cost.energy is not None for cost in costs):
        lines.append(
            f"pJ: dynamic energy of a clock cycle, the power in uW for each MHz, of {RUNS * CYCLES:,} vectors of the "
            "bench: half C V^2 for each toggle of a net that a cell drives, and the internal energy of the cells where "
            "the library has it. Simulation without delays, so without glitches. Leakage: of all cells."
        )
    return lines


def table(units: Sequence[Implementation], costs: Sequence[CellCost], library: Library) -> Table:
    """Return a table with a row per unit."""
    rows = [{"unit": str(unit)} | row(cost) for unit, cost in zip(units, costs, strict=True)]
    frame = pd.DataFrame(rows)
    return Table(f"Cost in the cells of {library.name}", frame, _formats(frame), notes(library, costs))


def sweep(unit: Implementation, targets: Sequence[float], costs: Sequence[CellCost], library: Library) -> Report:
    """Return the report of a unit for several delay targets in nanoseconds."""
    front = undominated([(cost.delay, cost.area) for cost in costs])
    frame = pd.DataFrame(
        [
            {"target ns": target, **row(cost), "met": _answer(cost.delay <= target), "Pareto": _answer(best)}
            for target, cost, best in zip(targets, costs, front, strict=True)
        ]
    )
    about = [
        *notes(library, costs),
        "Target: delay target of ABC, which maps with scripts for area and for delay; the row is the smallest netlist "
        "that meets it, or else the fastest.",
        "Pareto: yes if no other row is at least as good in ns and um^2, and better in one.",
    ]
    title = f"Delay targets of {unit.spec.text} in the cells of {library.name}"
    delays = Table(title, frame, _formats(frame) | {"target ns": "g"}, about)
    command = unit.command("synth", *library.options, "--delays", ",".join(f"{target:g}" for target in targets))
    plots = {"delays": partial(_plot, targets, costs, front, f"{library.name}; {about[-2]}", title)}
    return Report({"delays": delays}, plots, title="Delay targets", made_by=provenance(command, tools()))


def _formats(frame: pd.DataFrame) -> dict[str, str]:
    return {name: kind for name, kind in FORMATS.items() if name in frame}


def _answer(value: bool) -> str:
    return "yes" if value else "no"


def _plot(targets: Sequence[float], costs: Sequence[CellCost], front: Sequence[bool], caption: str, title: str) -> Any:
    """Plot gate equivalents against delay."""
    return plot_front(
        [f"{target:g} ns" for target in targets],
        [cost.delay for cost in costs],
        [Panel("gate equivalents (GE)", [cost.gates for cost in costs], "lowest")],
        front,
        xlabel="delay, ns",
        caption=caption,
        title=title,
    )
