# amaranth: UnusedElaboratable=no
"""Common base of systolic arrays: streams, draining of finished tiles, seeds of random sources.

The comment in the first line turns off Amaranth's warning about arrays that are constructed only to look at them.
"""

import functools
from abc import abstractmethod
from dataclasses import replace
from typing import Any, Self

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from halfulp.hdl.delay import MODELS
from halfulp.hdl.formats.checks import check_int
from halfulp.hdl.formats.source import Source
from halfulp.hdl.lfsr import source_word
from halfulp.hdl.specs import Build, RunningSumSpec, Tiling, UnitSpec, parse_cell
from halfulp.hdl.wire import modulo_counter
from halfulp.units.base import Unit
from halfulp.units.builds import module_name
from halfulp.units.running_sum import Structures
from halfulp.units.shared import add_part
from halfulp.units.sources import word_of

K_BITS = 32
"""Bits of k, the number of products per result, in the tile stream."""


class Array(Structures):
    """Systolic array of multiply-accumulates that computes matrix products tile by tile.

    Parameters
    ----------
    mac : MacSpec, BlockMacSpec, SparseMacSpec or str
        Step of each multiply-accumulate, such as ``mac e5m2*e5m2+e6m5.sr10@lfsr16:5``. Stochastic rounding needs a
        source; multiply-accumulate i of n * m starts with seed i of ``source.seeds(n * m, state)``. An entry of a
        matrix is what a step takes: a number, the elements of a step of a block and their scale, or with structured
        sparsity the activations of a step, and its weights and their indices.
    tiling : Tiling
    a_lanes : int
        Entries of ``a`` per transfer.
    name, shape : str
        Parts of the module name: kind of array, and tiling.
    build : Build
        Register stages and structure of each multiply-accumulate; changes no result bit.

    Raises
    ------
    TypeError, ValueError
        If a parameter has the wrong type or is out of range, or stochastic rounding has no source.
    """

    def __new__(cls, *args: Any, **options: Any) -> Self:
        # Amaranth reads the first line of the file that constructs a component, which is this one then.
        return super().__new__(cls)

    def __init__(
        self,
        *,
        mac: UnitSpec | str,
        tiling: Tiling,
        a_lanes: int,
        name: str,
        shape: str = "",
        build: Build,
    ) -> None:
        self.mac = parse_cell(mac)
        if self.mac.words and self.mac.random is None:
            raise ValueError(
                f"each multiply-accumulate of an array needs a random source of its own: give {self.mac} a source, "
                "such as @lfsr16"
            )
        name = f"{name}_{tiling.n}x{tiling.m}_{self.mac.expression}{shape}"
        self.choose(self.mac, build, name)
        self.tiling, self.n, self.m = tiling, tiling.n, tiling.m
        self.a_lanes = a_lanes
        source = self.mac.random
        self.seeds = [1] * tiling.macs if source is None else source.seeds(tiling.macs, self.mac.seed)
        self.name = module_name(name, self.build)
        width = {"vectors": unsigned(tiling.depth.bit_length())} if tiling.depth > 1 else {}
        super().__init__(
            {
                "tile": In(stream.Signature(data.StructLayout({"k": unsigned(K_BITS), **width}))),
                "a": In(stream.Signature(data.ArrayLayout(entry_shape(self.mac, "a"), a_lanes))),
                "b": In(stream.Signature(data.ArrayLayout(entry_shape(self.mac, "b"), tiling.m))),
                "c": Out(stream.Signature(data.ArrayLayout(self.mac.o, tiling.m))),
            }
        )

    @property
    def title(self) -> str:
        """Size and multiply-accumulate of the array."""
        return f"{type(self).__name__} of {self.n} by {self.m}, {self.mac}"

    @property
    def key(self) -> tuple[object, ...]:
        """Parameters that determine the Verilog module of an element."""
        return self.tiling, self.mac.without_source, self.mac.random, self.build

    @functools.cached_property
    def stages(self) -> int:
        """Register stages of each multiply-accumulate; see `halfulp.units.base.Unit.stages`."""
        return self.build.pipeline if self.build.clock is None else self._part(self.build).stages

    @functools.cached_property
    def part_build(self) -> Build:
        """Build of the multiply-accumulates: the number of their register stages in place of a clock."""
        return self.build if self.build.clock is None else self.build.with_stages(self.stages)

    def mac_mhz(self, family: str) -> float:
        """Clock of the multiply-accumulates in MHz by the delay model of a device family."""
        part = self._part(self.part_build)
        return 1e6 / part.dataflow(self.stages, MODELS[family]).schedule()[1]

    @abstractmethod
    def _part(self, build: Build) -> Unit:
        """Return the unit that each element has."""

    def cycles(self, n: int, k: int, m: int) -> int:
        """Return the clock cycles of a product of (n, k) and (k, m) entries by an idle array.

        The count goes from the cycle in which the first transfers are offered to the one that takes the last result,
        both included, with ``valid`` of all inputs and ``ready`` of the result always 1.
        """
        for name, size in (("n", n), ("k", k), ("m", m)):
            check_int(name, size, "matrix product", 1)
        return self._cycles(n, k, m)

    @abstractmethod
    def _cycles(self, n: int, k: int, m: int) -> int:
        """Return the result of `cycles` for sizes of at least 1."""


class Words(wiring.Component):
    """Random source of a multiply-accumulate.

    Parameters
    ----------
    source : Source
    seed : int
        State after reset.

    Members
    -------
    seed : In
        The same state; its value is constant.
    step : In(1)
        Advance to the next word in the next cycle.
    word : Out(source.register)
    """

    def __init__(self, source: Source, seed: int) -> None:
        self.source, self.start = source, seed
        self.name = f"words_{source}"
        # The register of an LFSR is the port.
        self.initial = {"random_lfsr" if source.inverting else "word": f"seed[{source.register - 1}:0]"}
        if source.inverting:
            self.initial["random_inverted"] = f"seed[{source.register}]"
        super().__init__({"seed": In(source.state_bits), "step": In(1), "word": Out(source.register)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.word.eq(source_word(m, self.source, [self.start], self.step, "random"))
        return m


class Sources:
    """Random sources of multiply-accumulates that share a module.

    Parameters
    ----------
    mac : RunningSumSpec
        Multiply-accumulate with a source, or without random words.
    seeds : list of int
        Seed of each multiply-accumulate.
    """

    def __init__(self, mac: RunningSumSpec, seeds: list[int]) -> None:
        self._words = mac.words
        self._streams = [replace(mac, seed=seed).streams for seed in seeds]

    @property
    def ports(self) -> dict[str, Const]:
        """Constant for port ``seeds`` of the module: states of all sources after reset, first source in the low bits.

        Without random words there is no such port.
        """
        value = width = 0
        for own in (own for streams in self._streams for own in streams.values()):
            value |= own.seed << width
            width += own.source.state_bits
        return {"seeds": Const(value, width)} if width else {}

    def connect(
        self, m: Module, platform: object, name: str, lane: int, mac: Any, *, seeds: Value, step: Value
    ) -> None:
        """Add the sources of a multiply-accumulate and connect its ports of random words.

        Parameters
        ----------
        m, platform
            As of ``elaborate``.
        name : str
            Prefix of the names of submodules.
        lane : int
            Number of the multiply-accumulate.
        mac : Unit
            The multiply-accumulate, with ports of random words.
        seeds : Value
            Value of ``seeds``.
        step : Value
            Operands are present in this cycle.
        """
        for place, (port, own) in enumerate(self._streams[lane].items()):
            words = Words(own.source, own.seed)
            state = seeds.word_select(lane * len(self._words) + place, own.source.state_bits)
            add_part(m, platform, f"{name}_{port}", words, own.source, seed=state)
            m.d.comb += [
                words.step.eq(step),
                getattr(mac, port).eq(word_of(own, words.word, self._words[port])),
            ]


class Drain(wiring.Component):
    """Requests the vectors of a finished tile from the array and queues them for the output stream.

    The queue has room for each requested vector, so vectors never wait in the array. Each cycle with ``ask`` writes
    one word to the queue ``distance`` cycles later.

    Parameters
    ----------
    tiling : Tiling
    width : int
        Bits per vector.
    distance : int
        Cycles from ``ask`` to ``arrived``.
    delay : int
        Cycles from ``finish`` until the first vector may be requested.

    Members
    -------
    claim : In(1)
        A tile starts writing its results. Allowed only while ``free``.
    finish : In(1)
        The last results of the tile are about to be written.
    vectors : In(range(depth + 1))
        Vectors per row of the tile, sampled with ``finish``.
    free : Out(1)
        All results of the previous tile have been requested.
    ask : Out(1)
    row, address : Out
        Element of the requested vector, and address in its memory. Rows of a tile are requested in order.
    arrived : In(1)
    arriving : In(width)
    o : Out(stream.Signature(width))
        Queued vectors, in order.
    """

    def __init__(self, *, tiling: Tiling, width: int, distance: int, delay: int) -> None:
        self.tiling, self.distance, self.delay = tiling, distance, delay
        super().__init__(
            {
                "claim": In(1),
                "finish": In(1),
                "vectors": In(range(tiling.depth + 1)),
                "free": Out(1),
                "ask": Out(1),
                "row": Out(index_shape(tiling.n)),
                "address": Out(index_shape(tiling.depth * tiling.rows)),
                "arrived": In(1),
                "arriving": In(width),
                "o": Out(stream.Signature(width)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # A vector that is requested when the oldest is taken arrives when its place is free.
        room = self.distance + 2
        m.submodules.queue = queue = SyncFIFO(width=len(self.arriving), depth=room)
        m.d.comb += [
            queue.w_data.eq(self.arriving),
            queue.w_en.eq(self.arrived),
            self.o.payload.eq(queue.r_data),
            self.o.valid.eq(queue.r_rdy),
            queue.r_en.eq(self.o.ready),
        ]
        places = Signal(range(room + 1), init=room)
        m.d.sync += places.eq(places - self.ask + (self.o.valid & self.o.ready))
        busy, asking = Signal(name="busy"), Signal(name="asking")
        waiting = Signal(range(self.delay + 1))
        left = Signal.like(self.vectors)
        rows = self.tiling.rows
        vector = Signal(index_shape(self.tiling.depth))
        last_vector, last = Signal(name="last_vector"), Signal(name="last")
        slot, last_slot = modulo_counter(m, rows, self.ask & last_vector)
        m.d.comb += [
            self.free.eq(~busy),
            self.ask.eq(asking & (waiting == 0) & (places != 0)),
            self.address.eq(vector * rows + slot),
            last_vector.eq(vector + 1 == left),
            last.eq(self.ask & last_vector & last_slot & (self.row == self.tiling.n - 1)),
        ]
        with m.If(waiting != 0):
            m.d.sync += waiting.eq(waiting - 1)
        with m.If(self.ask):
            m.d.sync += vector.eq(Mux(last_vector, 0, vector + 1))
            with m.If(last_vector), m.If(last_slot):
                m.d.sync += self.row.eq(Mux(last, 0, self.row + 1))
        with m.If(last):
            m.d.sync += [busy.eq(0), asking.eq(0)]
        with m.If(self.claim):
            m.d.sync += busy.eq(1)
        with m.If(self.finish):
            m.d.sync += [asking.eq(1), waiting.eq(self.delay - 1), left.eq(self.vectors)]
        return m


def entry_shape(mac: RunningSumSpec, name: str) -> Any:
    """Return the shape of an entry of matrix ``a`` or ``b``: a number, or a structure of the ports that take it."""
    ports = mac.entries[name]
    return next(iter(ports.values())) if len(ports) == 1 else data.StructLayout(dict(ports))


def connect_entry(m: Module, unit: Unit, name: str, entry: Value) -> None:
    """Connect an entry of matrix ``a`` or ``b`` to the ports of a unit that take it."""
    for port, fmt in unit.spec.entries[name].items():
        m.d.comb += Value.cast(getattr(unit, port)).eq(entry[: fmt.width])
        entry = entry[fmt.width :]


def index_shape(count: int) -> Any:
    """Return the shape of an index below ``count``: at least one bit, because Verilog has no zero-width signals."""
    return range(max(count, 2))


def delayed(m: Module, value: Value, cycles: int, name: str) -> Value:
    """Return a value after ``cycles`` register stages."""
    if not cycles:
        return value
    line = Signal(len(value) * cycles, name=f"{name}_after_{cycles}")
    m.d.sync += line.eq(Cat(value, line))
    return line[-len(value) :]
