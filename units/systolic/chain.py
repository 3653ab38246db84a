"""One-dimensional systolic array with several accumulators per multiply-accumulate."""

import functools
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from halfulp.hdl.specs import Build, Tiling, UnitSpec
from halfulp.hdl.wire import modulo_counter, word_at
from halfulp.units.shared import add_part

from .array import K_BITS, Array, Drain, Sources, connect_entry, delayed, index_shape
from .step import Read, Step, is_read, lag, state_bits

DEPTH = 32
"""Default number of vectors per row of a tile; the depth of small memories made of LUTs."""


class Chain(Array):
    """One-dimensional systolic array: a chain of elements, each of which computes some rows of a tile.

    An element has ``m`` multiply-accumulates, which share one number of ``a`` and take one vector of ``b`` per cycle.
    Memories hold accumulators for ``depth`` vectors of each row of the element. Numbers of ``a`` pass down the chain,
    one per cycle; each element stores its own until their step of k begins. Each vector of ``b`` passes through all
    elements, once for each row of an element. An accumulator is therefore idle while the other accumulators of the
    element are updated, which leaves time for register stages. The last step writes to a second memory, which is
    drained down the chain while the next tile is computed.

    Parameters
    ----------
    mac : MacSpec, BlockMacSpec, SparseMacSpec or str
        Step of each multiply-accumulate, with a source if it is stochastic; see `Array`.
    n : int
        Number of elements.
    m : int
        Multiply-accumulates per element.
    depth : int
        Maximum number of vectors per row of a tile; a tile has n * rows rows and m * depth columns.
    rows : int
        Rows of a tile per element. ``b`` is read once for each row of tiles, at most one vector every ``rows`` cycles.
    build : Build
        Register stages and structure of each multiply-accumulate; changes no result bit.

    Members
    -------
    tile : In(stream.Signature(StructLayout({"k": 32, "vectors": range(depth + 1)})))
        Request of a tile: k products per result, at least 1, and the number of vectors per row, 1 to ``depth``.
        ``vectors`` is absent if the depth is 1.
    a : In(stream.Signature(ArrayLayout(entry, 1)))
        For each tile and step of k: the entries of all rows, first row first; see `entry_shape`.
    b : In(stream.Signature(ArrayLayout(entry, m)))
        For each tile and step of k: the vectors of the row of ``b``.
    c : Out(stream.Signature(ArrayLayout(mac.o, m)))
        For each tile: its rows, each as its vectors in order.

    Latency
    -------
    `cycles` returns the cycles of a product. A step of k takes the number of vectors in the tile times ``rows``, but
    at least n * rows cycles, which loading ``a`` takes, and at least ``spacing``.

    Notes
    -----
    The chain never stalls, because each result has a place in the queue at its end. Without input a gap is sent, in
    which random sources do not advance. Results equal those of ``golden.gemm`` with ``tiling``.

    Source
    ------
    De Fine Licht, Kwasniewski, Hoefler: Flexible Communication Avoiding Matrix Multiplication on FPGA with High-Level
    Synthesis, FPGA 2020, which also gives an element several rows and columns. Here results leave at the far end.
    """

    def __init__(
        self,
        *,
        mac: UnitSpec | str,
        n: int,
        m: int,
        depth: int = DEPTH,
        rows: int = 1,
        build: Build = Build(),
    ) -> None:
        tiling = Tiling(n, m, depth, rows)
        shape = f"_d{depth}" + (f"_r{rows}" if rows != 1 else "")
        super().__init__(mac=mac, tiling=tiling, a_lanes=1, name="chain", shape=shape, build=build)
        self.depth, self.rows = depth, rows

    @property
    def spacing(self) -> int:
        """Minimum number of cycles between two uses of an accumulator: read, add, write."""
        return self.stages - lag(self.mac, self.stages) + 2

    def _part(self, build: Build) -> Step:
        return Step(self.mac.without_source, build=build)

    @functools.cached_property
    def _read(self) -> Build:
        """Build of the units that read accumulators, with a number of register stages."""
        own = self.build
        build = Build(pipeline=own.pipeline, clock=own.clock, target=own.target, goal=own.goal)
        return build if build.clock is None else build.with_stages(Read(self.mac, build=build).stages)

    @property
    def _reading(self) -> int:
        """Register stages that read accumulators; 0 for those that are stored as codes."""
        return self._read.pipeline if is_read(self.mac, self.build) else 0

    @property
    def _distance(self) -> int:
        return self.n + self._reading

    def _cycles(self, n: int, k: int, m: int) -> int:
        first, free = self.tiling.height, 0
        for tile in self.tiling.tiles(n, m):
            step = max(tile.vectors * self.rows, self.tiling.height, self.spacing)
            # A tile overwrites the results of the previous one, which must have been drained.
            last = max(first + (k - 1) * step, free)
            drained = last + tile.vectors * self.rows + self.stages + 1
            free = drained + self.tiling.height * tile.vectors
            first = last + step
        return free + self._distance + 1

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.drain = drain = Drain(
            tiling=self.tiling, width=self.m * self.mac.o.width, distance=self._distance, delay=self.stages + 2
        )
        head = Signal(_link(self), name="head")
        self._issue(m, drain, head, loaded=self._load(m, head))
        m.d.comb += [head.ask.eq(drain.ask), head.ask_row.eq(drain.row), head.ask_address.eq(drain.address)]
        link: Value = head.as_value()
        rows = index_shape(self.n)
        for row in range(self.n):
            element = Element(self, self.seeds[row * self.m : (row + 1) * self.m])
            constants = {"row": Const(row, rows), **element.sources.ports}
            add_part(m, platform, f"element{row}", element, self.key, **constants)
            m.d.comb += element.i.eq(link)
            link = element.o
        self._collect(m, platform, drain, data.View(_link(self), link))
        return m

    def _load(self, m: Module, head: Any) -> Value:
        """Send the numbers of ``a`` for the next step; return the condition that all elements have theirs.

        The first number may be sent in the cycle of a vector with ``swap``, which makes elements use the previous
        numbers, but not earlier.
        """
        row, loaded = Signal(index_shape(self.n), name="row"), Signal(name="loaded")
        slot, last_slot = modulo_counter(m, self.rows, head.load)
        last = last_slot & (row == self.n - 1)
        m.d.comb += [
            self.a.ready.eq(~loaded | (head.valid & head.swap)),
            head.load.eq(self.a.valid & self.a.ready),
            head.row.eq(row),
            head.row_slot.eq(slot),
            head.a.eq(Value.cast(self.a.payload)),
        ]
        with m.If(head.valid & head.swap):
            m.d.sync += loaded.eq(0)
        with m.If(head.load):
            m.d.sync += loaded.eq(last)
            with m.If(last_slot):
                m.d.sync += row.eq(Mux(last, 0, row + 1))
        return loaded

    def _issue(self, m: Module, drain: Drain, head: Any, loaded: Value) -> None:
        """Send the vectors of ``b`` tile by tile, each vector once for each row of an element."""
        busy, steps_left = Signal(name="busy"), Signal(K_BITS, name="steps_left")
        vectors = Signal(range(self.depth + 1))
        places = Signal(range(self.depth * self.rows + 1))
        slot, last_slot = modulo_counter(m, self.rows, head.valid)
        rest = Signal(range(self.spacing))
        begins, ends, last_step, may_go = (Signal(name=name) for name in ("begins", "ends", "last_step", "may_go"))
        begin_of_tile = Signal()
        m.d.comb += [
            begins.eq(head.address == 0),
            ends.eq(head.address + 1 == places),
            places.eq(vectors * self.rows),
            last_step.eq(steps_left == 1),
            may_go.eq(~begins | (loaded & (rest == 0) & (drain.free | ~last_step))),
            self.b.ready.eq(busy & may_go & last_slot),
            head.valid.eq(self.b.valid & busy & may_go),
            head.slot.eq(slot),
            head.swap.eq(begins),
            head.first.eq(begin_of_tile),
            head.last.eq(last_step),
            head.b.eq(Value.cast(self.b.payload)),
            drain.claim.eq(head.valid & begins & last_step),
            drain.finish.eq(head.valid & ends & last_step),
            drain.vectors.eq(vectors),
            self.tile.ready.eq(~busy | drain.finish),
        ]
        address = Signal.like(head.address)
        m.d.comb += head.address.eq(address)
        with m.If(rest != 0):
            m.d.sync += rest.eq(rest - 1)
        with m.If(head.valid):
            m.d.sync += address.eq(Mux(ends, 0, address + 1))
            with m.If(ends):
                # The accumulators of this step must be written before the next step reads them.
                short = Signal.like(rest)
                m.d.comb += short.eq(Mux(places < self.spacing, self.spacing - places, 0))
                m.d.sync += [steps_left.eq(steps_left - 1), begin_of_tile.eq(0), rest.eq(short)]
                with m.If(last_step):
                    m.d.sync += busy.eq(0)
        with m.If(self.tile.valid & self.tile.ready):
            wanted = self.tile.payload.vectors if self.depth > 1 else 1
            m.d.sync += [busy.eq(1), begin_of_tile.eq(1), steps_left.eq(self.tile.payload.k), vectors.eq(wanted)]

    def _collect(self, m: Module, platform: object, drain: Drain, link: Any) -> None:
        """Take results from the end of the chain, and read those that are not codes."""
        width = state_bits(self.mac, self.build)
        codes = []
        for lane in range(self.m):
            code = link.results[lane * width : (lane + 1) * width]
            if is_read(self.mac, self.build):
                read = Read(self.mac, build=self._read)
                add_part(m, platform, f"read{lane}", read, read.spec, read.build)
                m.d.comb += read.held.eq(code)
                code = read.o.as_value()
            codes.append(code)
        m.d.comb += [
            drain.arriving.eq(Cat(*codes)),
            drain.arrived.eq(delayed(m, link.ask, self._reading, "arrived")),
            Value.cast(self.c.payload).eq(drain.o.payload),
            self.c.valid.eq(drain.o.valid),
            drain.o.ready.eq(self.c.ready),
        ]


def _link(chain: Chain) -> data.StructLayout:
    """Return the layout of the signals between two elements."""
    row, slot, address = index_shape(chain.n), index_shape(chain.rows), index_shape(chain.depth * chain.rows)
    return data.StructLayout(
        {
            # A vector of b and the address of its accumulators, which belong to one row of the element. ``swap`` marks
            # the first vector that uses the next numbers of a; ``first`` and ``last`` mark the first and last step of a
            # tile.
            "valid": 1,
            "swap": 1,
            "first": 1,
            "last": 1,
            "slot": slot,
            "address": address,
            "b": chain.m * chain.mac.entry_bits("b"),
            # A number of a for one row of one element.
            "load": 1,
            "row": row,
            "row_slot": slot,
            "a": chain.mac.entry_bits("a"),
            # A requested vector of results; the element that has it adds its accumulators.
            "ask": 1,
            "ask_row": row,
            "ask_address": address,
            "results": chain.m * state_bits(chain.mac, chain.build),
        }
    )


class Element(wiring.Component):
    """Element of a chain: the multiply-accumulates of some rows of a tile, and their memories.

    Parameters
    ----------
    chain : Chain
    seeds : list of int
        Seeds of the multiply-accumulates of the element.

    Members
    -------
    i, o
        Signals from the previous and to the next element, delayed by one cycle.
    row : In
        Position of the element in the chain, a constant.
    seeds : In
        The constant of `Sources.ports`, if there is one.
    """

    def __init__(self, chain: Chain, seeds: list[int]) -> None:
        self.name = f"element_{chain.name}"
        self.mac, self.m, self.rows, self.depth = chain.mac, chain.m, chain.rows, chain.depth * chain.rows
        self.sources, self.chain = Sources(chain.mac, seeds), chain
        self.layout = _link(chain)
        states = {name: In(len(value)) for name, value in self.sources.ports.items()}
        # Fields of these ports would have wires in Verilog for each element.
        link = self.layout.size
        super().__init__({"i": In(link), "o": Out(link), "row": In(index_shape(chain.n)), **states})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self.steps = [self.chain._part(self.chain.part_build) for _ in range(self.m)]
        incoming, outgoing = (data.View(self.layout, port) for port in (self.i, self.o))
        now: Any = Signal(self.layout, name="now")
        m.d.sync += now.eq(self.i)
        m.d.comb += self.o.eq(now)
        next_a, held_a = (
            [Signal.like(now.a, name=f"{name}_{slot}") for slot in range(self.rows)] for name in ("next", "a")
        )
        for slot in range(self.rows):
            with m.If(incoming.load & (incoming.row == self.row) & (incoming.row_slot == slot)):
                m.d.sync += next_a[slot].eq(incoming.a)
        with m.If(incoming.valid & incoming.swap):
            m.d.sync += Cat(*held_a).eq(Cat(*next_a))
        a = word_at(Cat(*held_a), now.slot, len(now.a)) if self.rows > 1 else held_a[0]
        latency, before_state = self.steps[0].latency, lag(self.mac, self.steps[0].stages)
        # Control flags of a vector in each cycle of the multiply-accumulates; the first entry is the cycle before.
        flags = [Cat(source.valid, source.first, source.last, source.address) for source in (incoming, now)]
        for stage in range(latency):
            flags.append(delayed(m, flags[-1], 1, f"stage{stage}"))
        (_, first, _, *_), (valid, _, last, *_) = flags[before_state + 1], flags[latency + 1]
        before, after = self._memory(m, "accumulators", flags[before_state][3:], flags[latency + 1][3:], valid)
        m.d.comb += after.eq(Cat(*(step.o for step in self.steps)))
        width = len(self.steps[0].o)
        for lane, step in enumerate(self.steps):
            add_part(m, platform, f"step{lane}", step, step.spec, step.build)
            connect_entry(m, step, "a", a)
            connect_entry(m, step, "b", now.b.word_select(lane, self.mac.entry_bits("b")))
            m.d.comb += [
                step.first.eq(first),
                step.held.eq(before[lane * width : (lane + 1) * width]),
            ]
            if self.mac.words:
                self.sources.connect(m, platform, f"step{lane}", lane, step, seeds=self.seeds, step=now.valid)
        results, finished = self._memory(m, "results", incoming.ask_address, flags[latency + 1][3:], valid & last)
        m.d.comb += finished.eq(after)
        with m.If(now.ask & (now.ask_row == self.row)):
            m.d.comb += outgoing.results.eq(results)
        return m

    def _memory(self, m: Module, name: str, read: Value, write: Value, enable: Value) -> tuple[Value, Value]:
        """Add a memory; return the word read in the previous cycle and the word to write."""
        width = len(self.steps) * len(self.steps[0].o)
        m.submodules[name] = memory = Memory(shape=unsigned(width), depth=max(self.depth, 2), init=[])
        read_port, write_port = memory.read_port(), memory.write_port()
        m.d.comb += [read_port.addr.eq(read), write_port.addr.eq(write), write_port.en.eq(enable)]
        return read_port.data, write_port.data
