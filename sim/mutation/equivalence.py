"""Whether a change of a netlist changes anything that can be seen, for all inputs there are; and if so, for which."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Const, Module, Signal, Value

from halfulp.sim.formal.miters import After, Miter, differ
from halfulp.sim.formal.prove import PROVED, REFUTED, Verdict
from halfulp.sim.ports import Ports

from .model import Made
from .netlist import SELECT, WIDTH

LEVELS = 3
"""Cycles before the one that is looked at, from any state, after which a difference that cannot be reached is gone."""


@dataclass(frozen=True)
class EquivalenceResult:
    """What is known about a change.

    Attributes
    ----------
    equivalent : bool or None
        None where neither was found.
    cycles : list of dict
        Inputs of each cycle after a reset that show the difference, by port; one of a unit without registers.
    """

    equivalent: bool | None
    cycles: list[dict[str, int]]


class EquivalenceChecker:
    """Compares a component with itself, changed.

    Parameters
    ----------
    made : Made
    inputs : dict of str to int
        Widths of its input ports, but for the clock.
    outputs : dict of str to int
        Widths of its output ports.
    latency : int
    limit : float
        Seconds that one question may take.
    """

    def __init__(
        self, made: Made, inputs: Mapping[str, int], outputs: Mapping[str, int], latency: int, limit: float
    ) -> None:
        self.made, self.inputs, self.outputs = made, dict(inputs), dict(outputs)
        self.latency, self.limit = latency, limit

    def judge(self, number: int) -> EquivalenceResult:
        """Of one change, by its number."""
        if not self.made.step.registers:
            verdict = self._ask(self._apart(number, 0), f"{number}")
            return self._equivalence(verdict, [""])
        # Most changes are settled by the first two questions.
        if self._ask(self._apart(number, 0), f"{number} 0").status == PROVED:
            return EquivalenceResult(True, [])
        cycles = self.latency + LEVELS
        suffixes = [f"@{cycle}" for cycle in range(1, cycles + 1)]
        verdict = self._ask(self._from_reset(number, cycles, True), f"{number} reset")
        if verdict.status == REFUTED:
            return self._equivalence(verdict, suffixes, True)
        for level in range(1, cycles):
            # States that agree stay so, whatever comes in: every state but the first is one that a cycle leaves.
            if self._ask(self._apart(number, level), f"{number} {level}").status == PROVED:
                return EquivalenceResult(True, [])
        verdict = self._ask(self._from_reset(number, cycles, False), f"{number} reset, stalls")
        if verdict.status == REFUTED:
            return self._equivalence(verdict, suffixes)
        # Registers may differ where others see to it that nobody looks at them.
        equivalent = self._ask(self._ever(number), f"{number} ever").status == PROVED
        return EquivalenceResult(True if equivalent else None, [])

    def _ask(self, miter: Miter, name: str) -> Verdict:
        question = miter.question(f"change {name}")
        return question.known(self.limit) or question.answer(self.limit)

    def _equivalence(self, verdict: Verdict, suffixes: list[str], calm: bool = False) -> EquivalenceResult:
        if verdict.status == PROVED:
            return EquivalenceResult(True, [])
        if verdict.witness is None:
            return EquivalenceResult(None, [])
        fixed = {"rst": 0, "en": 1, "valid": 1} if calm else {}
        found = verdict.witness
        return EquivalenceResult(
            False,
            [{name: fixed.get(name, found.get(name + suffix, 0)) for name in self.inputs} for suffix in suffixes],
        )

    def _cycle(self, m: Module, i: Miter, held: Any, given: Mapping[str, Value], number: int) -> After:
        return i.advance(m, self.made.step, held, {**given, SELECT: Const(number, WIDTH)}, self.outputs)

    def _given(self, i: Miter, suffix: str) -> dict[str, Value]:
        return {name: i[name + suffix] for name in self.inputs}

    def _seen(self, x: After, y: After) -> Value:
        """Whether outputs differ. What a stream gives while it has no result means nothing."""
        if "o__payload" not in self.outputs:
            return differ(x.outputs, y.outputs)
        flags = Cat(*(x.outputs[name] != y.outputs[name] for name in ("o__valid", "i__ready"))).any()
        return flags | (x.outputs["o__valid"] & (x.outputs["o__payload"] != y.outputs["o__payload"]))

    def _apart(self, number: int, level: int) -> Miter:
        """Whether there is any state, and so many cycles after it, in which outputs or next states differ."""
        step = self.made.step

        def wrong(m: Module, i: Miter) -> Value:
            held: Any = {name: i[f"held@{name}"] for name in step.registers}
            taken: Value = Const(1, 1)
            for before in range(level):
                after = self._cycle(m, i, held, self._given(i, f"@{before}"), 0)
                # Cycles that change nothing may be left out of any history.
                taken = taken & (after.moved() | i[f"rst@{before}"])
                held = after.next
            x, y = (self._cycle(m, i, held, self._given(i, ""), change) for change in (0, number))
            return taken & (self._seen(x, y) | (differ(x.next, y.next) if step.registers else Const(0, 1)))

        free = {f"held@{name}": width for name, width in step.registers.items()} | self.inputs
        for before in range(level):
            free |= {f"{name}@{before}": width for name, width in self.inputs.items()}
        return Miter(free, wrong, (step,))

    def _from_reset(self, number: int, cycles: int, calm: bool) -> Miter:
        """Whether outputs differ in one of some cycles after a reset, from any state; ``calm`` ones have no stalls."""
        step = self.made.step
        fixed = {"rst": Const(0, 1), "en": Const(1, 1), "valid": Const(1, 1)} if calm else {}
        free_inputs = {name: width for name, width in self.inputs.items() if name not in fixed}

        def wrong(m: Module, i: Miter) -> Value:
            held: Any = {name: i[f"held@{name}"] for name in step.registers}
            resets = {name: Const(0, width) for name, width in self.inputs.items()} | {"rst": Const(1, 1)}
            sides = [self._cycle(m, i, held, resets, change) for change in (0, number)]
            seen = []
            for cycle in range(1, cycles + 1):
                given = {name: i[f"{name}@{cycle}"] for name in free_inputs}
                given |= {name: value for name, value in fixed.items() if name in self.inputs}
                sides = [self._cycle(m, i, side.next, given, c) for side, c in zip(sides, (0, number), strict=True)]
                seen.append(self._seen(*sides))
            return Cat(*seen).any()

        free = {f"held@{name}": width for name, width in step.registers.items()}
        for cycle in range(1, cycles + 1):
            free |= {f"{name}@{cycle}": width for name, width in free_inputs.items()}
        return Miter(free, wrong, (step,))

    def _ever(self, number: int) -> Miter:
        """Whether outputs ever differ after a reset in the first cycle, with registers for both sides."""
        step = self.made.step

        def wrong(m: Module, i: Miter) -> Value:
            started = Signal()
            m.d.sync += started.eq(1)
            given = self._given(i, "")
            given["rst"] = given["rst"] | ~started
            sides = []
            for change in (0, number):
                held = {name: Signal(width, name=f"held{change}@{name}") for name, width in step.registers.items()}
                side = self._cycle(m, i, held, given, change)
                m.d.sync += [register.eq(side.next[name]) for name, register in held.items()]
                sides.append(side)
            return started & self._seen(*sides)

        return Miter(self.inputs, wrong, (step,), registers=True)


def ports_of(unit: Any) -> tuple[dict[str, int], dict[str, int]]:
    """Widths of the inputs and outputs of a unit, but for the clock."""
    inputs = {port.name: port.width for port in Ports.of(unit.inputs)}
    controls = ["rst", "en"] if unit.clocked else []
    inputs |= dict.fromkeys([*controls, *(["valid"] if unit.has_valid else [])], 1)
    return inputs, {port.name: port.width for port in Ports.of(unit.outputs)}


def stream_ports_of(unit: Any) -> tuple[dict[str, int], dict[str, int]]:
    """The same of its stream wrapper."""
    inputs, outputs = Ports.of(unit.inputs), Ports.of(unit.outputs)
    return (
        {"rst": 1, "i__valid": 1, "i__payload": inputs.width, "o__ready": 1},
        {"i__ready": 1, "o__valid": 1, "o__payload": outputs.width},
    )
