"""Sequences of operations, with vectors from the test bench, in random order and with random gaps."""

import random
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import cocotb
import numpy as np
import numpy.typing as npt
from pyuvm import uvm_sequence

from halfulp.sim import regressions
from halfulp.sim.bench import plan, result_formats
from halfulp.sim.directed import Directed
from halfulp.sim.ports import Codes, Columns, Ports
from halfulp.sim.signals.rules import PACED, Pace
from halfulp.sim.space import Space
from halfulp.sim.vectors import EXHAUSTIVE_BITS, FEW_EXACT_ROWS, chains, make, sampled, with_corner_words

from .items import Grants, Operation

if TYPE_CHECKING:
    from halfulp.units import Unit

ITEMS = 1 << 11
"""Default number of operations of a sequence, which takes seconds."""

REPORTED = 128
"""Number of operations between two progress reports."""

TRIES = 64
"""Maximum number of batches that are drawn to meet a constraint."""


class Sequence(uvm_sequence):
    """Sequence for the sequencer of an `OperandAgent`.

    ConfigDB: ``unit``, ``seed``, ``limit`` (maximum number of operations or None), ``vector`` (single vector or None),
    and ``progress``, a function that is called with numbers of operations.
    """

    @classmethod
    def check(cls, unit: "Unit", limit: int | None) -> None:
        """Raise ValueError if the sequence does not fit the unit."""

    def config(self, label: str) -> Any:
        """Return a ConfigDB entry of the sequencer."""
        return self.sequencer.cdb_get(label)

    @property
    def unit(self) -> Any:
        """Unit under test."""
        return self.config("unit")

    @property
    def inputs(self) -> Ports:
        """Inputs of the unit."""
        return Ports.inputs_of(self.unit)

    @property
    def results(self) -> list[Any]:
        """Formats to which the unit rounds."""
        return result_formats(self.unit)

    @property
    def seed(self) -> int:
        """Seed of all random choices."""
        return int(self.config("seed"))

    @property
    def count(self) -> int:
        """Number of operations."""
        return self.config("limit") or ITEMS

    async def run(self, part: type["Sequence"]) -> None:
        """Run another sequence on the same sequencer."""
        await part.create(part.__name__).start(self.sequencer)


class VectorSequence(Sequence):
    """Sequence of vectors.

    Attributes
    ----------
    storms : bool
        True for gaps and back-pressure after the first quarter.
    """

    storms: ClassVar[bool] = True

    @abstractmethod
    def vectors(self) -> Columns:
        """Return the codes of each input."""

    async def body(self) -> None:
        await self.send(self.vectors())

    async def send(self, columns: Columns, *, reset: bool = False) -> None:
        """Send vectors, optionally after a reset."""
        ports = self.inputs
        rows = list(zip(*(columns[port.name].tolist() for port in ports), strict=True))
        noise = random.Random(self.seed)
        pace = Pace(noise)
        storm: PaceSequence | None = None
        for number, row in enumerate(rows):
            item = Operation.create("operation").set(ports, dict(zip(ports.names, row, strict=True)))
            item.reset = reset and number == 0
            if self.storms and number >= len(rows) // 4:
                storm = storm or self._storm()
                item.gap = gap_of(pace)
            await self.start_item(item)
            await self.finish_item(item)
            if number % REPORTED == REPORTED - 1:
                self.config("progress")(REPORTED)
        self.config("progress")(len(rows) % REPORTED)
        if storm is not None:
            storm.going = False

    def _storm(self) -> "PaceSequence":
        sequence = PaceSequence.create("pace")
        cocotb.start_soon(sequence.start(self.config("pacer")))
        return sequence


def gap_of(pace: Pace) -> int:
    """Choose the number of cycles without an offer."""
    gap = 0
    while pace.gap():
        gap += 1
    return gap


class PaceSequence(uvm_sequence):
    """Sequence of back-pressure with the probabilities of the test bench, until ``going`` is False."""

    going = True

    async def body(self) -> None:
        pace = Pace(random.Random(self.sequencer.cdb_get("seed") + 1))
        while self.going:
            item = Grants.create("grants")
            item.pattern = tuple(self._cycle(pace) for _ in range(PACED))
            await self.start_item(item)
            await self.finish_item(item)

    @staticmethod
    def _cycle(pace: Pace) -> bool:
        pace.step()
        return not pace.stall()


class ExhaustiveSequence(VectorSequence):
    """All combinations of operands, and of random words if there are few."""

    @classmethod
    def check(cls, unit: "Unit", limit: int | None) -> None:
        space = Space.of(Ports.inputs_of(unit))
        if space.operand_bits > EXHAUSTIVE_BITS:
            raise ValueError(
                f"{unit.name} has 2^{space.operand_bits} operand combinations: an exhaustive sequence takes at most "
                f"2^{EXHAUSTIVE_BITS}"
            )
        if limit is not None and limit < 1 << space.bits:
            raise ValueError(f"{limit} vectors are too few: the exhaustive sequence takes 2^{space.bits} or more")

    def vectors(self) -> Columns:
        self.check(self.unit, self.config("limit"))
        # With too many random words, each vector has one random word.
        limit = self.config("limit") or 1 << max(Space.of(self.inputs).bits, ITEMS.bit_length() - 1)
        return make(self.inputs, self.results, seed=self.seed, limit=limit).codes


class DirectedSequence(VectorSequence):
    """Directed vectors: alignment, cancellation, ties, ends of ranges, and critical random words."""

    def vectors(self) -> Columns:
        rng = np.random.default_rng(self.seed)
        return with_corner_words(self.unit, sampled(self.inputs, self.results, self.count, rng))


class RandomSequence(VectorSequence):
    """Random codes under a constraint, some of them biased toward interacting operands.

    Attributes
    ----------
    bias : float
        Share of operations with interacting operands.
    """

    bias: ClassVar[float] = 0.5

    def constraint(self, codes: Columns) -> npt.NDArray[np.bool_]:
        """Return a mask of the accepted vectors; override it to constrain them."""
        return np.ones(len(next(iter(codes.values()))), dtype=bool)

    def vectors(self) -> Columns:
        rng = np.random.default_rng(self.seed)
        taken: list[dict[str, Codes]] = []
        missing = self.count
        for _ in range(TRIES):
            drawn = self._drawn(rng, self.count)
            at = np.flatnonzero(self.constraint(drawn))[:missing]
            taken.append({name: column[at] for name, column in drawn.items()})
            missing -= len(at)
            if not missing:
                return {name: np.concatenate([part[name] for part in taken]) for name in drawn}
        raise ValueError(
            f"only {self.count - missing} of {TRIES * self.count} vectors meet the constraint of "
            f"{type(self).__name__}: expected {self.count}"
        )

    def _drawn(self, rng: np.random.Generator, count: int) -> dict[str, Codes]:
        """Draw vectors without the constraint."""
        rows = sampled(self.inputs, self.results, count, rng)
        anything = Directed(self.inputs.formats, (), self.results, rng, FEW_EXACT_ROWS).uniform(count)
        biased = rng.random(count) < self.bias
        return rows | {name: np.where(biased, rows[name], codes) for name, codes in anything.items()}


class ChainSequence(VectorSequence):
    """Chained steps of a unit with state, after some other steps and a reset."""

    @classmethod
    def check(cls, unit: "Unit", limit: int | None) -> None:
        if not unit.stateful:
            raise ValueError(f"{unit.name} has no state: expected a unit with an accumulator for the sequence chain")

    def vectors(self) -> Columns:
        self.check(self.unit, self.config("limit"))
        return chains(self.inputs, self.results, max(self.count, 256), self.seed + 1, self.unit.spec.interleave)

    async def body(self) -> None:
        steps = self.vectors()
        await self.send({name: column[-8:] for name, column in steps.items()})
        await self.send(steps, reset=True)


class StormSequence(DirectedSequence):
    """Protocol storm: gaps and back-pressure from the first operation on, with evenly spaced resets."""

    resets: ClassVar[int] = 4

    async def body(self) -> None:
        columns = self.vectors()
        for part in np.array_split(np.arange(len(next(iter(columns.values())))), self.resets):
            storm = self._storm()
            await self.send({name: column[part] for name, column in columns.items()}, reset=True)
            storm.going = False


class RegressionSequence(VectorSequence):
    """Regressions: independent vectors, and sequences of steps from reset."""

    storms = False

    @classmethod
    def check(cls, unit: "Unit", limit: int | None) -> None:
        if not regressions.of(unit):
            raise ValueError(f"{unit.name} has no regressions for this sequence")

    async def body(self) -> None:
        for row in regressions.of(self.unit):
            await self.send(row.columns(), reset=row.chained)


class PlannedSequence(VectorSequence):
    """Independent vectors of the test bench: all inputs if they are few, else directed and random vectors."""

    def vectors(self) -> Columns:
        return plan(self.unit, seed=self.seed, limit=self.count, vector=self.config("vector")).vectors.codes


class Campaign(Sequence):
    """Default sequence: regressions, planned vectors, and chained steps of a unit with state."""

    async def body(self) -> None:
        if self.config("vector") is None:
            await self.run(RegressionSequence)
        await self.run(PlannedSequence)
        if self.unit.stateful and self.config("vector") is None:
            await self.run(ChainSequence)


SEQUENCES: dict[str, type[Sequence]] = {
    "campaign": Campaign,
    "exhaustive": ExhaustiveSequence,
    "directed": DirectedSequence,
    "random": RandomSequence,
    "chain": ChainSequence,
    "storm": StormSequence,
    "regressions": RegressionSequence,
}
"""Sequences by their names on the command line."""
