# amaranth: UnusedElaboratable=no
"""Claims that the structure of a unit changes no bit, as miters of two structures, cycle by cycle.

A proof about registers starts from any register values, reachable or not, and runs until operands have replaced them.
This is an induction over time without a bound: with ``n`` register stages, a result appears after ``n`` enabled cycles,
and a stalled cycle changes nothing.
"""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from amaranth.hdl import Cat, Const, Module, Mux, Value

from halfulp.hdl.specs.build import AREA
from halfulp.implementation import Implementation
from halfulp.sim.ports import Ports
from halfulp.units.stream import Streamed

from .miters import Clocked, Codes, Cycle, Miter, differ, ports_of, stream_ports_of, widths
from .prove import transition_of

if TYPE_CHECKING:
    from halfulp.units import Unit


def clocked(unit: "Unit") -> Clocked:
    """Return a unit with registers, enabled and not reset by default."""
    return Clocked(transition_of(unit), *ports_of(unit), {"rst": 0, "en": 1})


def _with_effect(registers: Codes) -> Codes:
    """Mask registers without effect: the sum of an infinite quire, and all but the flag of a quire that is NaN."""
    never = Const(0, 1)
    effective = dict(registers)
    for name in registers:
        # Sums that take turns have a number.
        if match := re.fullmatch(r"(held_from_\d+|held_inf_sign|held_inf_register)((?:_\d+)?)", name):
            kind, turn = match.groups()
            nan, inf = (registers.get(f"held_{flag}_register{turn}", never) for flag in ("nan", "inf"))
            effects = {"held_inf_sign": ~nan & inf, "held_inf_register": ~nan}
            effective[name] = Mux(effects.get(kind, ~nan & ~inf), registers[name], 0)
    return effective


def equal(asked: Implementation, **structures: tuple[Any, Any]) -> Miter:
    """Claim that two structures of a unit, given by a field of the build, have the same results.

    For a unit with state, equal states must also lead to equal next states. Only registers with an effect are compared.
    """
    first, second = (asked.with_build(**{name: two[n] for name, two in structures.items()}) for n in (0, 1))
    left, right = first.component(), second.component()
    if not left.clocked:

        def wrong(m: Module, i: Miter) -> Value:
            return differ(*(i.apply(m, built.component(), i.free) for built in (first, second)))

        return Miter(widths(left.inputs), wrong)
    sides = clocked(left), clocked(right)
    if sides[0].step.registers != sides[1].step.registers:
        raise ValueError(f"{left.name} and {right.name} have different registers, so their states are not comparable")

    def wrong_step(m: Module, i: Miter) -> Value:
        x = sides[0].advance(m, i, sides[0].held(i))
        y = sides[1].advance(m, i, {name: i.free.get(f"other@{name}", value) for name, value in x.held.items()})
        same = ~differ(_with_effect(x.held), _with_effect(y.held))
        return same & (differ(_with_effect(x.next), _with_effect(y.next)) | differ(x.outputs, y.outputs))

    free = sides[0].free()
    if "held_from_0" in sides[0].step.registers:
        free |= {f"other@{name}": width for name, width in sides[0].step.registers.items()}
    return Miter(free, wrong_step, (sides[0].step, sides[1].step))


def equal_from_start(asked: Implementation) -> Miter:
    """Claim that two steps of an accumulator give the same results as with the goal ``area``.

    The first step starts from any value of ``c``. Registers of the two structures are not comparable.
    """
    sides = [clocked(asked.with_build(goal=goal).component()) for goal in (AREA, asked.build.goal)]
    high = Const(1, 1)

    def wrong(m: Module, i: Miter) -> Value:
        results = []
        for side in sides:
            begin = side.advance(m, i, side.held(i), 0, load=high, valid=high)
            results.append([cycle.outputs for cycle in side.run(m, i, begin.next, (1, 2), valid=high)])
        return Cat(*(differ(x, y) for x, y in zip(*results, strict=True))).any()

    free = sides[0].free(range(3)) | sides[1].free(range(3))
    return Miter(free, wrong, tuple(side.step for side in sides))


def held(asked: Implementation) -> Miter:
    """Claim that no register changes while the clock enable is low."""
    unit = clocked(asked.component())

    def wrong(m: Module, i: Miter) -> Value:
        return unit.advance(m, i, unit.held(i), en=Const(0, 1)).moved()

    return Miter(unit.free(), wrong, (unit.step,))


def pipelined(asked: Implementation) -> Miter:
    """Claim that register stages change only the latency.

    From any register values, the result after ``latency`` cycles is that of the unit without register stages, which
    starts from the accumulator value before the operands were added and from the random source at their arrival.
    """
    built = asked.component()
    unit = clocked(built)
    plain = _Plain(asked, unit)
    cycles = range(built.latency + 1)

    def wrong(m: Module, i: Miter) -> Value:
        trace = unit.run(m, i, unit.held(i), cycles)
        first = {name: i[f"{name}@0"] for name in unit.inputs if name not in unit.fixed}
        return differ(trace[-1].outputs, plain.results(m, i, first, trace))

    return Miter(unit.free(cycles) | plain.free, wrong, (unit.step, *plain.steps))


class _Plain:
    """Unit without register stages, as the reference of one with stages.

    The other one's registers are ``prefix + NAME``. Any value is right for registers without effect, which it omits.
    """

    def __init__(self, asked: Implementation, other: Clocked, prefix: str = "") -> None:
        self.unit, self.prefix = asked.without_stages.component(), prefix
        self.clocked = clocked(self.unit) if self.unit.clocked else None
        self.steps = (self.clocked.step,) if self.clocked else ()
        self.slots = asked.component().slots
        registers = self.clocked.step.registers if self.clocked else {}
        omitted = {name: width for name, width in registers.items() if prefix + name not in other.step.registers}
        self.free = {f"omitted@{name}": width for name, width in omitted.items()}

    def results(self, m: Module, i: Miter, given: dict[str, Value], trace: Sequence[Cycle]) -> Codes:
        """Return results for operands, from the other unit's registers in its cycles."""
        if self.clocked is None:
            return i.apply(m, self.unit, given)
        before = {
            name: i[omitted]
            if (omitted := f"omitted@{name}") in self.free
            else trace[self.slots[name]].held[self.prefix + name]
            for name in self.clocked.step.registers
        }
        step = self.clocked.advance(m, i, before, **given)
        for _ in range(self.unit.latency):
            step = self.clocked.advance(m, i, step.next, **given)
        return step.outputs


def after_reset(asked: Implementation) -> Miter:
    """Claim that after a reset, for any inputs, outputs are +0 until the first result is due."""
    unit = asked.component()
    return _zero_after_reset(clocked(unit), unit.latency, unit.outputs)


def _zero_after_reset(component: Clocked, latency: int, outputs: Iterable[str]) -> Miter:
    """Claim that outputs are 0 for ``latency`` cycles after a reset."""

    def wrong(m: Module, i: Miter) -> Value:
        reset = component.advance(m, i, component.held(i), rst=Const(1, 1))
        cycles = component.run(m, i, reset.next, range(1, latency + 1))
        return Cat(*(cycle.outputs[name] for cycle in cycles for name in outputs)).any()

    return Miter(component.free(range(latency + 1)), wrong, (component.step,))


def _stream(asked: Implementation) -> Clocked:
    """Return the stream wrapper of a unit."""
    return Clocked(transition_of(Streamed(asked.component())), *stream_ports_of(asked.component()), {"rst": 0})


def stream_waits(asked: Implementation) -> Miter:
    """Claim that a waiting result holds and blocks operands, and that ``ready`` without a result has no effect."""
    stream = _stream(asked)

    def wrong(m: Module, i: Miter) -> Value:
        first, second = stream.run(m, i, stream.held(i), range(2))
        other = stream.advance(m, i, stream.held(i), o__ready=Const(1, 1))
        waits = first.outputs["o__valid"] & ~i["o__ready@0"]
        same = second.outputs["o__valid"] & (second.outputs["o__payload"] == first.outputs["o__payload"])
        matters = ~first.outputs["o__valid"] & differ(first.next, other.next)
        return (waits & (~same | first.moved())) | (first.outputs["i__ready"] != ~waits) | matters

    return Miter(stream.free(range(2)), wrong, (stream.step,))


def stream_is_in_order(asked: Implementation) -> Miter:
    """Claim that each accepted vector has exactly one result, correct and in order.

    From any register values, there is a result ``latency`` cycles later exactly if operands were accepted, and it is
    theirs. Cycles with a waiting result change nothing and are omitted; in all others ``ready`` may be high, by
    `stream_waits`.
    """
    unit = asked.component()
    stream = _stream(asked)
    plain = _Plain(asked, stream, "unit.")
    cycles = range(unit.latency + 1)

    def wrong(m: Module, i: Miter) -> Value:
        trace = stream.run(m, i, stream.held(i), cycles, o__ready=Const(1, 1))
        given: dict[str, Value] = {"valid": Const(1, 1)}
        for port, low in Ports.inputs_of(unit).slices():
            given[port.name] = i["i__payload@0"][low : low + port.width]
        due = Cat(*plain.results(m, i, given, trace).values())
        last, taken = trace[-1].outputs, i["i__valid@0"]
        return (last["o__valid"] != taken) | (taken & (last["o__payload"] != due))

    return Miter(stream.free(cycles) | plain.free, wrong, (stream.step, *plain.steps))


def stream_starts_empty(asked: Implementation) -> Miter:
    """Claim that after a reset there is no result before the first is due."""
    return _zero_after_reset(_stream(asked), asked.component().latency, ["o__valid"])
