"""Proofs by ABC on a netlist of Yosys that an output is never 1; verdicts are cached."""

import functools
import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from amaranth.back import rtlil

from halfulp.sim.build import emitter
from halfulp.sim.toolchain import installed
from halfulp.tools.cache import Entry, cached_value
from halfulp.tools.digests import code, digest, version
from halfulp.tools.errors import ToolError
from halfulp.tools.paths import machine_errors, scratch
from halfulp.tools.processes import Command, run_all

PROVED, REFUTED, UNFINISHED = "proved", "refuted", "not finished"


@dataclass(frozen=True)
class Transition:
    """Transition function of a component: a clock cycle, as a module without registers.

    Attributes
    ----------
    name : str
        Name of the module. Its ports are those of the component without the clock, and for each register an input
        ``held@NAME`` and an output ``next@NAME``.
    registers : dict
        Widths of registers by name.
    netlist : str
        Netlist in Yosys' JSON.
    """

    name: str
    registers: dict[str, int]
    netlist: str


@dataclass(frozen=True)
class Verdict:
    """Verdict on a claim.

    Attributes
    ----------
    status : str
        ``proved``, ``refuted`` or ``not finished``.
    seconds : float
        Time of the proof.
    witness : dict, optional
        Inputs of a counterexample, by port.
    """

    status: str
    seconds: float
    witness: dict[str, int] | None = None


def circuit(component: Any, ports: Sequence[Any] | None = None) -> str:
    """Convert a component to RTLIL with top module ``top``; a circuit that is no component needs a list of ports."""
    text: str = rtlil.convert(component, name="top", ports=ports, emit_src=False)
    return text


def transition_of(component: Any) -> Transition:
    """Return the transition function of a component from the cache, or generate it; raises ToolError if Yosys fails."""
    text = circuit(component)
    name = f"step_{digest(text)}"

    def make() -> dict[str, Any]:
        with scratch("formal") as folder:
            yosys(folder, {"make": "step", "name": name}, {"design.il": text})
            registers = json.loads((folder / "registers.json").read_text())
            return {"name": name, "registers": registers, "netlist": (folder / "step.json").read_text()}

    return Transition(**cached_value("formal", (text, *_tools()), make, name="step"))


@dataclass(frozen=True, eq=False)
class Question:
    """Question whether the output ``bad`` of a circuit can be 1; registers of the circuit start at 0.

    Parameters
    ----------
    name : str
        Prefix of the name of the cache entry.
    text : str
        RTLIL of the circuit.
    steps : sequence of Transition
        Modules with instances in the circuit.
    registers : bool
        True if the circuit has registers; the verdict is then proved or not finished.
    """

    name: str
    text: str
    steps: Sequence[Transition] = ()
    registers: bool = False

    @property
    def entry(self) -> Entry:
        """Cache entry of the verdict."""
        return Entry.of("formal", (self.text, *(step.netlist for step in self.steps), *_tools()), self.name)

    def known(self, limit: float) -> Verdict | None:
        """Return the cached verdict, unless it is unfinished and had less time."""
        record = self.entry.value()
        if record is None:
            return None
        verdict = Verdict(**record)
        return None if verdict.status == UNFINISHED and verdict.seconds < limit else verdict

    def answer(self, limit: float) -> Verdict:
        """Find the verdict and cache it; raises ToolError if a tool fails."""
        # Several instances of one step share a file.
        files = {"design.il": self.text} | {f"{step.name}.json": step.netlist for step in self.steps}
        with scratch("formal") as folder:
            yosys(folder, {"make": "aig"}, files)
            began = time.monotonic()
            status = (_always if self.registers else _abc)(folder, limit)
            seconds = max(time.monotonic() - began, limit if status == UNFINISHED else 0.0)
            verdict = Verdict(status, seconds, _witness(folder) if status == REFUTED else None)
        self.save(verdict)
        return verdict

    def save(self, verdict: Verdict) -> None:
        """Store the verdict in the cache."""
        self.entry.store(asdict(verdict))


def versions() -> dict[str, str]:
    """Return the versions of the programs that affect verdicts."""
    return {"pyosys": version("pyosys")}


@functools.cache
def _tools() -> tuple[str, ...]:
    return emitter(), version("pyosys"), code(__name__, "halfulp.sim.formal.netlist", imports=False)


def yosys(folder: Path, job: Mapping[str, Any], files: Mapping[str, str]) -> None:
    """Run a job of `halfulp.sim.formal.netlist` on files; raises ToolError if Yosys fails."""
    with machine_errors("a netlist"):
        for name, text in files.items():
            (folder / name).write_text(text)
        (folder / "job.json").write_text(json.dumps(job))
    argv = [sys.executable, "-m", "halfulp.sim.formal.netlist"]
    run_all([Command("Yosys", argv, folder / "yosys.log", folder)], 1)


def _abc(folder: Path, limit: float) -> str:
    """Run ABC within the limit to find inputs for which ``bad`` is 1."""
    deadline = time.monotonic() + limit
    # Equivalences between internal nodes quickly prove that two structures agree.
    output = _output(folder, "&read design.aig; &cec -m", deadline)
    if output is None:
        return UNFINISHED
    if re.search(r"^Networks are equivalent", output, re.M):
        return PROVED
    # There is a counterexample; this command writes it.
    output = _output(folder, "read_aiger design.aig; iprove; write_cex -n witness.txt", deadline)
    if output is None:
        return UNFINISHED
    if re.search(r"^SATISFIABLE", output, re.M):
        return REFUTED
    raise ToolError(f"ABC found no result; its output is: {' '.join(output.split())[-300:]}")


def _always(folder: Path, limit: float) -> str:
    """Run ABC to prove by property-directed reachability that ``bad`` is never 1.

    Equivalent and constant registers are merged first.
    """
    deadline = time.monotonic() + limit
    output = _output(folder, "read_aiger design.aig; scorr; print_stats; write_aiger less.aig", deadline)
    if output is None:
        return UNFINISHED
    none_left = re.search(r"lat =\s+0\b", output) is not None
    output = _output(folder, f"read_aiger less.aig; {'iprove' if none_left else 'pdr'}", deadline)
    return PROVED if output is not None and re.search(r"^(Property proved|UNSATISFIABLE)", output, re.M) else UNFINISHED


def _output(folder: Path, commands: str, deadline: float) -> str | None:
    """Return the output of ABC for these commands, or None at the deadline."""
    command = Command(
        "ABC", [str(installed("pyosys", "yosys-abc") / "yosys-abc"), "-c", commands], folder / "abc.log", folder
    )
    try:
        run_all([command], seconds=deadline - time.monotonic())
    except TimeoutError:
        return None
    return command.log.read_text(errors="replace")


def _witness(folder: Path) -> dict[str, int]:
    """Assemble the input bits of ABC's counterexample into codes of ports."""
    bits = dict(re.findall(r"^pi(\d+)@0=([01])$", (folder / "witness.txt").read_text(), re.M))
    values = {int(index): int(bit) for index, bit in bits.items()}
    inputs: dict[str, int] = {}
    for index, place, name in re.findall(r"^input (\d+) (\d+) (\S+)$", (folder / "design.map").read_text(), re.M):
        inputs[name] = inputs.get(name, 0) | values.get(int(index), 0) << int(place)
    return inputs
