"""Common base of units with an accumulator."""

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value, signed, unsigned

from halfulp.hdl import quire
from halfulp.hdl.eager import Sum
from halfulp.hdl.fixed import FixedRaw
from halfulp.hdl.formats import Format
from halfulp.hdl.number import Number, add, align, pack, truncate, unpack
from halfulp.hdl.specs import AccumulatorSpec, MacSpec, Quire
from halfulp.hdl.specs.mac import part_of

from .base import Unit


def sums(spec: AccumulatorSpec) -> list[Sum]:
    """Return the sums that an accumulator rounds in each step; none if it is exact."""
    if not isinstance(spec.acc, Format):
        return []
    factors: tuple[Format, ...] = (spec.a,)
    if isinstance(spec, MacSpec):
        factors = (part_of(spec.a), part_of(spec.b)) if spec.product is None else (spec.product,)
    return [Sum((factors, (spec.acc,)), spec.acc, spec.rounding)]


class Accumulating(Unit):
    """Unit with an accumulator: a format rounded in every step, or a quire rounded when it is read.

    Subclasses compute the number to add in ``term``.

    Members
    -------
    c : In(o)
        Start value.
    load : In(1)
        Start this step from ``c`` instead of the accumulator; a new sum needs no idle cycle.
    clear : In(1)
        Start this step from +0; ``load`` has priority.
    o : Out(o)
        Accumulator, +0 after reset. An exact accumulator is rounded to it and has no -0.
    """

    stateful = True

    def __init__(
        self, spec: AccumulatorSpec, *, operands: dict[str, Any], controls: Sequence[str] = (), **more: Any
    ) -> None:
        flags = {name: unsigned(1) for name in (*controls, "load", "clear")}
        super().__init__(spec, inputs=operands | {"c": spec.o} | flags, outputs={"o": spec.o}, sums=sums(spec), **more)

    def term(self, m: Module) -> Number:
        """Return the number to add."""
        raise NotImplementedError

    def logic(self, m: Module) -> None:
        random = self.word(m)
        term = self.term(m)
        if self.spec.quire is None:
            code = self._rounded(m, term, random)
        else:
            code = self._exact(m, term, random, self.spec.quire)
        m.d.comb += self.o.as_value().eq(code)

    def _rounded(self, m: Module, term: Number, random: Value | None) -> Value:
        """Add to the accumulator and round."""
        fmt = self.spec.o
        accumulator = Signal(fmt.width)
        base = Signal(fmt.width)
        m.d.comb += base.eq(Mux(self.load, self.c.as_value(), Mux(self.clear, 0, accumulator)))
        aligned = align(m, term, unpack(m, base, fmt, "base"), fmt, self.rounding)
        total, random = add(m, aligned, fmt, self.rounding, random, self.stochastic)
        ready = truncate(m, total, fmt, self.rounding)
        with m.If(self.en & self.valid):
            m.d.sync += accumulator.eq(pack(m, ready, fmt, self.rounding, self.saturate, random))
        return accumulator

    def _exact(self, m: Module, term: Number, random: Value | None, register: Quire) -> Value:
        """Add to the quire, and round its value for the output."""
        placed = quire.place(m, term, register.quantum, "term")
        begin = quire.place(m, unpack(m, self.c.as_value(), self.spec.o, "start"), register.quantum, "start")

        kept = _held(register)

        def choose(loaded: Value, before: Value) -> Value:
            return Mux(self.load, loaded, Mux(self.clear, 0, before))

        flags = {name: choose(getattr(begin, name), getattr(kept, name)) for name in ("nan", "inf", "sign")}
        base = FixedRaw(Signal(signed(register.width), name="base"), quantum=register.quantum, **flags)
        m.d.comb += base.integer.eq(choose(begin.integer, kept.integer))
        after = quire.step(m, base, placed, register)
        with m.If(self.en & self.valid):
            m.d.sync += [
                kept.integer.eq(after.integer),
                kept.sign.eq(after.sign),
                kept.nan.eq(after.nan),
                kept.inf.eq(after.inf),
            ]
            if random is not None:
                # A step that is not valid changes nothing, including the random word that rounds the last one.
                held_random = Signal(len(random))
                m.d.sync += held_random.eq(random)
                random = held_random
        return self.rounded(m, quire.read(kept), random)


def _held(register: Quire) -> FixedRaw:
    """Create the registers of a quire, zero after reset; the sign is that of an infinity."""
    names = {"nan": "held_nan_register", "inf": "held_inf_register", "sign": "held_inf_sign"}
    flags = {flag: Signal(name=name) for flag, name in names.items()}
    return FixedRaw(Signal(signed(register.width), name="held"), quantum=register.quantum, **flags)
