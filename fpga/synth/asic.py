"""Cost of units in standard cells: synthesis by Yosys and ABC with a Liberty file, cached by content."""

import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from halfulp.sim.implementation import Implementation
from halfulp.tools.errors import ToolError
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.progress import Progress, silent
from halfulp.tools.report import versions

from .liberty import Library
from .measure import Program, module_of, results

LOADS = 4
"""Inputs of the smallest inverter that load each output; such an inverter drives each input."""


@dataclass(frozen=True)
class CellCost:
    """Standard cells of a synthesised unit.

    Attributes
    ----------
    cells : int
        Number of cells.
    registers : int
        Flip-flops among them.
    area : float
        Sum of the areas of all cells in square micrometres, without wires and unused places.
    gates : float
        Area in gate equivalents: relative to the smallest NAND of two inputs.
    delay : float
        Longest path of gates between ports and flip-flops in nanoseconds, by `stime` of ABC: with the tables of the
        library and without wires, setup times, and delays from clocks to outputs of flip-flops.
    """

    cells: int
    registers: int
    area: float
    gates: float
    delay: float

    @classmethod
    def of(cls, found: dict[str, Any], library: Library) -> Self:
        """Return the cost for cell counts by type, area and delay."""
        assert library.nand is not None
        registers = sum(count for name, count in found["cells"].items() if library.cells[name].is_register)
        gates = found["area"] / library.nand.area
        return cls(sum(found["cells"].values()), registers, found["area"], gates, found["delay"])


def measure_cells(
    units: Iterable[Implementation], library: Library, progress: Progress = silent, pool: JobPool = LOCAL
) -> list[CellCost]:
    """Measure the costs of units in the cells of a library; parameters are those of `measure_modules`.

    Raises ToolError if the library lacks a cell that a unit needs, such as a flip-flop.
    """
    assert library.inverter is not None
    (load,) = library.inverter.capacitances.values()
    job = {"driver": library.inverter.name, "load": LOADS * load * 1e15, "library": library.digest}
    program = Program(
        "Yosys on",
        lambda dsp: job,
        modules=("halfulp.fpga.synth.cells", __name__),
        versions=partial(versions, "pyosys"),
        argv=partial(_argv, library.text),
        result=_result,
    )
    found = results((module_of(_checked(unit)) for unit in units), program, progress, pool)
    return [CellCost.of(one, library) for one in found]


def _checked(unit: Implementation) -> Implementation:
    if unit.build.dsp:
        raise ValueError(f"{unit} has DSP blocks, which standard cells have not; remove --dsp")
    return unit


def _argv(library: str, folder: Path) -> list[str]:
    """Return the command line of the synthesis, and write the library to its folder."""
    (folder / "cells.lib").write_text(library)
    return [sys.executable, "-m", "halfulp.fpga.synth.cells"]


def _result(folder: Path) -> dict[str, Any]:
    """Read cell counts by type, area in square micrometres and delay in nanoseconds."""
    design = json.loads((folder / "cells.json").read_text())["design"]
    cells = {name: count for name, count in design["num_cells_by_type"].items() if name != "$scopeinfo"}
    if missing := sorted(name for name in cells if name.startswith("$")):
        raise ToolError(f"the library has no cell for {', '.join(missing)} of Yosys")
    delays = re.findall(r"Delay =\s*([\d.]+) ps", (folder / "abc.log").read_text())
    # A unit of wires and flip-flops has no gates, and ABC no log of their delay.
    return {"cells": cells, "area": design.get("area", 0.0), "delay": float(delays[-1]) / 1000 if delays else 0.0}
