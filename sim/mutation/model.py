"""Component with many changes, selected by an input, as a design and as a step for proofs."""

import contextlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amaranth.back import rtlil

from halfulp.sim.build import Design, emitter
from halfulp.sim.driver import DriverPorts
from halfulp.sim.formal.prove import Transition
from halfulp.sim.toolchain import verilator
from halfulp.tools import processes
from halfulp.tools.cache import cached
from halfulp.tools.digests import code, digest, version
from halfulp.tools.jobs import Job, JobPool
from halfulp.tools.processes import Command
from halfulp.tools.progress import Progress
from halfulp.tools.threads import threads

from . import SELECT

if TYPE_CHECKING:
    from halfulp.units import Unit


@dataclass(frozen=True)
class Change:
    """Mutant or fault.

    Attributes
    ----------
    mode : str
        ``inv``, ``const0`` or ``const1``; ``cnot0`` and ``cnot1`` invert if another bit of the port is 0 or 1.
    wire : str
        Name of the net; empty without one.
    kind : str
        Kind of the cell of a fault, such as ``$mux``.
    src : list of str
        Source lines.
    """

    mode: str
    cell: str
    port: str
    portbit: str
    wire: str = ""
    kind: str = ""
    src: list[str] = field(default_factory=list)

    @property
    def place(self) -> str:
        """Source lines with their folders, without those of wire.py if there are others."""
        rooms = [text.rpartition("/")[0].rpartition("/")[2] + "/" + text.rpartition("/")[2] for text in self.src]
        shown = [text for text in rooms if not text.startswith("hdl/wire.py")] or rooms
        return ", ".join(dict.fromkeys(shown))

    @property
    def net(self) -> str:
        """Name of the net, or of its cell: kind and source line if they are known, and bit."""
        if self.wire:
            return self.wire
        place = f" at {self.place.partition(',')[0]}" if self.src else ""
        cell = f"{self.kind.lstrip('$')}{place}" if self.kind else f"{self.cell}.{self.port}"
        return f"{cell}[{self.portbit}]"

    def __str__(self) -> str:
        return f"{self.mode} {self.cell}.{self.port}[{self.portbit}] {self.wire}".rstrip()


@dataclass(frozen=True)
class Made:
    """Component with all its changes.

    Attributes
    ----------
    design : Design
        Design with the input `SELECT`.
    changes : list of Change
        Changes; the number of the first is 1.
    step : Transition
        Clock cycle for proofs, with the input `SELECT`.
    """

    design: Design
    changes: list[Change]
    step: Transition


def make(component: Any, ports: DriverPorts, *, mutants: int | None, seed: int = 0) -> Made:
    """Build a component with mutants, or with faults of all its nets.

    Parameters
    ----------
    component : Unit or Streamed
    ports : DriverPorts
        Driven ports, including `SELECT`.
    mutants : int or None
        Number of mutants; None for faults.
    seed : int
        Seed of the choice of mutants.

    Raises
    ------
    ToolError
        If a tool or the machine fails.
    """
    text: str = rtlil.convert(component, name="top", emit_src=True)
    parts = (text, mutants, seed, code("halfulp.sim.mutation.netlist"), emitter(), version("pyosys"))
    step = f"step_{digest(*parts)}"

    def fill(folder: Path) -> None:
        (folder / "design.il").write_text(text)
        (folder / "job.json").write_text(json.dumps({"mutants": mutants, "seed": seed, "name": step}))
        argv = [sys.executable, "-m", "halfulp.sim.mutation.netlist"]
        processes.run_all([Command("Yosys", argv, folder / "yosys.log", folder)], 1)

    folder = cached("mutated", parts, fill, name=component.name)
    changes = [Change(**row) for row in json.loads((folder / "changes.json").read_text())]
    registers = json.loads((folder / "registers.json").read_text())
    verilog = (folder / "mutated.v").read_text()
    return Made(Design("top", verilog, ports), changes, Transition(step, registers, (folder / "step.json").read_text()))


def run_changes(
    component: str,
    function: Callable[..., list[Any]],
    arguments: tuple[Any, ...],
    todo: Sequence[Any],
    batch: int,
    progress: Progress,
    pool: JobPool,
) -> list[Any]:
    """Run changes in parallel jobs; return their results in order.

    Parameters
    ----------
    component : str
        Name of the component.
    function : callable
        Function from the arguments and some changes to a list of results.
    arguments : tuple
    todo : sequence
        Changes to run.
    batch : int
        Number of changes per job.
    progress : Progress
        Advances with each change.
    pool : JobPool
    """
    progress.total("running", len(todo))
    jobs = [Job(component, function, (*arguments, todo[at : at + batch])) for at in range(0, len(todo), batch)]
    results_of: dict[Job, list[Any]] = {}
    with threads(1), contextlib.closing(pool.run(jobs, versions=_versions)) as running:
        for job, results in running:
            results_of[job] = results
            progress.advance(len(results))
    return [result for job in jobs for result in results_of[job]]


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("amaranth", "pyosys", "torch")} | {"verilator": verilator().version}


def unit_ports(unit: "Unit") -> DriverPorts:
    """Return the ports of a unit with changes: inputs with controls, and outputs, used in every cycle."""
    controls = ("rst", "en") * unit.clocked + ("valid",) * unit.has_valid
    return DriverPorts((*controls, *unit.inputs), tuple(unit.outputs), select=SELECT)
