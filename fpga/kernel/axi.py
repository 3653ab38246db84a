"""AXI4 masters of a kernel: bursts, reads and writes."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from .layout import ADDRESS_BITS, DATA_BITS

BYTES = DATA_BITS // 8
"""Bytes per beat."""

PLACE_BITS = (BYTES - 1).bit_length()
"""Width of the index of a byte in a beat."""

PAGE_BEATS = 4096 // BYTES
"""Beats per 4 KiB page, the limit of a burst; no burst crosses a page."""

OUTSTANDING = 16
"""Maximum number of outstanding bursts of a port."""

READ_CHANNELS: dict[str, dict[str, Any]] = {
    "ar": {
        "valid": Out(1),
        "ready": In(1),
        "id": Out(1),
        "addr": Out(ADDRESS_BITS),
        "len": Out(8),
        "size": Out(3),
        "burst": Out(2),
        "lock": Out(1),
        "cache": Out(4),
        "prot": Out(3),
    },
    "r": {
        "valid": In(1),
        "ready": Out(1),
        "id": In(1),
        "data": In(DATA_BITS),
        "resp": In(2),
        "last": In(1),
    },
}

WRITE_CHANNELS: dict[str, dict[str, Any]] = {
    "aw": READ_CHANNELS["ar"],
    "w": {"valid": Out(1), "ready": In(1), "data": Out(DATA_BITS), "strb": Out(BYTES), "last": Out(1)},
    "b": {"valid": In(1), "ready": Out(1), "id": In(1), "resp": In(2)},
}

Burst = data.StructLayout({"address": ADDRESS_BITS - PLACE_BITS, "beats": range(PAGE_BEATS + 1)})
"""Layout of a burst: the address of its first beat, in beats, and its number of beats."""

WriteBeat = data.StructLayout({"data": DATA_BITS, "strobe": BYTES})


def flat_ports(channels: dict[str, dict[str, Any]], prefix: str = "") -> dict[str, Any]:
    """Return the members of a component for the channels of a port, with the names that vendor tools expect."""
    return {f"{prefix}{channel}{name}": port for channel, ports in channels.items() for name, port in ports.items()}


def join_ports(m: Module, component: Any, prefix: str, master: Any, channels: dict[str, dict[str, Any]]) -> None:
    """Connect an interface to the ports of the component around it."""
    for name, port in flat_ports(channels).items():
        outside, inside = getattr(component, f"{prefix}_{name}"), getattr(master, name)
        m.d.comb += outside.eq(inside) if port.flow is Out else inside.eq(outside)


class Split(wiring.Component):
    """Splitter of byte ranges into bursts of whole beats that cross no page.

    Members
    -------
    i : In(stream of address and bytes)
        ``bytes`` is 1 or more.
    o : Out(stream of Burst)
    idle : Out(1)
    """

    def __init__(self, *, most_bytes: int) -> None:
        self.most_beats = -(-most_bytes // BYTES) + 1
        request = data.StructLayout({"address": ADDRESS_BITS, "bytes": range(most_bytes + 1)})
        super().__init__({"i": In(stream.Signature(request)), "o": Out(stream.Signature(Burst)), "idle": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left = Signal(range(self.most_beats + 1))
        address = Signal(ADDRESS_BITS - PLACE_BITS)
        to_page = Signal(range(PAGE_BEATS + 1))
        beats = self.o.payload.beats
        place = self.i.payload.address[:PLACE_BITS]
        m.d.comb += [
            to_page.eq(PAGE_BEATS - address[: (PAGE_BEATS - 1).bit_length()]),
            beats.eq(Mux(left < to_page, left, to_page)),
            self.o.payload.address.eq(address),
            self.o.valid.eq(left != 0),
            self.i.ready.eq(left == 0),
            self.idle.eq(left == 0),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [left.eq(left - beats), address.eq(address + beats)]
        with m.If(self.i.valid & self.i.ready):
            whole = (place + self.i.payload.bytes + (BYTES - 1))[PLACE_BITS:]
            m.d.sync += [left.eq(whole), address.eq(self.i.payload.address[PLACE_BITS:])]
        return m


class _Master(wiring.Component):
    """Base class of both masters; issues the requests of bursts.

    Members
    -------
    bus : Out(AXI4 channels)
    request : In(stream of Burst)
    beats : stream
        Beats of all bursts, in order.
    stop : In(1)
        Begin no further bursts.
    idle : Out(1)
        All bursts have ended.
    error : Out(1)
        The memory answered with an error in this cycle.
    """

    def __init__(self, channels: dict[str, dict[str, Any]], beats: Any) -> None:
        super().__init__(
            {
                "bus": Out(wiring.Signature(flat_ports(channels))),
                "request": In(stream.Signature(Burst)),
                "beats": beats,
                "stop": In(1),
                "idle": Out(1),
                "error": Out(1),
            }
        )

    def _begin(self, m: Module, channel: str, ended: Value) -> Value:
        """Issue bursts on an address channel; return a signal that is 1 in each cycle in which a request is accepted.

        ``ended`` is 1 in each cycle in which a burst ends.
        """
        outstanding = Signal(range(OUTSTANDING + 1))
        held, burst = Signal(name=f"{channel}_offered"), Signal(Burst, name=f"{channel}_burst")
        request = self.request
        signals = {
            name: getattr(self.bus, f"{channel}{name}")
            for name in ("valid", "ready", "addr", "len", "size", "burst", "cache")
        }
        begun = request.valid & request.ready
        m.d.comb += [
            signals["valid"].eq(held),
            signals["addr"].eq(Cat(Const(0, PLACE_BITS), burst.address)),
            signals["len"].eq(burst.beats - 1),
            signals["size"].eq(PLACE_BITS),
            signals["burst"].eq(1),
            # Modifiable and bufferable, as Vivado's interconnects recommend.
            signals["cache"].eq(0b0011),
            request.ready.eq(~self.stop & (outstanding != OUTSTANDING) & (~held | signals["ready"])),
            self.idle.eq(outstanding == 0),
        ]
        with m.If(held & signals["ready"]):
            m.d.sync += held.eq(0)
        with m.If(begun):
            m.d.sync += [held.eq(1), burst.eq(request.payload)]
        m.d.sync += outstanding.eq(outstanding + begun - ended)
        return begun


class ReadMaster(_Master):
    """Master that reads bursts; after ``stop`` it drops the outstanding beats."""

    def __init__(self) -> None:
        super().__init__(READ_CHANNELS, Out(stream.Signature(DATA_BITS)))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus = self.bus
        self._begin(m, "ar", ended=bus.rvalid & bus.rready & bus.rlast)
        m.d.comb += [
            self.beats.valid.eq(bus.rvalid & ~self.stop),
            self.beats.payload.eq(bus.rdata),
            bus.rready.eq(self.beats.ready | self.stop),
            self.error.eq(bus.rvalid & bus.rready & bus.rresp[1]),
        ]
        return m


class WriteMaster(_Master):
    """Master that writes bursts; after ``stop`` it completes them with beats without strobes."""

    def __init__(self) -> None:
        super().__init__(WRITE_CHANNELS, In(stream.Signature(WriteBeat)))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus = self.bus
        begun = self._begin(m, "aw", ended=bus.bvalid & bus.bready)
        # Lengths of the bursts with beats that are not sent yet.
        m.submodules.lengths = lengths = SyncFIFO(width=len(self.request.payload.beats), depth=OUTSTANDING)
        m.d.comb += [lengths.w_data.eq(self.request.payload.beats), lengths.w_en.eq(begun)]
        sent = Signal.like(self.request.payload.beats)
        offered = Signal()
        # AXI4: a valid beat must not change until it is accepted, not even after stop.
        beat, full = Signal(WriteBeat), Signal()
        last = Signal()
        takes = Signal()
        m.d.comb += [
            takes.eq(lengths.r_rdy & (~full | bus.wready)),
            self.beats.ready.eq(takes & ~self.stop),
            offered.eq(takes & (self.beats.valid | self.stop)),
            lengths.r_en.eq(offered & (sent + 1 == lengths.r_data)),
            bus.wvalid.eq(full),
            bus.wdata.eq(beat.data),
            bus.wstrb.eq(beat.strobe),
            bus.wlast.eq(last),
            bus.bready.eq(1),
            self.error.eq(bus.bvalid & bus.bresp[1]),
        ]
        with m.If(bus.wready):
            m.d.sync += full.eq(0)
        with m.If(offered):
            m.d.sync += [
                full.eq(1),
                beat.data.eq(self.beats.payload.data),
                beat.strobe.eq(Mux(self.stop, 0, self.beats.payload.strobe)),
                last.eq(lengths.r_en),
                sent.eq(Mux(lengths.r_en, 0, sent + 1)),
            ]
        return m
