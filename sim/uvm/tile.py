# amaranth: UnusedElaboratable=no
"""Pyuvm environment of systolic arrays: an agent per stream, matrix products as stimulus, and checks of tiles."""

import random
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import cocotb
import numpy as np
import torch
from amaranth.lib.wiring import Component
from cocotb.clock import Clock
from pyuvm import uvm_analysis_port, uvm_component, uvm_env, uvm_sequence

from halfulp import golden
from halfulp.hdl.specs import MacSpec
from halfulp.hdl.specs.formula import Port
from halfulp.implementation import Implementation
from halfulp.sim.build import Design, component_design
from halfulp.sim.exact_text import line
from halfulp.sim.fields import Grid as Numbers
from halfulp.sim.fields import words
from halfulp.sim.ports import Codes, Ports
from halfulp.sim.report import Failure
from halfulp.sim.signals.interfaces import PERIOD, Interface, Packed, Sink, Source
from halfulp.sim.signals.rules import Fault, Pace
from halfulp.sim.systolic import Product

from .agent import OperandAgent, ResultAgent
from .dut import Dut
from .env import drain
from .items import Operation
from .job import Job
from .reference import Prediction, columns
from .scoreboard import Scoreboard, export
from .sequences import PaceSequence, gap_of
from .tests import UnitTest

STREAMS = ("tile", "a", "b")
"""Input streams of an array."""

PRODUCTS = 16
"""Default number of matrix products of a sequence."""

LARGEST = 12
"""Maximum number of rows, columns and terms of a product."""

SAVED_STEPS = 16
"""Maximum number of steps in the command that saves a wrong sum."""


@dataclass(frozen=True)
class TileRequest:
    """Description of a systolic array.

    Parameters
    ----------
    mac : Implementation
        Multiply-accumulate of the elements.
    n, m : int
        Numbers of rows and columns.
    depth : int, optional
        Vectors per row of a tile, for a chain; default: a grid.
    rows : int, optional
        Rows of a tile per element of a chain; default: 1.
    """

    mac: Implementation
    n: int = 3
    m: int = 2
    depth: int | None = None
    rows: int | None = None


class TileDut(Dut):
    """Systolic array under test."""

    def make(self) -> Component:
        from halfulp.units.systolic import Chain, Grid

        asked: Any = self.request()
        if not isinstance(asked.mac.spec, MacSpec):
            raise ValueError(f"the environment of arrays sends matrices of numbers, not operands of {asked.mac.spec}")
        known = {"mac": asked.mac.spec, "n": asked.n, "m": asked.m, "build": asked.mac.build}
        if asked.depth is None:
            if asked.rows is not None:
                raise ValueError("--rows is for a chain; add --depth")
            return Grid(**known)
        return Chain(**known, depth=asked.depth, rows=1 if asked.rows is None else asked.rows)

    def design(self, unit: Component, kind: str) -> Design:
        return component_design(unit)

    def describe(self, unit: Component) -> str:
        depth = f", {unit.tiling.depth} vectors a row" if unit.tiling.depth > 1 else ""
        depth += f", {unit.tiling.rows} rows an element" if unit.tiling.rows > 1 else ""
        return f"{unit.mac}, {unit.n} by {unit.m}{depth}, {unit.stages} register stages"


def ports_of(array: Any, stream: str) -> Ports:
    """Return the ports of the lanes of a stream's payload, with their formats."""
    if stream == "tile":
        return Ports.of(dict(array.tile.payload.shape()))
    fmt, lanes = {
        "a": (array.mac.a, array.a_lanes),
        "b": (array.mac.b, array.m),
        "c": (array.mac.o, array.m),
    }[stream]
    return Ports(tuple(Port(f"{stream}{lane}", fmt) for lane in range(lanes)))


class TileSequence(uvm_sequence):
    """Matrix products of random sizes, back to back, with gaps and back-pressure after the first quarter.

    This virtual sequence sends to the sequencers of all streams.

    ConfigDB of the environment: ``unit``, ``seed``, ``limit``, ``progress``.

    Attributes
    ----------
    calm : tuple of float
        Possible shares of operands around one in a product; the others are corner cases.
    begins_calm : bool
        True for a first quarter without gaps.
    """

    calm: ClassVar[tuple[float, ...]] = (1.0, 0.98, 0.9)
    begins_calm: ClassVar[bool] = True

    env: "TileEnv"

    async def body(self) -> None:
        count = self.env.cdb_get("limit") or PRODUCTS
        await self.send(np.random.default_rng(self.env.cdb_get("seed")), count)

    async def send(self, rng: np.random.Generator, count: int) -> None:
        """Send a number of products."""
        array, sent = self.env.cdb_get("unit"), {name: list[int]() for name in STREAMS}
        for number in range(count):
            product = Product(array, *self.operands(rng, array), filling=number % 2)
            for name, payloads in product.payloads.items():
                sent[name] += [int.from_bytes(row.tobytes(), "little") for row in payloads]
        paces = PaceSequence.create("pace")
        cocotb.start_soon(paces.start(self.env.agents["c"].sequencer))
        running = []
        for name in STREAMS:
            part = StreamSequence.create(name)
            part.words, part.seed = sent[name], int(rng.integers(1 << 32))
            part.calm = len(part.words) // 4 if self.begins_calm else 0
            running.append(cocotb.start_soon(part.start(self.env.agents[name].sequencer)))
        for task in running:
            await task
        paces.going = False
        self.env.cdb_get("progress")(count)

    def operands(self, rng: np.random.Generator, array: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Choose two matrices of codes; override it for others."""
        n, k, m = rng.integers(1, LARGEST + 1, 3).tolist()
        calm = rng.choice(np.array(self.calm))
        made = []
        for fmt, shape in ((array.mac.a, (n, k)), (array.mac.b, (k, m))):
            numbers, size = Numbers.of(fmt), shape[0] * shape[1]
            codes = np.where(
                rng.random(size) < calm, numbers.middling(rng, size), rng.choice(numbers.corner_codes(), size)
            )
            made.append(torch.from_numpy(codes.astype(np.int64).reshape(shape)))
        return made[0], made[1]


class AnythingSequence(TileSequence):
    """Matrix products of uniformly random codes."""

    def operands(self, rng: np.random.Generator, array: Any) -> tuple[torch.Tensor, torch.Tensor]:
        n, k, m = rng.integers(1, LARGEST + 1, 3).tolist()
        a, b = array.mac.a.width, array.mac.b.width
        x, y = words(rng, n * k, a).reshape(n, k), words(rng, k * m, b).reshape(k, m)
        return torch.from_numpy(x.view(np.int64)), torch.from_numpy(y.view(np.int64))


class TileStormSequence(TileSequence):
    """Protocol storm: gaps and back-pressure from the first payload on, with resets between products."""

    begins_calm: ClassVar[bool] = False
    resets: ClassVar[int] = 4

    async def body(self) -> None:
        rng = np.random.default_rng(self.env.cdb_get("seed"))
        count = self.env.cdb_get("limit") or PRODUCTS
        for part in np.array_split(np.arange(count), min(self.resets, count)):
            await self.env.drain()
            await self.env.reset()
            await self.send(rng, len(part))


class StreamSequence(uvm_sequence):
    """Payloads of one stream; the first ``calm`` ones have no gaps."""

    words: list[int]
    seed: int
    calm: int

    async def body(self) -> None:
        ports, pace = self.sequencer.cdb_get("interface").inputs.ports, Pace(random.Random(self.seed))
        for number, word in enumerate(self.words):
            item = Operation.create("payload").set_word(ports, word)
            item.gap = gap_of(pace) if number >= self.calm else 0
            await self.start_item(item)
            await self.finish_item(item)


class TileReference(uvm_component):
    """Model that computes the tiles of observed operands with `golden.gemm`.

    Members
    -------
    exports : dict
        Analysis exports for ``tile``, ``a`` and ``b``.
    ap : uvm_analysis_port
        Publishes one prediction per tile; ``codes`` contains its two matrices.
    """

    def build_phase(self) -> None:
        self.array: Any = self.cdb_get("unit")
        self.ap = uvm_analysis_port("ap", self)
        self._seen: dict[int, dict[str, list[Operation]]] = {}
        self.exports = {name: export(name, self, partial(self._see, name)) for name in STREAMS}

    def _see(self, name: str, item: Operation) -> None:
        self._seen.setdefault(item.epoch, {stream: [] for stream in STREAMS})[name].append(item)

    def due(self, epoch: int) -> int:
        """Return the number of vectors in all tiles since a reset."""
        return sum(self.array.tiling.height * _vectors(job) for job in self._seen.get(epoch, {}).get("tile", []))

    def extract_phase(self) -> None:
        for epoch, seen in self._seen.items():
            self._predict(epoch, seen)

    def _predict(self, epoch: int, seen: dict[str, list[Operation]]) -> None:
        array, step, first = self.array, 0, 0
        height = array.tiling.height
        a, b = (self._matrix(name, seen[name]) for name in ("a", "b"))
        for job in seen["tile"]:
            k, vectors = job["k"].code, _vectors(job)
            left, a = np.split(a, [k * height])
            right, b = np.split(b, [k * vectors * array.m])
            if len(left) < k * height or len(right) < k * vectors * array.m:
                return
            matrices = left.reshape(k, height).T.copy(), right.reshape(k, vectors * array.m)
            codes = dict(zip("ab", matrices, strict=True))
            results = self.results(*matrices, step).reshape(-1, array.m)
            want = {f"c{lane}": results[:, lane] for lane in range(array.m)}
            self.ap.write(Prediction(epoch, first, codes, want, [job.cycle] * len(results), chained=False))
            step, first = step + k * vectors * array.tiling.rows, first + len(results)

    def _matrix(self, name: str, items: list[Operation]) -> Codes:
        """Concatenate all codes of a stream."""
        found = columns(ports_of(self.array, name), items)
        return np.stack(list(found.values()), axis=1).reshape(-1)

    def results(self, a: Codes, b: Codes, step: int) -> Codes:
        """Compute the results of one tile with the golden model, after ``step`` words of each random source."""
        array = self.array
        dealing: dict[str, Any] = {"tiling": array.tiling, "first_step": step} if array.mac.random else {}
        x, y = (torch.from_numpy(codes.astype(np.int64)) for codes in (a, b))
        found: Codes = golden.gemm(x, y, array.mac, **dealing).numpy().astype(np.uint64)
        return found


def _vectors(job: Operation) -> int:
    """Return the number of vectors in each row of a tile."""
    return job["vectors"].code if "vectors" in job.operands else 1


class TileScoreboard(Scoreboard):
    """Scoreboard of tiles, which reports a wrong element with its row and column of operands."""

    def outputs_of(self, unit: Component) -> Ports:
        return ports_of(unit, "c")

    def full_reports(self, part: Prediction, fault: Fault) -> list[Failure]:
        assert fault.index is not None
        got = enumerate(self.outputs.unpack(fault.got))
        wrong = [(lane, code) for lane, code in got if code != part.want[f"c{lane}"][fault.index]]
        return [self._failure(part, fault.index, *element) for element in wrong]

    def _failure(self, part: Prediction, transfer: int, lane: int, found: int) -> Failure:
        array, a, b = self.unit, part.codes["a"], part.codes["b"]
        row, vector = divmod(transfer, b.shape[1] // array.m)
        column = vector * array.m + lane
        port = self.outputs.ports[lane]
        want = int(part.want[port.name][transfer])
        lines = [
            f"row {row}, column {column} of a tile of {a.shape[1]} terms, {part.first + transfer} vectors after reset",
            f"a      {' '.join(map(hex, a[row].tolist()))}",
            f"b      {' '.join(map(hex, b[:, column].tolist()))}",
            line(port, want, "expected"),
            line(port, found, "got"),
            *self._save_command(a[row].tolist(), b[:, column].tolist()),
        ]
        return Failure("mismatch", "\n".join(lines), None, {port.name: want}, {port.name: found})

    def _save_command(self, a: list[int], b: list[int]) -> list[str]:
        """Return the command that saves the sum as a regression; empty for a long sum or with random words."""
        from halfulp.units import Mac

        if self.unit.mac.random or len(a) > SAVED_STEPS:
            return []
        unit = Mac.of(self.unit.mac)
        inputs = Ports.inputs_of(unit)
        steps = [
            inputs.write({"a": x, "b": y, "c": 0, "load": 0, "clear": int(number == 0)})
            for number, (x, y) in enumerate(zip(a, b, strict=True))
        ]
        return [f"save:  {Implementation.of(unit).command('save', '--vector', ';'.join(steps))}"]


class TileEnv(uvm_env):
    """Environment with an agent for each stream of an array, and checks of its tiles."""

    def build_phase(self) -> None:
        self.agents: dict[str, Any] = {}
        for name, interface in self.cdb_get("interfaces").items():
            self.cdb_set("interface", interface, f"{name}.*")
            self.agents[name] = (OperandAgent if name in STREAMS else ResultAgent).create(name, self)
        self.reference = TileReference.create("reference", self)
        self.scoreboard = TileScoreboard.create("scoreboard", self)

    def connect_phase(self) -> None:
        for name in STREAMS:
            self.agents[name].monitor.ap.connect(self.reference.exports[name])
        self.agents["c"].monitor.ap.connect(self.scoreboard.results)
        self.agents["c"].monitor.broken.connect(self.scoreboard.broken)
        self.reference.ap.connect(self.scoreboard.predictions)

    async def reset(self) -> None:
        """Reset the array."""
        interface = self.agents["c"].monitor.interface
        await interface.edge()
        await interface.reset()

    async def drain(self) -> None:
        """Wait for all vectors of all tiles."""
        results = self.agents["c"].monitor
        await drain(results, lambda: results.published >= self.reference.due(results.epoch))


class TileTest(UnitTest):
    """Test of matrix products on a systolic array."""

    DUT: ClassVar[type[Any]] = TileDut
    ENV: ClassVar[type[Any]] = TileEnv
    SEQUENCES: ClassVar[dict[str, type[Any]]] = {
        "campaign": TileSequence,
        "random": AnythingSequence,
        "storm": TileStormSequence,
    }

    @classmethod
    def check(cls, job: Job, unit: Component) -> None:
        if job.sequence not in cls.SEQUENCES:
            raise ValueError(f"unknown sequence {job.sequence!r} of an array: expected {', '.join(cls.SEQUENCES)}")

    def interfaces(self, top: Any) -> dict[str, Interface]:
        clock = {"clk": top.clk, "rst": top.rst}
        found: dict[str, Interface] = {}
        for name in (*STREAMS, "c"):
            payload, valid, ready = (getattr(top, f"{name}__{part}") for part in ("payload", "valid", "ready"))
            word = Packed(payload, ports_of(self.unit, name))
            known = {**clock, "valid": valid, "ready": ready, "side": name}
            found[name] = Source(inputs=word, **known) if name in STREAMS else Sink(outputs=word, **known)
        return found

    @classmethod
    def total(cls, job: Job) -> int:
        return job.limit or PRODUCTS

    async def begin(self, top: Any) -> None:
        Clock(top.clk, PERIOD, "ns").start()
        await self.env.reset()

    async def stimulate(self) -> None:
        sequence = self.stimulus()
        sequence.env = self.env
        await sequence.start()
        await self.env.drain()

    @property
    def scoreboards(self) -> list[Scoreboard]:
        return [self.env.scoreboard]

    @property
    def notes(self) -> list[str]:
        # An array has no coverage bins.
        return []
