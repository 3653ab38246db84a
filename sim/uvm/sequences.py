"""Sequences: which operations, in which order, at which pace. Their vectors are those of the plain bench's makers."""

import random
from collections.abc import Mapping
from typing import Any, ClassVar

import cocotb
import numpy as np
import numpy.typing as npt
from pyuvm import uvm_sequence

from halfulp.sim import regressions
from halfulp.sim.bench import Plan, plan, result_formats
from halfulp.sim.corner_words import with_corner_words
from halfulp.sim.directed import Directed
from halfulp.sim.ports import Codes, Ports
from halfulp.sim.rules import PACED, Pace
from halfulp.sim.space import Space
from halfulp.sim.vectors import EXHAUSTIVE_BITS, FEW_EXACT_ROWS, chains, make, sampled

from .items import Grants, Operation

ITEMS = 1 << 11
"""Operations of a sequence unless told otherwise: seconds, not minutes."""

TOLD = 128
"""Operations after which progress is told."""

TRIES = 64
"""Batches of vectors that are drawn before a constraint counts as one that nothing meets."""


class Sequence(uvm_sequence):
    """Something that runs on the sequencer of a `UnitAgent`.

    ConfigDB: ``unit``, ``seed``, ``limit`` (most operations, or None), ``vector`` (the one vector to run, or None) and
    ``told``, which is called with numbers of operations.
    """

    @classmethod
    def check(cls, unit: Any, limit: int | None) -> None:
        """Refuse a unit that the sequence is not for.

        Raises
        ------
        ValueError
        """

    def config(self, label: str) -> Any:
        """What the ConfigDB has for the sequencer."""
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
        """What it rounds to."""
        return result_formats(self.unit)

    @property
    def seed(self) -> int:
        """Of everything random."""
        seed: int = self.config("seed")
        return seed

    @property
    def count(self) -> int:
        """Operations that are wanted."""
        return self.config("limit") or ITEMS

    async def run(self, part: type["Sequence"]) -> None:
        """Run another sequence on the same sequencer."""
        await part.create(part.__name__).start(self.sequencer)


class VectorSequence(Sequence):
    """Vectors one after the other.

    Attributes
    ----------
    storms : bool
        Whether operations come with gaps and results are held up, after a first quarter that runs freely.
    from_reset : bool
        Whether the unit is reset first.
    """

    storms: ClassVar[bool] = True
    from_reset: ClassVar[bool] = False

    def vectors(self) -> Mapping[str, Codes]:
        """For each input its codes."""
        raise NotImplementedError

    async def body(self) -> None:
        """Send the vectors."""
        await self.send(self.vectors(), reset=self.from_reset)

    async def send(self, columns: Mapping[str, Codes], *, reset: bool = False) -> None:
        """Send vectors, from reset or not."""
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
            if number % TOLD == TOLD - 1:
                self.config("told")(TOLD)
        self.config("told")(len(rows) % TOLD)
        if storm is not None:
            storm.going = False

    def _storm(self) -> "PaceSequence":
        sequence = PaceSequence.create("pace")
        cocotb.start_soon(sequence.start(self.config("pacer")))
        return sequence


def gap_of(pace: Pace) -> int:
    """Cycles until something is offered again."""
    gap = 0
    pace.step()
    while pace.noise.random() >= pace.offers:
        pace.step()
        gap += 1
    return gap


class PaceSequence(uvm_sequence):
    """Storms on the other side: results are held up, at paces of the plain bench, until it is told to end.

    Attributes
    ----------
    going : bool
    """

    def __init__(self, name: str = "pace") -> None:
        super().__init__(name)
        self.going = True

    async def body(self) -> None:
        """Send patterns for the throttle."""
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
        """Refuse units of too many operands, and a limit that leaves some out."""
        space = Space.of(Ports.of(unit.inputs))
        if space.operand_bits > EXHAUSTIVE_BITS:
            raise ValueError(
                f"{unit.name} has 2^{space.operand_bits} combinations of operands, and a sequence of all takes at most "
                f"2^{EXHAUSTIVE_BITS}"
            )
        if limit is not None and limit < 1 << space.bits:
            raise ValueError(f"{limit} vectors are not all that {unit.name} has; there are 2^{space.bits}")

    def vectors(self) -> Mapping[str, Codes]:
        """All there are."""
        self.check(self.unit, self.config("limit"))
        # Each has a random word, where there are too many of these for every one.
        limit = self.config("limit") or 1 << max(Space.of(self.inputs).bits, ITEMS.bit_length() - 1)
        return make(self.inputs, self.results, seed=self.seed, limit=limit).codes


class DirectedSequence(VectorSequence):
    """Operands that interact: aligned, cancelling, around ties and the ends of ranges, with words that decide."""

    def vectors(self) -> Mapping[str, Codes]:
        """Of every strategy."""
        rng = np.random.default_rng(self.seed)
        return with_corner_words(self.unit, sampled(self.inputs, self.results, self.count, rng))


class RandomSequence(VectorSequence):
    """Any codes, as far as a constraint lets them, and among them pairs of operands that are biased to interact.

    Attributes
    ----------
    bias : float
        Share of operations whose operands are such pairs.
    """

    bias: ClassVar[float] = 0.5

    def constraint(self, codes: Mapping[str, Codes]) -> npt.NDArray[np.bool_]:
        """Which of some vectors are taken; override it to have fewer than all."""
        return np.ones(len(next(iter(codes.values()))), dtype=bool)

    def vectors(self) -> Mapping[str, Codes]:
        """So many that meet the constraint."""
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
            f"{type(self).__name__}, and {self.count} are wanted"
        )

    def _drawn(self, rng: np.random.Generator, count: int) -> dict[str, Codes]:
        """Vectors, constrained or not."""
        rows = sampled(self.inputs, self.results, count, rng)
        operands = {port.name: port.fmt for port in self.inputs if port.fmt is not None}
        anything = Directed(operands, self.results, rng, FEW_EXACT_ROWS).uniform(count)
        biased = rng.random(count) < self.bias
        return rows | {name: np.where(biased, rows[name], codes) for name, codes in anything.items()}


class ChainSequence(VectorSequence):
    """Steps that build on each other, from reset, after reset has wiped other ones: for a unit with a state."""

    @classmethod
    def check(cls, unit: Any, limit: int | None) -> None:
        """Refuse units without a state."""
        if not unit.stateful:
            raise ValueError(f"{unit.name} has no state, so none of its operations builds on another")

    def vectors(self) -> Mapping[str, Codes]:
        """Sums of some length."""
        self.check(self.unit, self.config("limit"))
        return chains(self.inputs, self.results, max(self.count, 256), self.seed + 1)

    async def body(self) -> None:
        """Some steps, which are forgotten, and then those that count."""
        steps = self.vectors()
        await self.send({name: column[-8:] for name, column in steps.items()})
        await self.send(steps, reset=True)


class StormSequence(DirectedSequence):
    """A protocol storm: gaps and back-pressure from the first operation on, and resets in the midst of it.

    Attributes
    ----------
    resets : int
        Resets, after each of which as many operations follow.
    """

    resets: ClassVar[int] = 4

    async def body(self) -> None:
        """Send the vectors in parts."""
        columns = self.vectors()
        for part in np.array_split(np.arange(len(next(iter(columns.values())))), self.resets):
            storm = self._storm()
            await self.send({name: column[part] for name, column in columns.items()}, reset=True)
            storm.going = False


class RegressionSequence(VectorSequence):
    """Saved regression vectors, and saved sequences of steps, each from reset."""

    storms = False

    @classmethod
    def check(cls, unit: Any, limit: int | None) -> None:
        """Refuse units for which there are none."""
        if not regressions.of(unit):
            raise ValueError(f"there is no regression of {unit.name}")

    async def body(self) -> None:
        """Send each by itself."""
        for row in regressions.of(self.unit):
            await self.send(row.columns(), reset=row.chained)


class PlannedSequence(VectorSequence):
    """The vectors that the plain bench would choose: all there are if they are few, else directed and random ones."""

    def planned(self) -> Plan:
        """What the bench would drive."""
        return plan(self.unit, seed=self.seed, limit=self.count, vector=self.config("vector"))

    def vectors(self) -> Mapping[str, Codes]:
        """Those that do not depend on each other."""
        return self.planned().vectors.codes


class Campaign(Sequence):
    """Default: regressions, then chosen vectors, then chained ones of a unit with a state."""

    async def body(self) -> None:
        """Run one sequence after the other."""
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
"""By the names of the command line."""
