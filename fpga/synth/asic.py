"""Cost of units in standard cells: synthesis by Yosys and ABC with a Liberty file, cached by content."""

import functools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from halfulp.implementation import Implementation
from halfulp.tools.errors import ToolError
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.progress import Progress, silent
from halfulp.tools.report import versions

from .liberty import Library
from .measure import Program, module_of, results
from .power import Tables

LOADS = 4
"""Inputs of the smallest inverter that load each output; such an inverter drives each input."""

RUNS, CYCLES = 32, 33
"""Simulations for the energy, side by side, and their clock cycles."""


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
    opensta : float, optional
        Longest path by OpenSTA in nanoseconds, with setup times and delays of flip-flops; None without OpenSTA.
    energy : float, optional
        Dynamic energy of a clock cycle in picojoule, for the simulated vectors; None if it is not measured.
    leakage : float, optional
        Leakage power in nanowatt; None if it is not measured, or the library has none.
    """

    cells: int
    registers: int
    area: float
    gates: float
    delay: float
    opensta: float | None = None
    energy: float | None = None
    leakage: float | None = None

    @classmethod
    def of(cls, figures: dict[str, Any], library: Library) -> Self:
        """Return the cost for cell counts by type, area and delays."""
        assert library.nand is not None
        return cls(
            cells=sum(figures["cells"].values()),
            registers=sum(count for name, count in figures["cells"].items() if library.cells[name].is_register),
            area=figures["area"],
            gates=figures["area"] / library.nand.area,
            delay=figures["delay"],
            opensta=figures.get("opensta"),
            energy=_scaled(figures.get("energy"), 1e12),
            leakage=_scaled(figures.get("leakage"), 1e9),
        )


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


@functools.cache
def opensta() -> str | None:
    """Return the version of OpenSTA; None if the program ``sta`` is not on PATH."""
    if shutil.which("sta") is None:
        return None
    done = subprocess.run(["sta", "-version"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def tools() -> dict[str, str]:
    """Return the versions of the programs that the figures depend on."""
    timer = opensta()
    return versions("pyosys") | ({"OpenSTA": timer} if timer else {})


def measure_cells(
    units: Iterable[Implementation],
    library: Library,
    progress: Progress = silent,
    pool: JobPool = LOCAL,
    *,
    targets: Sequence[float] = (),
    power: bool = False,
) -> list[list[CellCost]]:
    """Measure the costs of units in the cells of a library.

    Parameters
    ----------
    units, progress, pool
        As for `halfulp.fpga.synth.measure.measure_modules`.
    library : Library
    targets : sequence of float
        Delay targets of ABC in nanoseconds.
    power : bool
        Simulate the netlist of each unit with vectors of the test bench, for energy and leakage.

    Returns
    -------
    list of list of CellCost
        For each unit, the costs for all targets; without targets, one cost by Yosys' own script of ABC.

    Raises
    ------
    ToolError
        If the library lacks a cell that a unit needs.
    ValueError
        If a unit has DSP blocks, or is iterative and ``power`` is true; if a table of the library is invalid, or it has
        no flip-flop and a unit needs one.
    """
    Tables(library).check(power=power)
    registers = any(True for cell in library.cells.values() for _ in cell.group.of("ff"))
    process = f"halfulp.fpga.synth.{'power' if power else 'cells'}"
    job = job_of(library) | {"targets": list(targets)}
    program = Program(
        "Yosys on",
        lambda dsp: job,
        modules=(
            "halfulp.fpga.synth.cells",
            "halfulp.fpga.synth.memories",
            "halfulp.fpga.synth.liberty",
            process,
            __name__,
        ),
        versions=tools,
        argv=partial(_argv, library.text, process),
        result=partial(_result, targets),
    )
    units = [_checked(unit, library.file, registers) for unit in units]
    modules = (replace(module_of(unit), stimulus=stimulus(unit) if power else "") for unit in units)
    costs_of_units = results(modules, program, progress, pool)
    return [[CellCost.of(figures, library) for figures in costs] for costs in costs_of_units]


def job_of(library: Library) -> dict[str, Any]:
    """Return the fields of `halfulp.fpga.synth.cells.CellSynthesis` that depend on the library."""
    assert library.inverter is not None
    (load,) = library.inverter.capacitances.values()
    return {
        "driver": library.inverter.name,
        "load": LOADS * load * 1e15,
        "units": [library.second * 1e9, library.farad * 1e15],
        "opensta": opensta() is not None,
        "library": library.digest,
    }


def _checked(unit: Implementation, file: str, registers: bool) -> Implementation:
    if unit.build.dsp:
        raise ValueError(f"standard cells have no DSP blocks; remove --dsp from {unit.spec.text}")
    if not registers and unit.component().clocked:
        raise ValueError(f"{file} has no flip-flop, which {unit.spec.text} needs")
    return unit


def stimulus(unit: Implementation) -> str:
    """Return vectors of the test bench as `halfulp.fpga.synth.power.Stimulus`, in JSON."""
    import numpy as np

    from halfulp.sim.bench import plan

    unit.check_every_cycle("the energy of a clock cycle")
    vectors = plan(unit.component(), seed=0, limit=CYCLES * RUNS)
    codes = vectors.chain or vectors.vectors.codes
    count = len(next(iter(codes.values())))
    order = np.arange(CYCLES * RUNS) % count
    if vectors.chain is None:
        # Vectors of a small unit are all inputs in order, whose high bits rarely toggle.
        order = np.random.default_rng(0).permutation(order)
    # A run takes consecutive vectors.
    chosen = {name: column[order].reshape(RUNS, CYCLES).T.tolist() for name, column in codes.items()}
    return json.dumps(chosen)


def _argv(library: str, process: str, folder: Path) -> list[str]:
    """Return the command line of the synthesis, and write the library to its folder."""
    (folder / "cells.lib").write_text(library)
    return [sys.executable, "-m", process]


def _result(targets: Sequence[float], folder: Path) -> list[dict[str, Any]]:
    """Read the results of the process."""
    costs: list[dict[str, Any]] = json.loads((folder / "costs.json").read_text())
    if len(costs) != max(len(targets), 1):
        raise ToolError(f"{len(costs)} results for {len(targets)} delay targets")
    for cost in costs:
        if missing := sorted(name for name in cost["cells"] if re.match(r"\$", name)):
            raise ToolError(f"the library has no cell for {', '.join(missing)} of Yosys")
    return costs
