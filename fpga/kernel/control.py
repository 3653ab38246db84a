"""Control registers of a kernel with their AXI4-Lite port."""

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .axi import flat_ports
from .layout import (
    AP_CTRL,
    ARGUMENTS,
    AUTO_RESTART,
    CONTROL_ADDRESS_BITS,
    CONTROL_DATA_BITS,
    DONE,
    GIE,
    IDLE,
    IER,
    ISR,
    READY,
    RESULTS,
    START,
)

_ADDRESS = {"valid": In(1), "ready": Out(1), "addr": In(CONTROL_ADDRESS_BITS), "prot": In(3)}

CHANNELS: dict[str, dict[str, Any]] = {
    "aw": _ADDRESS,
    "w": {"valid": In(1), "ready": Out(1), "data": In(CONTROL_DATA_BITS), "strb": In(CONTROL_DATA_BITS // 8)},
    "b": {"valid": Out(1), "ready": In(1), "resp": Out(2)},
    "ar": _ADDRESS,
    "r": {"valid": Out(1), "ready": In(1), "data": Out(CONTROL_DATA_BITS), "resp": Out(2)},
}


class Control(wiring.Component):
    """Control registers: protocol ap_ctrl_hs, arguments and results.

    Members
    -------
    bus : Out(AXI4-Lite)
        An address without a register reads as 0.
    start : Out(1)
        A run is requested.
    finished : In(1)
        The run ends in this cycle.
    resting : In(1)
        The kernel is idle.
    interrupt : Out(1)
    arguments, results
        One port for each register of `layout`, with its name.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "bus": Out(wiring.Signature(flat_ports(CHANNELS))),
                "start": Out(1),
                "finished": In(1),
                "resting": In(1),
                "interrupt": Out(1),
                **{argument.name: Out(argument.bits) for argument in ARGUMENTS},
                **{result.name: In(result.bits) for result in RESULTS},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus = self.bus
        write, read = Signal(), Signal()
        m.d.comb += [
            write.eq(bus.awvalid & bus.wvalid & (~bus.bvalid | bus.bready)),
            bus.awready.eq(write),
            bus.wready.eq(write),
            read.eq(bus.arvalid & (~bus.rvalid | bus.rready)),
            bus.arready.eq(read),
        ]
        with m.If(bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        with m.If(write):
            m.d.sync += bus.bvalid.eq(1)
        with m.If(bus.rready):
            m.d.sync += bus.rvalid.eq(0)
        with m.If(read):
            m.d.sync += bus.rvalid.eq(1)

        words = self._protocol(m, write, read)
        for argument in ARGUMENTS:
            port = getattr(self, argument.name)
            for word in range(argument.bits // CONTROL_DATA_BITS):
                at = argument.offset + word * CONTROL_DATA_BITS // 8
                part = port.word_select(word, CONTROL_DATA_BITS)
                with m.If(self._writes(write, at)):
                    m.d.sync += part.eq(self._written(part))
                words[at] = part
        words |= {result.offset: getattr(self, result.name) for result in RESULTS}
        table = [Const(0, CONTROL_DATA_BITS)] * (max(words) // 4 + 1)
        for at, value in words.items():
            table[at // 4] = value
        index = bus.araddr[2:]
        with m.If(read):
            m.d.sync += bus.rdata.eq(Mux(index < len(table), Array(table)[index[: len(table).bit_length()]], 0))
        return m

    def _protocol(self, m: Module, write: Value, read: Value) -> dict[int, Value]:
        """Add the four registers of ap_ctrl_hs; return them by address."""
        bus = self.bus
        done, ready, restart = Signal(), Signal(), Signal()
        enabled, enables, status = Signal(), Signal(2), Signal(2)
        with m.If(read & (bus.araddr == AP_CTRL)):
            m.d.sync += [done.eq(0), ready.eq(0)]
        with m.If(self.finished):
            m.d.sync += [done.eq(1), ready.eq(1), self.start.eq(restart)]
        low = bus.wdata[:8]
        with m.If(self._writes(write, AP_CTRL) & bus.wstrb[0]):
            m.d.sync += restart.eq(low[AUTO_RESTART])
            with m.If(low[START]):
                m.d.sync += self.start.eq(1)
        with m.If(self._writes(write, GIE) & bus.wstrb[0]):
            m.d.sync += enabled.eq(low[0])
        with m.If(self._writes(write, IER) & bus.wstrb[0]):
            m.d.sync += enables.eq(low[:2])
        # Writing 1 toggles a status bit.
        toggled = Mux(self._writes(write, ISR) & bus.wstrb[0], low[:2], 0)
        m.d.sync += status.eq((status ^ toggled) | (enables & self.finished.replicate(2)))
        m.d.comb += self.interrupt.eq(enabled & status.any())
        control = Signal(8)
        m.d.comb += [
            control[START].eq(self.start),
            control[DONE].eq(done),
            control[IDLE].eq(self.resting),
            control[READY].eq(ready),
            control[AUTO_RESTART].eq(restart),
        ]
        return {AP_CTRL: control, GIE: enabled, IER: enables, ISR: status}

    def _writes(self, write: Value, address: int) -> Value:
        return write & (self.bus.awaddr[2:] == address // 4)

    def _written(self, before: Value) -> Value:
        """Return the value of a register after a write with byte strobes."""
        bus = self.bus
        return Cat(
            *(
                Mux(bus.wstrb[byte], bus.wdata.word_select(byte, 8), before.word_select(byte, 8))
                for byte in range(CONTROL_DATA_BITS // 8)
            )
        )
