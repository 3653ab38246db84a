"""One step of a multiply-accumulate with its accumulator in a memory."""

import re
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Value, unsigned

from halfulp.hdl import late, quire
from halfulp.hdl.fixed import FixedRaw
from halfulp.hdl.number import Number, unpack
from halfulp.hdl.raw import Raw
from halfulp.hdl.specs import BlockMacSpec, Build, MacSpec, RunningSumSpec, SparseMacSpec
from halfulp.hdl.specs.build import LOOP
from halfulp.hdl.wire import wire
from halfulp.units.base import Unit
from halfulp.units.block import BlockMac
from halfulp.units.mac import Mac
from halfulp.units.running_sum import Placed, Structures, add_term, rounded_sums
from halfulp.units.sparsemac import SparseMac

UNITS: dict[type[RunningSumSpec], Any] = {MacSpec: Mac, BlockMacSpec: BlockMac, SparseMacSpec: SparseMac}
"""Units of the multiply-accumulates of arrays by the class of their description."""


class Step(Structures, Unit):
    """Next state of an accumulator, such as acc + a * b.

    Parameters
    ----------
    spec : MacSpec, BlockMacSpec or SparseMacSpec
        Multiply-accumulate; a stochastic rounding needs a random source.
    build : Build
        Register stages and structure; `lag` of the stages precede the input ``held``.

    Members
    -------
    a, b, ...
        Ports of an entry of each matrix: ``spec.entries``.
    valid : In(1)
        Operands are present. Absent without random source.
    en : In(1, init=1)
    held : In(unsigned(state_bits(spec, build)))
        Previous state, ``lag`` cycles after the operands.
    first : In(1)
        Start from +0 instead of ``held``; sampled with it.
    o : Out(unsigned(state_bits(spec, build)))
        Next state.

    Latency
    -------
    ``stages`` cycles from the operands to the next state.
    """

    spec: Any

    def __init__(self, spec: RunningSumSpec, *, build: Build) -> None:
        state = unsigned(state_bits(spec, build))
        operands: dict[str, Any] = {port: fmt for ports in spec.entries.values() for port, fmt in ports.items()}
        super().__init__(
            spec,
            inputs=operands | {"held": state, "first": unsigned(1)},
            outputs={"o": state},
            name=f"step_{spec.name}",
            build=build,
        )
        for name in ("a", "b", "i"):
            if vector := [getattr(self, port) for port in operands if re.fullmatch(rf"{name}\d+", port)]:
                setattr(self, name, vector)

    def arrivals(self, stages: int) -> dict[str, int]:
        return dict.fromkeys(("held", "first"), lag(self.spec, stages))

    def logic(self, m: Module) -> None:
        word = self.word(m)
        # The operands have the names that they have in the unit.
        term, _ = UNITS[type(self.spec)].term(self, m)
        before = wire(m, Mux(self.first, 0, self.held), "before")
        step = self._exact if self.spec.quire else self._late if self.build.goal == LOOP else self._rounded
        m.d.comb += self.o.eq(step(m, term, before, word))

    def _rounded(self, m: Module, term: Number | Placed, before: Value, word: Value | None) -> Value:
        total, word = add_term(self, m, term, unpack(m, before, self.spec.o, "base"), word)
        return self.rounded(m, total, word)

    def _late(self, m: Module, term: Raw, before: Value, word: Value | None) -> Value:
        loop = late.Loop(*rounded_sums(self.spec))
        return Cat(*loop.step(m, loop.normalised(m, loop.held(before)), term, word))

    def _exact(self, m: Module, term: Any, before: Value, word: Value | None) -> Value:
        register = self.spec.quire
        assert register is not None
        placed = quire.place(m, term, register.quantum, "term")
        after = quire.step(m, _held(self.spec, before), placed, register)
        parts = [after.integer, after.nan, after.inf, after.sign, *([] if word is None else [word])]
        return Cat(*parts)


class Read(Structures, Unit):
    """Result of an accumulator state of `Step` that is not stored as its code; see `is_read`.

    Parameters
    ----------
    spec : RunningSumSpec
    build : Build
        Register stages, and goal ``loop`` for its states.

    Members
    -------
    held : In(unsigned(state_bits(spec, build)))
    en : In(1, init=1)
        Clock enable. Absent without registers.
    o : Out(spec.o)

    Latency
    -------
    ``stages`` cycles.
    """

    multiplies = False

    def __init__(self, spec: RunningSumSpec, *, build: Build) -> None:
        super().__init__(
            spec,
            inputs={"held": unsigned(state_bits(spec, build))},
            words={},
            outputs={"o": spec.o},
            name=f"read_{spec.without_source.name}",
            build=build,
        )

    def logic(self, m: Module) -> None:
        if self.spec.quire is None:
            loop = late.Loop(*rounded_sums(self.spec))
            m.d.comb += self.o.as_value().eq(loop.code(m, loop.normalised(m, loop.held(self.held))))
            return
        number = quire.read(_held(self.spec, self.held))
        word = self.held[-self.rounding.bits :] if self.rounding.bits else None
        m.d.comb += self.o.as_value().eq(self.rounded(m, number, word))


def lag(spec: RunningSumSpec, stages: int) -> int:
    """Return the cycles from the operands of a step to the input of its state: a third of all, half if it is exact."""
    return (stages + 1) // 3 if spec.quire is None else stages // 2


def is_read(spec: RunningSumSpec, build: Build) -> bool:
    """Return True if the state of an accumulator is another word than its code, from which `Read` gives the result."""
    return spec.quire is not None or build.goal == LOOP


def state_bits(spec: RunningSumSpec, build: Build) -> int:
    """Return the width of the state of an accumulator.

    A rounded accumulator is stored as its code, or with goal ``loop`` as `halfulp.hdl.late.Held`. An exact one is
    stored as the quire, flags for NaN and infinity, the sign of the infinity, and the random word of the last step,
    which rounds it when it is read.
    """
    if build.goal == LOOP:
        return sum(late.Loop(*rounded_sums(spec)).registers.values())
    return spec.o.width if spec.quire is None else spec.quire.width + 3 + spec.rounding.bits


def _held(spec: RunningSumSpec, state: Value) -> FixedRaw:
    """Return the quire of a state; its sign is that of an infinity."""
    register = spec.quire
    assert register is not None
    nan, inf, inf_sign = state[register.width : register.width + 3]
    return FixedRaw(state[: register.width].as_signed(), inf_sign, register.quantum, nan=nan, inf=inf)
