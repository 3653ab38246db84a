"""Common base of units with an accumulator."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Array, Module, Mux, Signal, Value, signed, unsigned

from halfulp.hdl import quire
from halfulp.hdl.eager import Sum
from halfulp.hdl.fixed import FixedRaw
from halfulp.hdl.formats import Format
from halfulp.hdl.number import Number, add, align, pack, truncate, unpack
from halfulp.hdl.specs import AccumulatorSpec, MacSpec, Quire
from halfulp.hdl.specs.mac import part_of
from halfulp.hdl.wire import modulo_counter, wire

from .base import Unit, is_source

TURN = "turn"
"""Name of the register that counts the sums that take turns."""


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

    Notes
    -----
    With ``interleave`` n, n sums take turns: the k-th accepted operand since the reset belongs to sum k mod n. ``load``
    and ``clear`` start the sum in turn, and ``o`` is its result. A sum is used again n operands later, so its loop may
    take up to n cycles, with up to n - 1 of the register stages.
    """

    stateful = True

    def __init__(
        self, spec: AccumulatorSpec, *, operands: dict[str, Any], controls: Sequence[str] = (), **more: Any
    ) -> None:
        flags = {name: unsigned(1) for name in (*controls, "load", "clear")}
        super().__init__(spec, inputs=operands | {"c": spec.o} | flags, outputs={"o": spec.o}, sums=sums(spec), **more)

    def interval(self, register: str) -> int:
        return 1 if is_source(register) or register == TURN else int(self.spec.interleave)

    @abstractmethod
    def term(self, m: Module) -> Number:
        """Return the number to add."""

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
        sums = _Sums(m, self.spec.interleave, self.en & self.valid)
        accumulator, held = sums.register(Signal(fmt.width, name="accumulator"))
        base = Signal(fmt.width)
        m.d.comb += base.eq(Mux(self.load, self.c.as_value(), Mux(self.clear, 0, held)))
        aligned = align(m, term, unpack(m, base, fmt, "base"), fmt, self.rounding)
        total, random = add(m, aligned, fmt, self.rounding, random, self.stochastic)
        ready = truncate(m, total, fmt, self.rounding)
        sums.step([(accumulator, pack(m, ready, fmt, self.rounding, self.saturate, random))])
        return accumulator

    def _exact(self, m: Module, term: Number, random: Value | None, register: Quire) -> Value:
        """Add to the quire, and round its value for the output."""
        placed = quire.place(m, term, register.quantum, "term")
        begin = quire.place(m, unpack(m, self.c.as_value(), self.spec.o, "start"), register.quantum, "start")

        sums = _Sums(m, self.spec.interleave, self.en & self.valid)
        result, held = sums.quire(register)

        def choose(loaded: Value, before: Value) -> Value:
            return Mux(self.load, loaded, Mux(self.clear, 0, before))

        flags = {name: choose(getattr(begin, name), getattr(held, name)) for name in ("nan", "inf", "sign")}
        base = FixedRaw(Signal(signed(register.width), name="base"), quantum=register.quantum, **flags)
        m.d.comb += base.integer.eq(choose(begin.integer, held.integer))
        after = quire.step(m, base, placed, register)
        next_values = [(getattr(result, name), getattr(after, name)) for name in ("integer", "sign", "nan", "inf")]
        if random is not None:
            # A step that is not valid changes nothing, including the random word that rounds the last one.
            held_random = Signal(len(random))
            next_values.append((held_random, random))
            random = held_random
        sums.step(next_values)
        return self.rounded(m, quire.read(result), random)


class _Sums:
    """Registers of the sums that take turns on an accumulator.

    Parameters
    ----------
    m : Module
    count : int
        Number of sums.
    accepted : Value
        A step is done in this cycle.
    """

    def __init__(self, m: Module, count: int, accepted: Value) -> None:
        self.m, self.count, self.accepted = m, count, accepted
        self.turn, _ = modulo_counter(m, count, accepted)
        self._of_each: dict[str, list[Signal]] = {}

    def register(self, result: Signal) -> tuple[Signal, Value]:
        """Return the register of the last result, and the value of the sum in turn; one sum is in that register."""
        if self.count == 1:
            return result, result
        each = [Signal.like(result, name=f"{result.name}_{turn}") for turn in range(self.count)]
        self._of_each[result.name] = each
        return result, wire(self.m, Array(each)[self.turn], f"{result.name}_in_turn")

    def quire(self, register: Quire) -> tuple[FixedRaw, FixedRaw]:
        """Return the registers of the last result and the values of the sum in turn; the sign is of an infinity."""
        names = {"nan": "held_nan_register", "inf": "held_inf_register", "sign": "held_inf_sign"}
        integer = self.register(Signal(signed(register.width), name="held"))
        flags = {flag: self.register(Signal(name=name)) for flag, name in names.items()}
        result, held = (
            FixedRaw(integer[side], quantum=register.quantum, **{flag: both[side] for flag, both in flags.items()})
            for side in (0, 1)
        )
        return result, held

    def step(self, next_values: Sequence[tuple[Any, Value]]) -> None:
        """Write the results of a step to the registers, and to those of the sum in turn."""
        with self.m.If(self.accepted):
            self.m.d.sync += [register.eq(value) for register, value in next_values]
            if self._of_each:
                with self.m.Switch(self.turn):
                    for turn in range(self.count):
                        with self.m.Case(turn):
                            self.m.d.sync += [
                                self._of_each[register.name][turn].eq(value)
                                for register, value in next_values
                                if register.name in self._of_each
                            ]
