"""Mutants of a unit's netlist, run through the vectors of the test bench."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from halfulp.sim import regressions
from halfulp.sim.bench import plan
from halfulp.sim.driver import DriverPorts
from halfulp.sim.formal.miters import ports_of, stream_ports_of
from halfulp.sim.model import CompiledModel, pack
from halfulp.sim.ports import Columns, Ports
from halfulp.sim.reference import reference
from halfulp.sim.regressions import Regression
from halfulp.tools.errors import ToolError
from halfulp.tools.jobs import LOCAL, JobPool, shared
from halfulp.tools.progress import Progress, silent
from halfulp.tools.tables import Table
from halfulp.tools.threads import threads

from . import SELECT
from .equivalence import NO_STALL, EquivalenceChecker
from .model import Change, Made, make, run_changes, unit_ports
from .recording import Recording, record

if TYPE_CHECKING:
    from halfulp.units import Unit

FIRST = 1 << 14
"""Number of cycles that detect most mutants; the others are checked for equivalence before they run all cycles."""

STREAMED, FEW = 1 << 17, 1 << 13
"""Number of transfers through a stream wrapper, and a smaller number that detects most mutants."""

BATCH = 4
"""Number of mutants per job."""

KILLED, EQUIVALENT, SURVIVED, UNDECIDED = "killed", "equivalent", "survived", "undecided"


@dataclass(frozen=True)
class Mutant:
    """Mutant with its status.

    Attributes
    ----------
    status : str
        ``killed``: a vector of the test bench detects it; ``equivalent``: no vector can; ``survived``: some vector can,
        but none of the test bench does; ``undecided``: not killed, and not proved equivalent.
    witness : list of dict
        Inputs that detect a survivor, cycle by cycle.
    """

    number: int
    change: Change
    status: str
    witness: list[dict[str, int]]


@dataclass(frozen=True)
class Campaign:
    """Mutants of a unit or its stream wrapper.

    Attributes
    ----------
    title : str
        Name of the component.
    """

    unit: "Unit"
    title: str
    mutants: list[Mutant]

    def count(self, status: str) -> int:
        """Return the number of mutants with this status."""
        return sum(mutant.status == status for mutant in self.mutants)

    @property
    def rate(self) -> float:
        """Share of killed mutants among those that are not equivalent."""
        others = len(self.mutants) - self.count(EQUIVALENT)
        return self.count(KILLED) / others if others else 1.0

    def survivors(self) -> list[Mutant]:
        """Return the mutants that are neither killed nor equivalent."""
        return [mutant for mutant in self.mutants if mutant.status in (SURVIVED, UNDECIDED)]


def mutate(
    unit: "Unit", *, count: int, seed: int = 0, stream: bool = False, progress: Progress = silent, pool: JobPool = LOCAL
) -> Campaign:
    """Run mutants of a unit through its bench.

    Parameters
    ----------
    unit : Unit
    count : int
        Number of mutants.
    seed : int
        Seed of mutants and vectors.
    stream : bool
        Mutate and run the stream wrapper.
    progress : Progress
    pool : JobPool
        Pool that runs the mutants.

    Raises
    ------
    ValueError
        If the stream wrapper has no registers.
    ToolError
        If a tool or the machine fails, or the original netlist fails the test bench.
    """
    if stream:
        check_stream(unit)
    progress.total("building")
    key, asked = uuid.uuid4().hex, (unit, count, seed, stream)
    bench = shared(key, partial(_bench, *asked))
    numbers = range(1, len(bench.made.changes) + 1)
    mutants = run_changes(unit.name, run_mutants, (key, asked), numbers, BATCH, progress, pool)
    return Campaign(unit, bench.title, mutants)


def run_mutants(key: str, asked: tuple[Any, ...], numbers: Sequence[int]) -> list[Mutant]:
    """Run mutants, given by their numbers."""
    with threads(1):
        bench = shared(key, partial(_bench, *asked))
        with bench.model() as model:
            return [_run_mutant(number, bench, model) for number in numbers]


def check_stream(unit: "Unit") -> None:
    """Raise ValueError if the stream wrapper of a unit has no registers."""
    if not unit.latency:
        raise ValueError(f"the stream wrapper of {unit.name} has no registers; add --pipeline 1")


@dataclass(frozen=True)
class _Bench:
    """Model, vectors and equivalence checker for the mutants of a unit.

    Attributes
    ----------
    title : str
        Name of the component.
    recording : Recording, optional
        Recorded cycles of the unit.
    traffic : tuple of dict
        Arguments of `CompiledModel.stream` for few and for all transfers through the stream wrapper.
    """

    title: str
    made: Made
    checker: EquivalenceChecker
    recording: Recording | None = None
    traffic: tuple[dict[str, Any], ...] = ()

    def model(self) -> CompiledModel:
        """Create a compiled model, for one thread."""
        return CompiledModel(self.made.design)

    def kills(self, model: CompiledModel, number: int, first: bool) -> bool:
        """Return True if the first cycles, or all cycles, detect a mutant."""
        if self.recording is not None:
            return self.recording.first_difference(model, number, FIRST if first else None) is not None
        traffic = self.traffic[0 if first else 1]
        model.select(number)
        model.reset()
        passed = model.stream(**traffic)
        return passed.given != traffic["counts"] or passed.faults["o"] > 0


def _bench(unit: "Unit", count: int, seed: int, stream: bool) -> _Bench:
    from halfulp.units.stream import Streamed

    component = Streamed(unit) if stream else unit
    driven = DriverPorts.of_streams(component.signature, SELECT) if stream else unit_ports(unit)
    made = make(component, driven, mutants=count, seed=seed)
    checker = EquivalenceChecker(made.step, *(stream_ports_of if stream else ports_of)(unit), unit.latency)
    recording = None if stream else _record(unit, seed)
    traffic = tuple(_stream_traffic(unit, seed, size) for size in (FEW, STREAMED)) if stream else ()
    bench = _Bench(component.name, made, checker, recording, traffic)
    with bench.model() as model:
        if any(bench.kills(model, 0, first) for first in (True, False)):
            raise ToolError(f"{unit.name} fails the test bench without any change; run halfulp sim to see its failures")
    return bench


def _run_mutant(number: int, bench: _Bench, model: CompiledModel) -> Mutant:
    change = bench.made.changes[number - 1]
    if bench.kills(model, number, True):
        return Mutant(number, change, KILLED, [])
    equivalence = bench.checker.check(number)
    if equivalence.equivalent:
        return Mutant(number, change, EQUIVALENT, [])
    if bench.kills(model, number, False):
        return Mutant(number, change, KILLED, [])
    status = SURVIVED if equivalence.equivalent is False else UNDECIDED
    return Mutant(number, change, status, equivalence.cycles)


def _record(unit: "Unit", seed: int) -> Recording:
    """Record cycles of the test bench's vectors and of the regressions."""
    chosen = plan(unit, seed=seed)
    sets: list[tuple[Columns, bool]] = [(row.columns(), row.chained) for row in regressions.of(unit)]
    # Random order puts vectors of every kind first.
    order = np.random.default_rng(seed).permutation(chosen.vectors.count)
    sets.append((chosen.vectors.take(order), False))
    if chosen.chain is not None:
        sets.insert(-1, (chosen.chain, True))
    return record(unit, sets, seed)


def _stream_traffic(unit: "Unit", seed: int, count: int) -> dict[str, Any]:
    """Return arguments of `CompiledModel.stream`: payloads, results, and handshake patterns of a stream wrapper.

    For a unit with an accumulator, half of the payloads are chained steps and half load start values.
    """
    rng = np.random.default_rng(seed)
    chosen = plan(unit, seed=seed)
    source = chosen.vectors.take(rng.permutation(chosen.vectors.count))
    parts = [source] if chosen.chain is None else [chosen.chain, source]
    inputs, outputs = Ports.inputs_of(unit), Ports.of(unit.outputs)
    codes = {name: np.concatenate([part[name][: count // len(parts)] for part in parts]) for name in inputs.names}
    want = reference(unit, codes, chained=unit.stateful)
    payloads, results = (
        pack(np.stack([columns[port.name] for port in ports], axis=1), [port.width for port in ports])
        for ports, columns in ((inputs, codes), (outputs, want))
    )
    likely = np.array([(1.0, 1.0), (1.0, 0.2), (0.2, 1.0), (0.5, 0.5), (0.9, 0.9)])[rng.integers(0, 5, 1 << 10)]
    go = {name: np.repeat(likely[:, side], 64) > rng.random(1 << 16) for side, name in enumerate("io")}
    return {
        "payloads": {"i": payloads},
        "counts": {"o": len(results)},
        "expected": {"o": results},
        "go": go,
        "limit": 20 * len(results) + 2000,
        "more": 16,
    }


def witness_of(unit: "Unit", mutant: Mutant) -> Regression | None:
    """Return a vector, or steps from reset, that detects a survivor; None if it needs stalls or a stream."""
    rows = mutant.witness
    if not rows or any(row.get(name, level) != level for row in rows for name, level in NO_STALL.items()):
        return None
    if not set(unit.inputs) <= set(rows[0]) or unit.sources:
        return None
    steps = tuple({name: row[name] for name in unit.inputs} for row in rows)
    why = f"detects the mutant {mutant.change} of {mutant.change.place}"
    return regressions.with_results(unit, steps if unit.stateful else steps[:1], why)


def table(campaign: Campaign) -> Table:
    """Return the table of the numbers of mutants by status."""
    row = {
        "netlist": campaign.title,
        "mutants": len(campaign.mutants),
        **{status: campaign.count(status) for status in (KILLED, EQUIVALENT, SURVIVED, UNDECIDED)},
        "kill rate": 100 * campaign.rate,
    }
    return Table(
        "Mutation score of the test bench",
        pd.DataFrame([row]),
        {"kill rate": ".2f"},
        [
            "Mutants are random changes of one bit of the netlist, evenly over its cells, except at clocks.",
            "A mutant is equivalent if ABC proves that no input detects it.",
            "The kill rate is the percentage of killed mutants among those that are not equivalent.",
        ],
    )


def survivors(campaign: Campaign) -> list[str]:
    """Format the survivors with the inputs that detect them."""
    lines = []
    for mutant in campaign.survivors():
        lines.append(f"{mutant.status} {mutant.number}: {mutant.change}, {mutant.change.place}")
        for row in mutant.witness:
            lines.append("  " + ", ".join(f"{name} {code:#x}" for name, code in row.items()))
        if mutant.status == SURVIVED and (vector := witness_of(campaign.unit, mutant)) is not None:
            lines.append(f"  {vector.text(campaign.unit)}")
    return lines


def save(campaign: Campaign) -> list[Path]:
    """Save vectors that detect survivors as regressions; return the changed files."""
    saved = []
    for mutant in campaign.survivors():
        if (row := witness_of(campaign.unit, mutant)) is not None:
            path, new = regressions.save(campaign.unit, row)
            saved += [path] if new else []
    return saved


def mutants_table(campaign: Campaign) -> Table:
    """Return the table with one row per mutant."""
    rows = [
        (mutant.number, mutant.status, mutant.change.mode, mutant.change.net, mutant.change.place)
        for mutant in campaign.mutants
    ]
    return Table(
        f"Mutants of {campaign.title}", pd.DataFrame(rows, columns=["mutant", "status", "change", "net", "source"])
    )
