"""Reordering of element streams: transposition, and groups of another size."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from halfulp.hdl.wire import word_at

from .movers import SIZE_BITS, connect

BUFFERS = 4
"""Chunks of ``a`` on chip; a short last chunk of a tile may be used before a whole one is loaded."""


class Transpose(wiring.Component):
    """Transposer of chunks: takes rows, gives columns.

    Parameters
    ----------
    rows : int
        Rows per chunk.
    chunk : int
        Maximum number of columns per chunk, a power of two.
    bits : int
        Bits per element.

    Members
    -------
    k : In(32)
        Columns of a tile; the last chunk has the remainder.
    i, o : stream of bits
    """

    def __init__(self, *, rows: int, chunk: int, bits: int) -> None:
        self.rows, self.chunk, self.bits = rows, chunk, bits
        super().__init__({"k": In(SIZE_BITS), "i": In(stream.Signature(bits)), "o": Out(stream.Signature(bits))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        row_bits, column_bits = (self.rows - 1).bit_length(), (self.chunk - 1).bit_length()
        m.submodules.memory = memory = Memory(shape=self.bits, depth=BUFFERS << (row_bits + column_bits), init=[])
        write, read = memory.write_port(), memory.read_port()
        full = Signal(BUFFERS)
        put, get = _Place(m, self, "put", rows_first=False), _Place(m, self, "get", rows_first=True)
        held = Signal()
        takes, reads = Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(~word_at(full, put.buffer, 1)),
            takes.eq(self.i.valid & self.i.ready),
            write.addr.eq(Cat(put.column[:column_bits], put.row[:row_bits], put.buffer)),
            write.data.eq(self.i.payload),
            write.en.eq(takes),
            reads.eq(word_at(full, get.buffer, 1) & (~held | self.o.ready)),
            read.addr.eq(Cat(get.column[:column_bits], get.row[:row_bits], get.buffer)),
            read.en.eq(reads),
            self.o.payload.eq(read.data),
            self.o.valid.eq(held),
        ]
        with m.If(self.o.ready):
            m.d.sync += held.eq(0)
        with m.If(reads):
            m.d.sync += held.eq(1)
        put.step(m, takes)
        get.step(m, reads)
        for buffer in range(BUFFERS):
            with m.If(takes & put.last & (put.buffer == buffer)):
                m.d.sync += full[buffer].eq(1)
            with m.If(reads & get.last & (get.buffer == buffer)):
                m.d.sync += full[buffer].eq(0)
        return m


class _Place:
    """Counters of buffer, row and column that traverse the chunks of tiles, by rows or by columns."""

    def __init__(self, m: Module, chunks: Transpose, name: str, *, rows_first: bool) -> None:
        self.buffer = Signal(range(BUFFERS), name=f"{name}_buffer")
        self.row = Signal(range(max(chunks.rows, 2)), name=f"{name}_row")
        self.column = Signal(range(max(chunks.chunk, 2)), name=f"{name}_column")
        self.done = Signal(SIZE_BITS, name=f"{name}_done")
        self.last = Signal(name=f"{name}_last")
        self.chunk, self.rows_first = chunks.chunk, rows_first
        left = Signal(SIZE_BITS, name=f"{name}_left")
        self.last_chunk = Signal(name=f"{name}_last_chunk")
        self.last_row, self.last_column = Signal(name=f"{name}_last_row"), Signal(name=f"{name}_last_column")
        m.d.comb += [
            left.eq(chunks.k - self.done),
            self.last_chunk.eq(left <= chunks.chunk),
            self.last_row.eq(self.row == chunks.rows - 1),
            self.last_column.eq(self.column + 1 == Mux(self.last_chunk, left, chunks.chunk)),
            self.last.eq(self.last_row & self.last_column),
        ]

    def step(self, m: Module, go: Value) -> None:
        """Advance the counters in each cycle in which ``go`` is 1."""
        inner = (self.row, self.last_row) if self.rows_first else (self.column, self.last_column)
        outer = (self.column, self.last_column) if self.rows_first else (self.row, self.last_row)
        with m.If(go):
            m.d.sync += inner[0].eq(Mux(inner[1], 0, inner[0] + 1))
            with m.If(inner[1]):
                m.d.sync += outer[0].eq(Mux(outer[1], 0, outer[0] + 1))
            with m.If(self.last):
                m.d.sync += [
                    self.buffer.eq(self.buffer + 1),
                    self.done.eq(Mux(self.last_chunk, 0, self.done + self.chunk)),
                ]


class Regroup(wiring.Component):
    """Converter of a stream of element groups to larger or smaller groups.

    Parameters
    ----------
    bits : int
        Bits of a small group.
    ratio : int
        Small groups per large group.
    joins : bool
        True for small groups to large ones, False for the reverse.
    """

    def __init__(self, *, bits: int, ratio: int, joins: bool) -> None:
        self.bits, self.ratio, self.joins = bits, ratio, joins
        small, large = stream.Signature(bits), stream.Signature(bits * ratio)
        super().__init__({"i": In(small if joins else large), "o": Out(large if joins else small)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self.ratio == 1:
            connect(m, self.i, self.o)
            return m
        parts, count = Signal(self.bits * self.ratio), Signal(range(self.ratio + 1))
        if self.joins:
            m.d.comb += [
                self.o.payload.eq(parts),
                self.o.valid.eq(count == self.ratio),
                self.i.ready.eq((count != self.ratio) | self.o.ready),
            ]
            taken = self.o.valid & self.o.ready
            with m.If(self.i.valid & self.i.ready):
                m.d.sync += [parts.eq(Cat(parts[self.bits :], self.i.payload)), count.eq(Mux(taken, 1, count + 1))]
            with m.Elif(taken):
                m.d.sync += count.eq(0)
            return m
        m.d.comb += [
            self.o.payload.eq(parts),
            self.o.valid.eq(count != 0),
            self.i.ready.eq((count == 0) | ((count == 1) & self.o.ready)),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [count.eq(count - 1), parts.eq(parts >> self.bits)]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [count.eq(self.ratio), parts.eq(self.i.payload)]
        return m
