"""Conversion between elements and memory beats."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from halfulp.hdl.wire import word_at

from .axi import BYTES, WriteBeat
from .movers import connect, place_layout, power_below


class Unpack(wiring.Component):
    """Unpacker of the elements of segments from beats, in groups padded with zeros.

    Parameters
    ----------
    most : int
        Maximum number of elements of a segment.
    size : int
        Bytes per element, up to a beat; addresses are multiples of the largest power of two that divides it.
    group : int
        Elements per transfer: a power of two, at most a beat. Totals are multiples of it.

    Members
    -------
    places : In(stream of places)
    beats : In(stream of DATA_BITS)
    o : Out(stream of group * size bytes)
        One group per cycle while beats are available.

    Notes
    -----
    Positions count units: the largest powers of two of bytes that divide an element.
    """

    def __init__(self, *, most: int, size: int, group: int) -> None:
        self.most, self.size, self.group = most, size, group
        self.unit = power_below(size, BYTES)
        super().__init__(
            {
                "places": In(stream.Signature(place_layout(most))),
                "beats": In(stream.Signature(8 * BYTES)),
                "o": Out(stream.Signature(8 * group * size)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        in_element, in_beat = self.size // self.unit, BYTES // self.unit
        group, most = self.group * in_element, self.most * in_element
        busy, at = Signal(), Signal(range(in_beat))
        left, total = Signal(range(most + 1)), Signal(range(most + 1))
        # Holds the beat with the next element; the following beat is at the port.
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
            # All remaining units of the beat, or of the segment, have been taken.
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
                left.eq(place.count * in_element),
                total.eq(place.total * in_element),
                at.eq(place.place[(self.unit - 1).bit_length() :]),
            ]
        return m

    def _group(self, m: Module, beat: Value, at: Value, left: Value) -> Value:
        """Return the group of elements that starts at position ``at`` of the beat; it may extend into the next beat."""
        size, group, in_element = self.size, self.group, self.size // self.unit
        bits = 8 * size * group
        shifted = Signal(bits)
        if in_element == 1:
            words = BYTES // (size * group)
            low = (group - 1).bit_length()
            word = at[low:] if words > 1 else 0
            here, behind = Signal(bits), Signal(bits)
            m.d.comb += here.eq(word_at(beat, word, bits))
            if group > 1:
                following = Cat(beat[bits:], self.beats.payload[:bits])
                m.d.comb += behind.eq(word_at(following, word, bits))
            m.d.comb += shifted.eq(Cat(here, behind) >> _in_bits(at[:low], size))
        else:
            following = Cat(beat, self.beats.payload[: bits - 8 * self.unit])
            m.d.comb += shifted.eq((following >> _in_bits(at, self.unit))[:bits])
        lanes = [
            Mux(left > lane * in_element, shifted[8 * size * lane : 8 * size * (lane + 1)], 0) for lane in range(group)
        ]
        return Cat(*lanes)


def _in_bits(elements: Value, size: int) -> Value:
    """Return the number of bits of some elements or units; ``size``, their bytes, is a power of two."""
    return Cat(Const(0, (8 * size - 1).bit_length()), elements)


class Pack(wiring.Component):
    """Packer of the elements of segments into beats, with a strobe for each byte.

    Parameters
    ----------
    most, size, group
        Parameters of `Unpack`.
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
        # The group shifted to its position in a word, and the rest of the previous group, which extends into this word.
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
        # The beat without and with this word.
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
            # The last word of the segment, unless the group extends into another word.
            ends.eq((flush | (left != 0)) & over & ~more),
            emit.eq(go & (ends | ((flush | (left != 0)) & (word == words - 1)))),
            queue.w_en.eq(emit),
            queue.w_data.eq(Cat(next_beat, next_strobe)),
        ]
        connect(m, queue.r_stream, self.o)
        m.d.comb += [
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
