"""Address generation of a kernel: tiles of the result, and the rows of each matrix in memory."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from halfulp.hdl.specs import Tiling

from .axi import BYTES, OUTSTANDING, PLACE_BITS
from .layout import ADDRESS_BITS

SIZE_BITS = 32


def power_below(number: int, most: int) -> int:
    """Return the largest power of two up to ``most``, itself a power of two, that divides a number."""
    return min(number & -number, most)


def group_of(count: int, size: int) -> int:
    """Return the elements of ``size`` bytes that move together: a power of two that divides ``count``, up to a beat."""
    most = BYTES // size
    return power_below(count, 1 << (most.bit_length() - 1))


class Tiles(wiring.Component):
    """Generator of the tiles of a result, in order, each with its address in one matrix.

    Parameters
    ----------
    tiling : Tiling
    along : int
        Bytes from a column to the next; 0 if the address does not depend on the column.
    down : bool
        True if the address depends on the row.

    Members
    -------
    start : In(1)
    n, m : In(32)
        Rows and columns of the result, 1 or more.
    base, stride : In
        Address of the first element, and bytes from a row to the next.
    o : Out(stream of address, rows, columns and vectors)
        Rows and columns of the tile inside the result, and the vectors that hold these columns.
    idle : Out(1)
    """

    def __init__(self, *, tiling: Tiling, along: int, down: bool) -> None:
        self.tiling, self.along, self.down = tiling, along, down
        super().__init__(
            {
                "start": In(1),
                "n": In(SIZE_BITS),
                "m": In(SIZE_BITS),
                "base": In(ADDRESS_BITS),
                "stride": In(SIZE_BITS),
                "o": Out(stream.Signature(tile_layout(tiling))),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        tiling = self.tiling
        rows_left, columns_left = Signal(SIZE_BITS), Signal(SIZE_BITS)
        row, address = Signal(ADDRESS_BITS), Signal(ADDRESS_BITS)
        more_rows, more_columns = rows_left > tiling.height, columns_left > tiling.columns
        tile = self.o.payload
        m.d.comb += [
            self.idle.eq(rows_left == 0),
            self.o.valid.eq(rows_left != 0),
            tile.address.eq(address),
            tile.rows.eq(Mux(more_rows, tiling.height, rows_left)),
            tile.columns.eq(Mux(more_columns, tiling.columns, columns_left)),
            tile.vectors.eq((tile.columns + (tiling.m - 1)) // tiling.m),
        ]
        below = Signal(ADDRESS_BITS)
        m.d.comb += below.eq(row + (self.stride * tiling.height if self.down else 0))
        with m.If(self.o.valid & self.o.ready):
            with m.If(more_columns):
                m.d.sync += [
                    columns_left.eq(columns_left - tiling.columns),
                    address.eq(address + self.along * tiling.columns),
                ]
            with m.Else():
                m.d.sync += [
                    columns_left.eq(self.m),
                    rows_left.eq(Mux(more_rows, rows_left - tiling.height, 0)),
                    row.eq(below),
                    address.eq(below),
                ]
        with m.If(self.start):
            m.d.sync += [rows_left.eq(self.n), columns_left.eq(self.m), row.eq(self.base), address.eq(self.base)]
        return m


def tile_layout(tiling: Tiling) -> data.StructLayout:
    """Return the layout of a tile from `Tiles`."""
    return data.StructLayout(
        {
            "address": ADDRESS_BITS,
            "rows": range(tiling.height + 1),
            "columns": range(tiling.columns + 1),
            "vectors": range(tiling.depth + 1),
        }
    )


def block_layout(most: int) -> data.StructLayout:
    """Return the layout of a block of rows in memory: the first ``wanted`` rows are read or written.

    Each row has ``count`` elements, padded to ``total``."""
    return data.StructLayout(
        {
            "address": ADDRESS_BITS,
            "rows": SIZE_BITS,
            "wanted": SIZE_BITS,
            "count": range(most + 1),
            "total": range(most + 1),
        }
    )


def segment_layout(most: int) -> data.StructLayout:
    """Return the layout of ``count`` adjacent elements in memory, padded to ``total``."""
    return data.StructLayout({"address": ADDRESS_BITS, "count": range(most + 1), "total": range(most + 1)})


class Chunks(wiring.Component):
    """Splitter of the rows of a tile of ``a`` into blocks of ``chunk`` columns; elements have ``size`` bytes."""

    def __init__(self, *, tiling: Tiling, size: int, chunk: int) -> None:
        self.tiling, self.size, self.chunk = tiling, size, chunk
        super().__init__(
            {
                "k": In(SIZE_BITS),
                "i": In(stream.Signature(tile_layout(tiling))),
                "o": Out(stream.Signature(block_layout(chunk))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        done, address = Signal(SIZE_BITS), Signal(ADDRESS_BITS)
        left, last = Signal(SIZE_BITS), Signal()
        block = self.o.payload
        m.d.comb += [
            left.eq(self.k - done),
            last.eq(left <= self.chunk),
            block.address.eq(self.i.payload.address + address),
            block.rows.eq(self.tiling.height),
            block.wanted.eq(self.i.payload.rows),
            block.count.eq(Mux(last, left, self.chunk)),
            block.total.eq(block.count),
            self.o.valid.eq(self.i.valid),
            self.i.ready.eq(self.o.ready & last),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [
                done.eq(Mux(last, 0, done + self.chunk)),
                address.eq(Mux(last, 0, address + self.chunk * self.size)),
            ]
        return m


class Rows(wiring.Component):
    """Splitter of blocks into their rows, in order."""

    def __init__(self, *, most: int) -> None:
        super().__init__(
            {
                "stride": In(SIZE_BITS),
                "i": In(stream.Signature(block_layout(most))),
                "o": Out(stream.Signature(segment_layout(most))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        row, offset = Signal(SIZE_BITS), Signal(ADDRESS_BITS)
        block, segment = self.i.payload, self.o.payload
        last = row + 1 == block.rows
        m.d.comb += [
            segment.address.eq(block.address + offset),
            segment.count.eq(Mux(row < block.wanted, block.count, 0)),
            segment.total.eq(block.total),
            self.o.valid.eq(self.i.valid),
            self.i.ready.eq(self.o.ready & last),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [row.eq(Mux(last, 0, row + 1)), offset.eq(Mux(last, 0, offset + self.stride))]
        return m


def place_layout(most: int) -> data.StructLayout:
    """Return the layout of a segment's position in its beats: first byte, and numbers of elements."""
    return data.StructLayout({"place": PLACE_BITS, "count": range(most + 1), "total": range(most + 1)})


class Fork(wiring.Component):
    """Fork of segments: byte ranges of non-empty ones to the master, positions of all to the packer.

    Parameters
    ----------
    most : int
        Maximum number of elements of a segment.
    size : int
        Bytes of an element.

    Members
    -------
    i : In(stream of segments)
    runs : Out(stream of address and bytes)
    places : Out(stream of places)
    idle : Out(1)
        No position is queued.
    """

    def __init__(self, *, most: int, size: int) -> None:
        self.most, self.size = most, size
        run = data.StructLayout({"address": ADDRESS_BITS, "bytes": range(most * size + 1)})
        super().__init__(
            {
                "i": In(stream.Signature(segment_layout(most))),
                "runs": Out(stream.Signature(run)),
                "places": Out(stream.Signature(place_layout(most))),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        layout = place_layout(self.most)
        m.submodules.queue = queue = SyncFIFO(width=layout.size, depth=OUTSTANDING)
        segment = self.i.payload
        place = Signal(layout)
        empty = segment.count == 0
        m.d.comb += [
            place.place.eq(segment.address[:PLACE_BITS]),
            place.count.eq(segment.count),
            place.total.eq(segment.total),
            queue.w_data.eq(place.as_value()),
            self.runs.payload.address.eq(segment.address),
            self.runs.payload.bytes.eq(segment.count * self.size),
            self.runs.valid.eq(self.i.valid & ~empty & queue.w_rdy),
            self.i.ready.eq(queue.w_rdy & (self.runs.ready | empty)),
            queue.w_en.eq(self.i.valid & self.i.ready),
        ]
        connect(m, queue.r_stream, self.places)
        m.d.comb += self.idle.eq(~queue.r_rdy)
        return m


def connect(m: Module, source: Any, sink: Any, payload: Value | None = None) -> None:
    """Connect a source stream to a sink; ``payload`` replaces the payload of the source."""
    m.d.comb += [
        Value.cast(sink.payload).eq(Value.cast(source.payload) if payload is None else payload),
        sink.valid.eq(source.valid),
        source.ready.eq(sink.ready),
    ]
