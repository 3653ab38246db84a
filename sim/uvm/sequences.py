"""Sequences: operations, their order and their pace, with vectors from the makers of the plain bench."""

import random
from typing import Any, ClassVar

import cocotb
import numpy as np
import numpy.typing as npt
from pyuvm import uvm_sequence

from halfulp.sim import regressions
from halfulp.sim.bench import plan, result_formats
from halfulp.sim.directed import Directed
from halfulp.sim.ports import Codes, Columns, Ports
from halfulp.sim.rules import PACED, Pace
from halfulp.sim.space import Space
from halfulp.sim.vectors import EXHAUSTIVE_BITS, FEW_EXACT_ROWS, chains, make, sampled, with_corner_words

from .items import Grants, Operation

ITEMS = 1 << 11
"""Operations of a sequence by default: seconds, not minutes."""

REPORTED = 128
"""Operations between two reports of progress."""

TRIES = 64
"""Most batches of vectors that are drawn for a constraint."""


class Sequence(uvm_sequence):
    """Sequence for the sequencer of an `OperandAgent`.

    ConfigDB: ``unit``, ``seed``, ``limit`` (most operations, or None), ``vector`` (one vector to run, or None) and
    ``progress``, which is called with numbers of operations.
    """

    @classmethod
    def check(cls, unit: Any, limit: int | None) -> None:
        """Raise ValueError for a unit that the sequence is not for."""

    def config(self, label: str) -> Any:
        """Entry of the ConfigDB for the sequencer."""
        return self.sequencer.cdb_get(label)

    @property
    def unit(self) -> Any:
        """The unit."""
        return self.config("unit")

    @property
    def inputs(self) -> Ports:
        """Its inputs."""
        return Ports.of(self.unit.inputs)

    @property
    def results(self) -> list[Any]:
        """Formats that it rounds to."""
        return result_formats(self.unit)

    @property
    def seed(self) -> int:
        """Seed of everything random."""
        return int(self.config("seed"))

    @property
    def count(self) -> int:
        """Number of operations."""
        return self.config("limit") or ITEMS

    async def run(self, part: type["Sequence"]) -> None:
        """Run another sequence on the same sequencer."""
        await part.create(part.__name__).start(self.sequencer)


class VectorSequence(Sequence):
    """Vectors one after the other.

    Attributes
    ----------
    storms : bool
        Operations have gaps and results are held up, after a first quarter without.
    """

    storms: ClassVar[bool] = True

    def vectors(self) -> Columns:
        """Codes of each input."""
        raise NotImplementedError

    async def body(self) -> None:
        await self.send(self.vectors())

    async def send(self, columns: Columns, *, reset: bool = False) -> None:
        """Send vectors, after a reset if there is to be one."""
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
    """Cycles without an offer."""
    gap = 0
    pace.step()
    while pace.noise.random() >= pace.offers:
        pace.step()
        gap += 1
    return gap


class PaceSequence(uvm_sequence):
    """Holds results up, at paces of the plain bench, until ``going`` is False."""

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
        return pace.noise.random() < pace.takes


class ExhaustiveSequence(VectorSequence):
    """Every combination of operands, with every random word where there are few enough of them."""

    @classmethod
    def check(cls, unit: Any, limit: int | None) -> None:
        space = Space.of(Ports.of(unit.inputs))
        if space.operand_bits > EXHAUSTIVE_BITS:
            raise ValueError(
                f"{unit.name} has 2^{space.operand_bits} combinations of operands; an exhaustive sequence has at most "
                f"2^{EXHAUSTIVE_BITS}"
            )
        if limit is not None and limit < 1 << space.bits:
            raise ValueError(f"an exhaustive sequence of {unit.name} takes 2^{space.bits} vectors or more, not {limit}")

    def vectors(self) -> Columns:
        self.check(self.unit, self.config("limit"))
        # Each has a random word, where there are too many of these for every one.
        limit = self.config("limit") or 1 << max(Space.of(self.inputs).bits, ITEMS.bit_length() - 1)
        return make(self.inputs, self.results, seed=self.seed, limit=limit).codes


class DirectedSequence(VectorSequence):
    """Operands that interact: aligned, cancelling, around ties and the ends of ranges, with words that decide."""

    def vectors(self) -> Columns:
        rng = np.random.default_rng(self.seed)
        return with_corner_words(self.unit, sampled(self.inputs, self.results, self.count, rng))


class RandomSequence(VectorSequence):
    """Random codes that meet a constraint, and among them pairs of operands that are biased to interact.

    Attributes
    ----------
    bias : float
        Share of operations whose operands are such pairs.
    """

    bias: ClassVar[float] = 0.5

    def constraint(self, codes: Columns) -> npt.NDArray[np.bool_]:
        """Mask of the vectors that are taken; override it to take fewer than all."""
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
            f"of {TRIES * self.count} vectors only {self.count - missing} meet the constraint of "
            f"{type(self).__name__}, not {self.count}"
        )

    def _drawn(self, rng: np.random.Generator, count: int) -> dict[str, Codes]:
        """Vectors, constrained or not."""
        rows = sampled(self.inputs, self.results, count, rng)
        anything = Directed(self.inputs.formats, self.results, rng, FEW_EXACT_ROWS).uniform(count)
        biased = rng.random(count) < self.bias
        return rows | {name: np.where(biased, rows[name], codes) for name, codes in anything.items()}


class ChainSequence(VectorSequence):
    """Chained steps of a unit with a state, from a reset that wipes some other steps."""

    @classmethod
    def check(cls, unit: Any, limit: int | None) -> None:
        if not unit.stateful:
            raise ValueError(f"{unit.name} has no state; a chain needs a unit with one")

    def vectors(self) -> Columns:
        self.check(self.unit, self.config("limit"))
        return chains(self.inputs, self.results, max(self.count, 256), self.seed + 1)

    async def body(self) -> None:
        steps = self.vectors()
        await self.send({name: column[-8:] for name, column in steps.items()})
        await self.send(steps, reset=True)


class StormSequence(DirectedSequence):
    """A protocol storm: gaps and back-pressure from the first operation on, and some resets at equal distances."""

    resets: ClassVar[int] = 4

    async def body(self) -> None:
        columns = self.vectors()
        for part in np.array_split(np.arange(len(next(iter(columns.values())))), self.resets):
            storm = self._storm()
            await self.send({name: column[part] for name, column in columns.items()}, reset=True)
            storm.going = False


class RegressionSequence(VectorSequence):
    """Regressions: vectors, and sequences of steps, each from reset."""

    storms = False

    @classmethod
    def check(cls, unit: Any, limit: int | None) -> None:
        if not regressions.of(unit):
            raise ValueError(f"there is no regression of {unit.name}")

    async def body(self) -> None:
        for row in regressions.of(self.unit):
            await self.send(row.columns(), reset=row.chained)


class PlannedSequence(VectorSequence):
    """The independent vectors of the plain bench: all there are if they are few, else directed and random ones."""

    def vectors(self) -> Columns:
        return plan(self.unit, seed=self.seed, limit=self.count, vector=self.config("vector")).vectors.codes


class Campaign(Sequence):
    """Default: regressions, then chosen vectors, then chained ones of a unit with a state."""

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
