"""Mutants of a unit's netlist, each run through the vectors of the bench."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

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
from halfulp.tools.threads import one_thread

from . import SELECT
from .equivalence import CALM, EquivalenceChecker
from .model import Change, Made, make, run_changes, unit_ports
from .recording import Recording, record

FIRST = 1 << 14
"""Cycles that show most mutants; the others are compared with the unit before they run through all cycles."""

STREAMED, FEW = 1 << 17, 1 << 13
"""Transfers through a stream wrapper, and fewer that show most mutants."""

BATCH = 4
"""Mutants of a job."""

KILLED, EQUIVALENT, SURVIVED, UNDECIDED = "killed", "equivalent", "survived", "undecided"


@dataclass(frozen=True)
class Mutant:
    """A mutant with its fate.

    Attributes
    ----------
    fate : str
        ``killed``: a vector of the bench shows it; ``equivalent``: no vector can; ``survived``: one can, but none of
        the bench does; ``undecided``: none of the bench does, and neither is proved.
    witness : list of dict
        Of a survivor the inputs, cycle by cycle, that show it.
    """

    number: int
    change: Change
    fate: str
    witness: list[dict[str, int]]


@dataclass(frozen=True)
class Campaign:
    """Mutants of a unit, or of its stream wrapper.

    Attributes
    ----------
    title : str
        Name of the component.
    """

    unit: Any
    title: str
    mutants: list[Mutant]

    def count(self, fate: str) -> int:
        """Mutants of a fate."""
        return sum(mutant.fate == fate for mutant in self.mutants)

    @property
    def rate(self) -> float:
        """Share of killed mutants among those that are not equivalent."""
        others = len(self.mutants) - self.count(EQUIVALENT)
        return self.count(KILLED) / others if others else 1.0

    def survivors(self) -> list[Mutant]:
        """Mutants that were not killed and are not equivalent."""
        return [mutant for mutant in self.mutants if mutant.fate in (SURVIVED, UNDECIDED)]


def mutate(
    unit: Any, *, count: int, seed: int = 0, stream: bool = False, progress: Progress = silent, pool: JobPool = LOCAL
) -> Campaign:
    """Run mutants of a unit through its bench.

    Parameters
    ----------
    unit : Unit
    count : int
        Mutants.
    seed : int
        Chooses them, and the vectors.
    stream : bool
        Mutate and run the stream wrapper.
    progress : Progress
    pool : JobPool
        Runs the mutants.

    Raises
    ------
    ValueError
        If the stream wrapper has no registers.
    ToolError
        If a tool or the machine fails, or the netlist without changes does not pass.
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
    """Fates of some mutants, by their numbers."""
    with one_thread():
        bench = shared(key, partial(_bench, *asked))
        with bench.model() as model:
            return [_fate(number, bench, model) for number in numbers]


def check_stream(unit: Any) -> None:
    """Raise ValueError unless the stream wrapper of a unit can be run."""
    if not unit.latency:
        raise ValueError(f"the stream wrapper of {unit.name} has no registers; a pipeline of 1 or more gives it some")


@dataclass(frozen=True)
class _Bench:
    """Everything that mutants of a unit are run through.

    Attributes
    ----------
    title : str
        Name of the component.
    recording : Recording, optional
        Cycles of the plain unit.
    traffic : tuple of dict
        Transfers through the stream wrapper, as `CompiledModel.stream` takes them: few, and all.
    """

    title: str
    made: Made
    checker: EquivalenceChecker
    recording: Recording | None = None
    traffic: tuple[dict[str, Any], ...] = ()

    def model(self) -> CompiledModel:
        """A compiled model, for one thread."""
        return CompiledModel(self.made.design)

    def kills(self, model: CompiledModel, number: int, first: bool) -> bool:
        """True if a mutant shows in the first cycles, or in any."""
        if self.recording is not None:
            return self.recording.first_difference(model, number, FIRST if first else None) is not None
        traffic = self.traffic[0 if first else 1]
        model.select(number)
        model.reset()
        passed = model.stream(**traffic)
        return passed.given != traffic["counts"] or passed.faults["o"] > 0


def _bench(unit: Any, count: int, seed: int, stream: bool) -> _Bench:
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
            raise ToolError(f"{unit.name} itself does not pass; `halfulp sim` shows its failures")
    return bench


def _fate(number: int, bench: _Bench, model: CompiledModel) -> Mutant:
    change = bench.made.changes[number - 1]
    if bench.kills(model, number, True):
        return Mutant(number, change, KILLED, [])
    equivalence = bench.checker.check(number)
    if equivalence.equivalent:
        return Mutant(number, change, EQUIVALENT, [])
    if bench.kills(model, number, False):
        return Mutant(number, change, KILLED, [])
    fate = SURVIVED if equivalence.equivalent is False else UNDECIDED
    return Mutant(number, change, fate, equivalence.cycles)


def _record(unit: Any, seed: int) -> Recording:
    """Cycles of the bench's vectors and of the regressions."""
    chosen = plan(unit, seed=seed)
    sets: list[tuple[Columns, bool]] = [(row.columns(), row.chained) for row in regressions.of(unit)]
    # In random order, so that the first vectors are of every kind.
    order = np.random.default_rng(seed).permutation(chosen.vectors.count)
    sets.append((chosen.vectors.take(order), False))
    if chosen.chain is not None:
        sets.insert(-1, (chosen.chain, True))
    return record(unit, sets, seed)


def _stream_traffic(unit: Any, seed: int, count: int) -> dict[str, Any]:
    """Arguments of `CompiledModel.stream`: payloads of a stream wrapper, the results, and the cycles of either side.

    Of a unit with an accumulator half of the payloads are chained steps, and half have start values.
    """
    rng = np.random.default_rng(seed)
    chosen = plan(unit, seed=seed)
    source = chosen.vectors.take(rng.permutation(chosen.vectors.count))
    parts = [source] if chosen.chain is None else [chosen.chain, source]
    inputs, outputs = Ports.of(unit.inputs), Ports.of(unit.outputs)
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


def witness_of(unit: Any, mutant: Mutant) -> Regression | None:
    """Vector or steps from reset that show a survivor; None where that takes stalls, or a stream."""
    rows = mutant.witness
    if not rows or any(row.get(name, level) != level for row in rows for name, level in CALM.items()):
        return None
    if not set(unit.inputs) <= set(rows[0]) or unit.sources:
        return None
    steps = tuple({name: row[name] for name in unit.inputs} for row in rows)
    why = f"shows the mutant {mutant.change} of {mutant.change.place}"
    return regressions.with_results(unit, steps if unit.stateful else steps[:1], why)


def table(campaign: Campaign) -> Table:
    """Numbers of mutants by their fates."""
    row = {
        "netlist": campaign.title,
        "mutants": len(campaign.mutants),
        **{fate: campaign.count(fate) for fate in (KILLED, EQUIVALENT, SURVIVED, UNDECIDED)},
        "kill rate": 100 * campaign.rate,
    }
    return Table(
        "Mutation score of the bench",
        pd.DataFrame([row]),
        {"kill rate": ".2f"},
        [
            "Mutants are changes of one bit of the netlist, chosen by Yosys; those of clocks are omitted.",
            "A mutant is equivalent where ABC proves that no input shows it.",
            "The kill rate is the percentage of killed ones among those that are not equivalent.",
        ],
    )


def survivors(campaign: Campaign) -> list[str]:
    """Lines about the survivors."""
    lines = []
    for mutant in campaign.survivors():
        lines.append(f"{mutant.fate} {mutant.number}: {mutant.change}, {mutant.change.place}")
        for row in mutant.witness:
            lines.append("  " + ", ".join(f"{name} {code:#x}" for name, code in row.items()))
        if mutant.fate == SURVIVED and (found := witness_of(campaign.unit, mutant)) is not None:
            lines.append(f"  {found.text(campaign.unit)}")
    return lines


def save(campaign: Campaign) -> list[Path]:
    """Save the vectors that show survivors as regressions; returns the files that changed."""
    found = []
    for mutant in campaign.survivors():
        if (row := witness_of(campaign.unit, mutant)) is not None:
            path, new = regressions.save(campaign.unit, row)
            found += [path] if new else []
    return found


def mutants_table(campaign: Campaign) -> Table:
    """A row for each mutant."""
    rows = [
        (mutant.number, mutant.fate, mutant.change.mode, mutant.change.net, mutant.change.place)
        for mutant in campaign.mutants
    ]
    return Table(
        f"Mutants of {campaign.title}", pd.DataFrame(rows, columns=["mutant", "status", "change", "net", "source"])
    )
