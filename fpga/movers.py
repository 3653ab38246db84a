"""How a kernel walks through matrices in memory: tiles, their rows, and the elements of these."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from halfulp.hdl.formats import Tiling

from .axi import BYTES, OUTSTANDING, PLACE_BITS, WriteBeat
from .kernelmap import ADDRESS_BITS

SIZE_BITS = 32


def power_below(number: int, most: int) -> int:
    """The largest power of two that divides a number, and is not above another one."""
    return min(number & -number, most)


class Tiles(wiring.Component):
    """The tiles of a result, in order, and where the rows or columns that they need begin in memory.

    Parameters
    ----------
    tiling : Tiling
    along : int
        Bytes from a column to the next; 0 where columns do not matter.
    down : bool
        Whether rows matter.

    Members
    -------
    start : In(1)
    n, m : In(32)
        Sizes of the result, not 0.
    base, stride : In
        Address of the first element, and bytes from a row to the next.
    o : Out(stream of address, rows, columns and vectors)
        Rows and columns that are wanted, and vectors that the columns take.
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
    """A tile, as `Tiles` gives it."""
    return data.StructLayout(
        {
            "address": ADDRESS_BITS,
            "rows": range(tiling.height + 1),
            "columns": range(tiling.columns + 1),
            "vectors": range(tiling.depth + 1),
        }
    )


def block_layout(most: int) -> data.StructLayout:
    """Rows of memory that lie ``stride`` bytes apart: how many there are, of which so many are ``wanted``, each of
    ``count`` elements that are there, padded to ``total``."""
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
    """Elements that lie beside each other: ``count`` that are there, padded to ``total``."""
    return data.StructLayout({"address": ADDRESS_BITS, "count": range(most + 1), "total": range(most + 1)})


class Chunks(wiring.Component):
    """Columns of a tile's rows of ``a``, as many at a time as are held on chip.

    Parameters
    ----------
    tiling : Tiling
    size : int
        Bytes of an element.
    chunk : int
        Columns that are held.

    Members
    -------
    k : In(32)
    i : In(stream of tiles)
    o : Out(stream of blocks)
    idle : Out(1)
    """

    def __init__(self, *, tiling: Tiling, size: int, chunk: int) -> None:
        self.tiling, self.size, self.chunk = tiling, size, chunk
        super().__init__(
            {
                "k": In(SIZE_BITS),
                "i": In(stream.Signature(tile_layout(tiling))),
                "o": Out(stream.Signature(block_layout(chunk))),
                "idle": Out(1),
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
            self.idle.eq(1),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [
                done.eq(Mux(last, 0, done + self.chunk)),
                address.eq(Mux(last, 0, address + self.chunk * self.size)),
            ]
        return m


class Rows(wiring.Component):
    """The rows of blocks, one after the other.

    Members
    -------
    stride : In(32)
    i : In(stream of blocks)
    o : Out(stream of segments)
    """

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
    """What is known of a segment where its beats are: the byte of a beat at which it begins, and its elements."""
    return data.StructLayout({"place": PLACE_BITS, "count": range(most + 1), "total": range(most + 1)})


class Fork(wiring.Component):
    """Segments go two ways: those with elements as runs of bytes, to be cut into bursts; all, to where the beats are.

    Parameters
    ----------
    most : int
        Elements of a segment.
    size : int
        Bytes of an element.

    Members
    -------
    i : In(stream of segments)
    runs : Out(stream of address and bytes)
    places : Out(stream of places)
    idle : Out(1)
        No place waits.
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
            Value.cast(self.places.payload).eq(queue.r_data),
            self.places.valid.eq(queue.r_rdy),
            queue.r_en.eq(self.places.ready),
            self.idle.eq(~queue.r_rdy),
        ]
        return m


class Unpack(wiring.Component):
    """Elements out of beats: the segments one after the other in groups, zeros for what pads them.

    Parameters
    ----------
    most : int
        Elements of a segment.
    size : int
        Bytes of an element, which its address is a multiple of.
    group : int
        Elements at a time, a power of two, no more than a beat has; totals are multiples of it.

    Members
    -------
    places : In(stream of places)
    beats : In(stream of DATA_BITS)
    o : Out(stream of group * size bytes)
        A group in each cycle, as long as there are beats.
    """

    def __init__(self, *, most: int, size: int, group: int) -> None:
        self.most, self.size, self.group = most, size, group
        super().__init__(
            {
                "places": In(stream.Signature(place_layout(most))),
                "beats": In(stream.Signature(8 * BYTES)),
                "o": Out(stream.Signature(8 * group * size)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        size, group = self.size, self.group
        in_beat = BYTES // size
        busy, at = Signal(), Signal(range(in_beat))
        left, total = Signal(range(self.most + 1)), Signal(range(self.most + 1))
        # The beat with the next element, and behind it the one after.
        beat, full = Signal(8 * BYTES), Signal()
        to_end, crosses, go, last = Signal(range(in_beat + 1)), Signal(), Signal(), Signal()
        m.d.comb += [
            to_end.eq(in_beat - at),
            crosses.eq((left > to_end) & (to_end < group)),
            self.o.valid.eq(busy & ((left == 0) | (full & (~crosses | self.beats.valid)))),
            go.eq(self.o.valid & self.o.ready),
            last.eq(total <= group),
            self.places.ready.eq(~busy | (go & last)),
        ]
        m.d.comb += self.o.payload.eq(self._group(m, beat, at, left))
        over, drops, used_next = Signal(), Signal(), Signal()
        m.d.comb += [
            over.eq(left <= group),
            # What is left of the beat is of no use: its elements have been taken, or the segment's have.
            drops.eq(go & (left != 0) & (over | (to_end <= group))),
            used_next.eq(over & crosses),
            self.beats.ready.eq(~full | drops),
        ]
        with m.If(self.beats.ready):
            m.d.sync += [full.eq(self.beats.valid & ~(drops & used_next)), beat.eq(self.beats.payload)]
        with m.If(go):
            m.d.sync += [left.eq(Mux(over, 0, left - group)), total.eq(total - group), at.eq(at + group)]
            with m.If(last):
                m.d.sync += busy.eq(0)
        with m.If(self.places.valid & self.places.ready):
            place = self.places.payload
            m.d.sync += [
                busy.eq(1),
                left.eq(place.count),
                total.eq(place.total),
                at.eq(place.place[(size - 1).bit_length() :]),
            ]
        return m

    def _group(self, m: Module, beat: Value, at: Value, left: Value) -> Value:
        """The elements from one place in the beat on, which may reach into the next beat."""
        size, group = self.size, self.group
        bits, words = 8 * size * group, BYTES // (size * group)
        low = (group - 1).bit_length()
        word = at[low:] if words > 1 else 0
        here, behind = Signal(bits), Signal(bits)
        m.d.comb += here.eq(beat.word_select(word, bits))
        if group > 1:
            following = Cat(beat[bits:], self.beats.payload[:bits])
            m.d.comb += behind.eq(following.word_select(word, bits))
        both = Cat(here, behind)
        shifted = Signal(bits)
        m.d.comb += shifted.eq(both >> _in_bits(at[:low], size))
        lanes = [Mux(left > lane, shifted[8 * size * lane : 8 * size * (lane + 1)], 0) for lane in range(group)]
        return Cat(*lanes)


def _in_bits(elements: Value, size: int) -> Value:
    """How many bits so many elements have, of a power of two of bytes each."""
    return Cat(Const(0, (8 * size - 1).bit_length()), elements)


class Pack(wiring.Component):
    """Elements into beats: those of a segment that are there, with a strobe for each byte.

    Parameters
    ----------
    most, size, group
        As `Unpack` has them.

    Members
    -------
    places : In(stream of places)
    i : In(stream of group * size bytes)
    o : Out(stream of WriteBeat)
    idle : Out(1)
    """

    def __init__(self, *, most: int, size: int, group: int) -> None:
        self.most, self.size, self.group = most, size, group
        super().__init__(
            {
                "places": In(stream.Signature(place_layout(most))),
                "i": In(stream.Signature(8 * group * size)),
                "o": Out(stream.Signature(WriteBeat)),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        size, group = self.size, self.group
        words = BYTES // (size * group)
        low = (group - 1).bit_length()
        bits = 8 * size * group
        busy, flush = Signal(), Signal()
        shift, word = Signal(max(low, 1)), Signal(range(max(words, 2)))
        left, total = Signal(range(self.most + 1)), Signal(range(self.most + 1))
        m.submodules.queue = queue = SyncFIFO(width=WriteBeat.size, depth=4)
        # A group moved to its place in a word, what of it goes into the next word, and what did so before.
        moved, there = Signal(2 * bits), Signal(2 * group)
        rest, rest_there = Signal(bits), Signal(group)
        lanes = Cat(*(left > lane for lane in range(group)))
        m.d.comb += [
            moved.eq(Mux(flush, 0, self.i.payload) << _in_bits(shift[:low], size)),
            there.eq(Mux(flush, 0, lanes) << shift[:low]),
        ]
        mask = Cat(*(bit.replicate(8 * size) for bit in there))
        now, now_there = Signal(bits), Signal(group)
        m.d.comb += [now.eq((moved & mask)[:bits] | rest), now_there.eq(there[:group] | rest_there)]
        # The beat so far, and with this word.
        beat, strobe = Signal(8 * BYTES), Signal(BYTES)
        next_beat, next_strobe = Signal(8 * BYTES), Signal(BYTES)
        m.d.comb += [next_beat.eq(beat), next_strobe.eq(strobe)]
        for index in range(words):
            with m.If(word == index):
                m.d.comb += [
                    next_beat[index * bits : (index + 1) * bits].eq(now),
                    next_strobe[index * size * group : (index + 1) * size * group].eq(
                        Cat(*(bit.replicate(size) for bit in now_there))
                    ),
                ]
        go, over, more, ends, emit = Signal(), Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            go.eq(queue.w_rdy & ((busy & self.i.valid) | flush)),
            self.i.ready.eq(busy & ~flush & queue.w_rdy),
            over.eq(flush | (left <= group)),
            more.eq(~flush & there[group:].any()),
            # The segment's last word, unless some of it goes into another one.
            ends.eq((flush | (left != 0)) & over & ~more),
            emit.eq(go & (ends | ((flush | (left != 0)) & (word == words - 1)))),
            queue.w_en.eq(emit),
            queue.w_data.eq(Cat(next_beat, next_strobe)),
            Value.cast(self.o.payload).eq(queue.r_data),
            self.o.valid.eq(queue.r_rdy),
            queue.r_en.eq(self.o.ready),
            self.places.ready.eq(~busy & ~flush),
            self.idle.eq(~busy & ~flush & ~queue.r_rdy),
        ]
        with m.If(go):
            m.d.sync += [
                beat.eq(Mux(emit, 0, next_beat)),
                strobe.eq(Mux(emit, 0, next_strobe)),
                rest.eq(Mux(flush, 0, (moved & mask)[bits:])),
                rest_there.eq(Mux(flush, 0, there[group:])),
                flush.eq(~flush & over & more),
                left.eq(Mux(over, 0, left - group)),
            ]
            with m.If(flush | (left != 0)):
                m.d.sync += word.eq(Mux(word == words - 1, 0, word + 1))
            with m.If(~flush):
                m.d.sync += [total.eq(total - group), busy.eq(total > group)]
        with m.If(self.places.valid & self.places.ready):
            place = self.places.payload
            at = place.place[(size - 1).bit_length() :]
            m.d.sync += [
                busy.eq(1),
                left.eq(place.count),
                total.eq(place.total),
                shift.eq(at[:low]),
                word.eq(at[low:]),
                beat.eq(0),
                strobe.eq(0),
            ]
        return m


BUFFERS = 4
"""Chunks of ``a`` that are held on chip: a tile's last one may be short, and be gone before a whole one has come."""


class Transpose(wiring.Component):
    """Rows of chunks come in, columns go out; as many chunks as there are buffers are held.

    Parameters
    ----------
    rows : int
        Of a chunk.
    chunk : int
        Columns that a chunk has at most, a power of two.
    bits : int

    Members
    -------
    k : In(32)
        Columns of a tile, of which the last chunk has what is left.
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
            self.i.ready.eq(~full.bit_select(put.buffer, 1)),
            takes.eq(self.i.valid & self.i.ready),
            write.addr.eq(Cat(put.column[:column_bits], put.row[:row_bits], put.buffer)),
            write.data.eq(self.i.payload),
            write.en.eq(takes),
            reads.eq(full.bit_select(get.buffer, 1) & (~held | self.o.ready)),
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
    """A place in a chunk, which goes through the chunks of tiles in one order or the other."""

    def __init__(self, m: Module, chunks: Transpose, name: str, *, rows_first: bool) -> None:
        self.buffer, self.row = (
            Signal(range(BUFFERS), name=f"{name}_buffer"),
            Signal(range(max(chunks.rows, 2)), name=f"{name}_row"),
        )
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
        """To the next place, where it goes on."""
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
    """As many elements at a time as are wanted, of fewer that come, or the other way about.

    Parameters
    ----------
    bits : int
        Of what is the smaller of the two.
    ratio : int
        How many of them the larger has.
    joins : bool
        Whether it comes in small, and goes out large.
    """

    def __init__(self, *, bits: int, ratio: int, joins: bool) -> None:
        self.bits, self.ratio, self.joins = bits, ratio, joins
        wide = bits * ratio
        super().__init__(
            {
                "i": In(stream.Signature(bits if joins else wide)),
                "o": Out(stream.Signature(wide if joins else bits)),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self.ratio == 1:
            m.d.comb += [
                self.o.payload.eq(self.i.payload),
                self.o.valid.eq(self.i.valid),
                self.i.ready.eq(self.o.ready),
                self.idle.eq(1),
            ]
            return m
        parts, count = Signal(self.bits * self.ratio), Signal(range(self.ratio + 1))
        m.d.comb += self.idle.eq(count == 0)
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


def connect(m: Module, source: Any, sink: Any) -> None:
    """One stream into another one of the same bits."""
    m.d.comb += [
        Value.cast(sink.payload).eq(Value.cast(source.payload)),
        sink.valid.eq(source.valid),
        source.ready.eq(sink.ready),
    ]
