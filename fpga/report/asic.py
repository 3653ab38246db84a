"""Tables of the costs of units in standard cells."""

from collections.abc import Sequence

import pandas as pd

from halfulp.fpga.synth.asic import LOADS, CellCost
from halfulp.fpga.synth.liberty import Library
from halfulp.sim.implementation import Implementation
from halfulp.tools.digests import version
from halfulp.tools.tables import Table

FORMATS = {"um^2": ",.0f", "GE": ",.0f", "ns": ".2f"}
"""Number formats of the columns of `row`."""


def row(unit: Implementation, cost: CellCost) -> dict[str, object]:
    """Return the cells of a table for a unit."""
    return {
        "unit": str(unit),
        "cells": cost.cells,
        "FF": cost.registers,
        "um^2": cost.area,
        "GE": cost.gates,
        "ns": cost.delay,
    }


def notes(library: Library) -> list[str]:
    """Return notes on the origin of the figures."""
    assert library.nand is not None
    assert library.inverter is not None
    return [
        f"{library.name} ({library.file}, {library.conditions}): Yosys {version('pyosys')} with its script of ABC for "
        "Liberty files, each unit alone; no wires.",
        f"um^2: sum of the areas of all cells. GE: gate equivalents, of the area of {library.nand.name} "
        f"({library.nand.area:g}).",
        "ns: longest path of gates between ports and flip-flops, by stime of ABC, without setup times and delays of "
        f"flip-flops; {library.inverter.name} drives each input, and {LOADS} of its inputs load each output.",
    ]


def table(units: Sequence[Implementation], costs: Sequence[CellCost], library: Library) -> Table:
    """Return a table with a row per unit."""
    rows = [row(unit, cost) for unit, cost in zip(units, costs, strict=True)]
    return Table(f"Cost in the cells of {library.name}", pd.DataFrame(rows), FORMATS, notes(library))
