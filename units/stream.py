"""Wrapper of a unit with valid/ready streams for operands and results."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .base import Unit


class Streamed(wiring.Component):
    """Unit with valid/ready streams for operands and results.

    Parameters
    ----------
    unit : Unit
        Unit to wrap; it becomes a submodule.

    Members
    -------
    i : In(stream.Signature(StructLayout(unit.inputs)))
        Operands.
    o : Out(stream.Signature(StructLayout(unit.outputs)))
        Results in order, one per transfer of operands; stable while ``valid`` is 1 and ``ready`` is 0.

    Latency
    -------
    ``unit.latency`` cycles without back-pressure, one transfer per ``unit.initiation`` cycles. ``i.ready`` depends on
    ``o.ready`` combinationally: a waiting result stalls all stages.
    """

    def __init__(self, unit: Unit) -> None:
        if not isinstance(unit, Unit):
            raise TypeError(f"Streamed takes a Unit, not {type(unit).__name__}")
        self.unit = unit
        self.name = f"{unit.name}_stream"
        super().__init__(
            {
                "i": In(stream.Signature(data.StructLayout(unit.inputs))),
                "o": Out(stream.Signature(data.StructLayout(unit.outputs))),
            }
        )

    @property
    def title(self) -> str:
        """Text of the unit, with its interface."""
        return f"{self.unit.title}, with valid/ready streams"

    @property
    def latency(self) -> int:
        """Clock cycles from operands to result without back-pressure."""
        return self.unit.latency

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        for name in unit.inputs:
            m.d.comb += Value.cast(getattr(unit, name)).eq(Value.cast(self.i.payload[name]))
        m.d.comb += Value.cast(self.o.payload).eq(Cat(*(Value.cast(getattr(unit, name)) for name in unit.outputs)))
        if unit.build.iterations:
            self._iterated(m)
            return m
        if unit.has_valid:
            m.d.comb += unit.valid.eq(self.i.valid)
        if unit.latency == 0:
            m.d.comb += [self.o.valid.eq(self.i.valid), self.i.ready.eq(self.o.ready)]
            if unit.clocked:
                m.d.comb += unit.en.eq(self.o.ready)
            return m
        # Bit i is 1 if stage i holds operands of a transfer.
        occupied = Signal(unit.latency)
        advance = Signal()
        m.d.comb += [
            advance.eq(self.o.ready | ~self.o.valid),
            self.i.ready.eq(advance),
            self.o.valid.eq(occupied[-1]),
            unit.en.eq(advance),
        ]
        with m.If(advance):
            m.d.sync += occupied.eq(Cat(self.i.valid, occupied[:-1]))
        return m

    def _iterated(self, m: Module) -> None:
        """Connect an iterative unit, which accepts operands as soon as its result is taken."""
        unit, occupied, free = self.unit, Signal(), Signal()
        m.d.comb += [
            free.eq(~occupied | self.o.ready),
            unit.valid.eq(self.i.valid & free),
            self.i.ready.eq(unit.ready & free),
            self.o.valid.eq(occupied & unit.ready),
        ]
        with m.If(unit.ready & free):
            m.d.sync += occupied.eq(self.i.valid)
