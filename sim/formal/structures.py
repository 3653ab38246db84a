"""Claims that the structure of a unit changes no bit: structures beside each other, and step by step.

A proof about registers takes any values in them, whether they can occur or not, and lets so many cycles pass that what
is in them came in since. That is induction over time, and needs no bound on it: of ``n`` register stages the result of
operands shows after ``n`` cycles in which the clock enable is high, and one in which it is low changes nothing.
"""

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Cat, Const, Module, Value

from halfulp.sim.implementation import Implementation
from halfulp.units.stream import Streamed

from .miters import After, Miter, differ, widths
from .prove import Step, step_of


def steps_of(*components: Any) -> tuple[Step, ...]:
    """Of several components."""
    return tuple(step_of(component) for component in components)


def free_registers(step: Step) -> dict[str, int]:
    """Inputs of a miter that stand for registers of any value."""
    return {f"held@{name}": width for name, width in step.registers.items()}


def outputs_of(unit: Any) -> dict[str, int]:
    """Names and widths of a unit's results."""
    return {name: int(shape.width) for name, shape in unit.outputs.items()}


def cycle(m: Module, i: Miter, unit: Any, step: Step, held: Any, suffix: str, **controls: Value) -> After:
    """A clock cycle of a unit, with the inputs of the miter that have a suffix; enabled by default."""
    given = {name: i[name + suffix] for name in unit.inputs}
    given |= {"en": Const(1, 1)} | controls
    if unit.has_valid and "valid" not in given:
        given["valid"] = Const(1, 1)
    return i.advance(m, step, held, given, outputs_of(unit))


def equal(asked: Implementation, **other: Any) -> Miter:
    """Another structure of a unit gives the same; of a unit with a state, from the same state, and leaves the same."""
    one, two = asked.component(), asked.with_build(**other).component()
    if not one.clocked:

        def wrong(m: Module, i: Miter) -> Value:
            given = {name: i[name] for name in i.free}
            results = [i.apply(m, built.component(), given) for built in (asked, asked.with_build(**other))]
            return differ(*results)

        return Miter(widths(one), wrong)
    steps = steps_of(one, two)
    if steps[0].registers != steps[1].registers:
        raise ValueError(f"{one.name} and {two.name} have different registers, and nothing says which are the same")

    def wrong_step(m: Module, i: Miter) -> Value:
        held = {name: i[f"held@{name}"] for name in steps[0].registers}
        x, y = (cycle(m, i, unit, step, held, "") for unit, step in zip((one, two), steps, strict=True))
        return differ(x.next, y.next) | differ(x.outputs, y.outputs)

    return Miter(free_registers(steps[0]) | widths(one), wrong_step, steps)


def lazy_is_eager(asked: Implementation) -> Miter:
    """Both structures of stochastic rounding."""
    return equal(asked.with_build(stochastic="lazy"), stochastic="eager")


def dsp_is_plain(asked: Implementation) -> Miter:
    """Products for DSP blocks, and those of lookup tables."""
    return equal(asked.with_build(dsp=False), dsp=True)


def held(asked: Implementation) -> Miter:
    """While the clock enable is low no register changes."""
    unit = asked.component()
    (step,) = steps_of(unit)

    def wrong(m: Module, i: Miter) -> Value:
        registers = {name: i[f"held@{name}"] for name in step.registers}
        controls = {"valid": i["valid"]} if unit.has_valid else {}
        return cycle(m, i, unit, step, registers, "", en=Const(0, 1), **controls).moved()

    free = free_registers(step) | widths(unit) | ({"valid": 1} if unit.has_valid else {})
    return Miter(free, wrong, (step,))


def pipelined(asked: Implementation) -> Miter:
    """Register stages change nothing but the latency.

    From any registers, after as many cycles as the latency is, the result is that of the unit without register stages:
    of one with an accumulator, that of its step from the accumulator as it was.
    """
    unit, plain = asked.component(), asked.with_build(pipeline=0).component()
    step, *inner = steps_of(unit, *([plain] if plain.clocked else []))
    controls = {"valid": 1} if unit.has_valid else {}

    def wrong(m: Module, i: Miter) -> Value:
        cycles = run(m, i, unit, step, unit.latency)
        return differ(cycles[-1].outputs, plain_result(m, i, plain, inner, cycles, ""))

    free = free_registers(step) | widths(unit) | controls
    for number in range(1, unit.latency + 1):
        free |= {f"{name}@{number}": width for name, width in (widths(unit) | controls).items()}
    return Miter(free, wrong, (step, *inner))


def run(m: Module, i: Miter, unit: Any, step: Step, count: int) -> list[After]:
    """So many cycles and one more, which shows the outputs after them."""
    registers = {name: i[f"held@{name}"] for name in step.registers}
    cycles: list[After] = []
    for number in range(count + 1):
        suffix = f"@{number}" if number else ""
        controls = {"valid": i[f"valid{suffix}"]} if unit.has_valid else {}
        cycles.append(cycle(m, i, unit, step, cycles[-1].next if cycles else registers, suffix, **controls))
    return cycles


def plain_result(
    m: Module, i: Miter, plain: Any, inner: Sequence[Step], cycles: Sequence[After], prefix: str
) -> dict[str, Value]:
    """Result of the unit without register stages for the first operands, from the state before their turn came."""
    if not inner:
        return i.apply(m, plain, {name: i[name] for name in plain.inputs})
    before = {name: cycles[-2].held[prefix + name] for name in inner[0].registers}
    controls = {"valid": i["valid"]} if plain.has_valid else {}
    first = cycle(m, i, plain, inner[0], before, "", **controls)
    # Once more, for what is registered shows a cycle later.
    return dict(cycle(m, i, plain, inner[0], first.next, "").outputs)


def after_reset(asked: Implementation) -> Miter:
    """After a reset the results are +0 until those of the first operands are due, whatever comes in."""
    unit = asked.component()
    (step,) = steps_of(unit)
    controls = {"valid": 1} if unit.has_valid else {}

    def wrong(m: Module, i: Miter) -> Value:
        registers = {name: i[f"held@{name}"] for name in step.registers}
        last = cycle(m, i, unit, step, registers, "", rst=Const(1, 1))
        seen = []
        for number in range(1, unit.latency + 1):
            given = {name: i[f"{name}@{number}"] for name in controls}
            last = cycle(m, i, unit, step, last.next, f"@{number}", **given)
            seen += [value.any() for value in last.outputs.values()]
        return Cat(*seen).any()

    free = free_registers(step) | widths(unit)
    for number in range(1, unit.latency + 1):
        free |= {f"{name}@{number}": width for name, width in (widths(unit) | controls).items()}
    return Miter(free, wrong, (step,))


class _Stream:
    """The stream wrapper of a unit in a miter, cycle by cycle."""

    def __init__(self, asked: Implementation) -> None:
        self.plain = asked.with_build(pipeline=0).component()
        self.unit = asked.component()
        self.latency: int = self.unit.latency
        self.operands, self.results = (sum(of.values()) for of in (widths(self.unit), outputs_of(self.unit)))
        self.step, *self.inner = steps_of(
            Streamed(asked.component()), *([asked.with_build(pipeline=0).component()] if self.plain.clocked else [])
        )

    def free(self, cycles: int) -> dict[str, int]:
        """Registers, and what may come in so many cycles."""
        found = free_registers(self.step)
        for number in range(cycles):
            found |= {f"ready@{number}": 1, f"offered@{number}": 1, f"payload@{number}": self.operands}
        return found

    def held(self, i: Miter) -> dict[str, Value]:
        return {name: i[f"held@{name}"] for name in self.step.registers}

    def cycle(
        self, m: Module, i: Miter, held: Any, number: int, *, reset: int = 0, ready: Value | None = None
    ) -> After:
        given = {
            "i__valid": i[f"offered@{number}"],
            "i__payload": i[f"payload@{number}"],
            "o__ready": i[f"ready@{number}"] if ready is None else ready,
            "rst": Const(reset, 1),
        }
        return i.advance(m, self.step, held, given, {"i__ready": 1, "o__valid": 1, "o__payload": self.results})


def stream_waits(asked: Implementation) -> Miter:
    """A result that waits stays as it is, and nothing is taken meanwhile; else operands are taken, and it is all one
    whether somebody is ready for a result that is not there."""
    stream = _Stream(asked)

    def wrong(m: Module, i: Miter) -> Value:
        first = stream.cycle(m, i, stream.held(i), 0)
        other = stream.cycle(m, i, stream.held(i), 0, ready=Const(1, 1))
        second = stream.cycle(m, i, first.next, 1)
        waits = first.outputs["o__valid"] & ~i["ready@0"]
        same = second.outputs["o__valid"] & (second.outputs["o__payload"] == first.outputs["o__payload"])
        matters = ~first.outputs["o__valid"] & differ(first.next, other.next)
        return (waits & (~same | first.moved())) | (first.outputs["i__ready"] != ~waits) | matters

    return Miter(stream.free(2), wrong, (stream.step,))


def stream_is_in_order(asked: Implementation) -> Miter:
    """Each accepted vector has one result, right and in order, and there is no other result.

    From any registers: as many cycles later as the latency is, there is a result where operands were taken and none
    where none were, and it is that of those operands. Cycles in which a result waits are left out, for they change
    nothing, and in all others somebody may as well be ready, as `stream_waits` has it.
    """
    stream = _Stream(asked)

    def wrong(m: Module, i: Miter) -> Value:
        cycles: list[After] = []
        for number in range(stream.latency + 1):
            held = cycles[-1].next if cycles else stream.held(i)
            cycles.append(stream.cycle(m, i, held, number, ready=Const(1, 1)))
        low, given = 0, {}
        for name, width in widths(stream.unit).items():
            given[name] = i["payload@0"][low : low + width]
            low += width
        due = _due(m, i, stream, cycles, given)
        last, taken = cycles[-1].outputs, i["offered@0"]
        return (last["o__valid"] != taken) | (taken & (last["o__payload"] != due))

    return Miter(stream.free(stream.latency + 1), wrong, (stream.step, *stream.inner))


def _due(m: Module, i: Miter, stream: _Stream, cycles: Sequence[After], given: dict[str, Value]) -> Value:
    """The payload that the first operands have as their result."""
    plain = stream.plain
    if not stream.inner:
        return Cat(*i.apply(m, plain, given).values())
    (inner,) = stream.inner
    given = given | {"en": Const(1, 1), "valid": Const(1, 1)}
    before = {name: cycles[-2].held[f"unit.{name}"] for name in inner.registers}
    first = i.advance(m, inner, before, given, outputs_of(plain))
    return Cat(*i.advance(m, inner, first.next, given, outputs_of(plain)).outputs.values())


def stream_starts_empty(asked: Implementation) -> Miter:
    """After a reset there is no result before one is due."""
    stream = _Stream(asked)

    def wrong(m: Module, i: Miter) -> Value:
        last = stream.cycle(m, i, stream.held(i), 0, reset=1)
        seen = []
        for number in range(1, stream.latency + 1):
            last = stream.cycle(m, i, last.next, number)
            seen.append(last.outputs["o__valid"])
        return Cat(*seen).any()

    return Miter(stream.free(stream.latency + 1), wrong, (stream.step,))
