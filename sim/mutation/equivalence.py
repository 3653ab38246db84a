"""Proof that a change of a netlist shows for no inputs, or inputs for which it shows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from amaranth.hdl import Cat, Const, Module, Signal, Value

from halfulp.sim.formal import LIMIT
from halfulp.sim.formal.miters import After, Clocked, Codes, Miter, differ
from halfulp.sim.formal.prove import PROVED, REFUTED, Step, Verdict

from . import SELECT, WIDTH

LEVELS = 3
"""Cycles before the one that is compared, from any state, after which unreachable differences are gone."""

CALM = {"rst": 0, "en": 1, "valid": 1}
"""Controls of a cycle without a stall."""


@dataclass(frozen=True)
class EquivalenceResult:
    """Verdict on a change.

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
    step : Step
        With the input `SELECT`.
    inputs, outputs : dict of str to int
        Widths of its ports, but for the clock.
    latency : int
    """

    def __init__(self, step: Step, inputs: Mapping[str, int], outputs: Mapping[str, int], latency: int) -> None:
        self.inputs, self.latency = list(inputs), latency
        self.component = Clocked(step, {**inputs, SELECT: WIDTH}, outputs, {SELECT: 0})

    def check(self, number: int) -> EquivalenceResult:
        """Verdict on a change, by its number."""
        if not self.component.step.registers:
            return self._result(self._ask(self._apart(number, 0), f"{number}"), [0], {})
        # Most changes are settled by the first two questions.
        if self._ask(self._apart(number, 0), f"{number} 0").status == PROVED:
            return EquivalenceResult(True, [])
        cycles = range(1, self.latency + LEVELS + 1)
        verdict = self._ask(self._from_reset(number, cycles, CALM), f"{number} reset")
        if verdict.status == REFUTED:
            return self._result(verdict, cycles, CALM)
        for level in cycles[:-1]:
            # States that agree stay so, whatever comes in: every state but the first is that after a cycle.
            if self._ask(self._apart(number, level), f"{number} {level}").status == PROVED:
                return EquivalenceResult(True, [])
        verdict = self._ask(self._from_reset(number, cycles, {}), f"{number} reset, stalls")
        if verdict.status == REFUTED:
            return self._result(verdict, cycles, {})
        # Registers may differ where no output depends on them.
        equivalent = self._ask(self._ever(number), f"{number} ever").status == PROVED
        return EquivalenceResult(True if equivalent else None, [])

    def _ask(self, miter: Miter, name: str) -> Verdict:
        question = miter.question(f"change {name}")
        return question.known(LIMIT) or question.answer(LIMIT)

    def _result(self, verdict: Verdict, cycles: Iterable[int], fixed: Mapping[str, int]) -> EquivalenceResult:
        if verdict.status == PROVED:
            return EquivalenceResult(True, [])
        if verdict.witness is None:
            return EquivalenceResult(None, [])
        found = verdict.witness
        rows = [{name: fixed.get(name, found.get(f"{name}@{cycle}", 0)) for name in self.inputs} for cycle in cycles]
        return EquivalenceResult(False, rows)

    def _sides(
        self, m: Module, i: Miter, held: Sequence[Codes], number: int, cycle: int, component: Clocked, **given: Value
    ) -> list[After]:
        """A cycle of the component without a change, and of that with one."""
        return [
            component.advance(m, i, own, cycle, **given, **{SELECT: Const(change, WIDTH)})
            for own, change in zip(held, (0, number), strict=True)
        ]

    def _seen(self, x: After, y: After) -> Value:
        """True if outputs differ. The payload of a stream counts only while there is a result."""
        if "o__payload" not in self.component.outputs:
            return differ(x.outputs, y.outputs)
        flags = Cat(*(x.outputs[name] != y.outputs[name] for name in ("o__valid", "i__ready"))).any()
        return flags | (x.outputs["o__valid"] & (x.outputs["o__payload"] != y.outputs["o__payload"]))

    def _apart(self, number: int, level: int) -> Miter:
        """Search for a state, and so many cycles after it, after which outputs or next states differ."""
        component = self.component

        def wrong(m: Module, i: Miter) -> Value:
            before = component.run(m, i, component.held(i), range(level))
            held = before[-1].next if before else component.held(i)
            x, y = self._sides(m, i, [held, held], number, level, component)
            apart = self._seen(x, y) | (differ(x.next, y.next) if held else Const(0, 1))
            # Cycles that change nothing can be removed from any history.
            for cycle, after in enumerate(before):
                apart = apart & (after.moved() | i[f"rst@{cycle}"])
            return apart

        return Miter(component.free(range(level + 1)), wrong, (component.step,))

    def _from_reset(self, number: int, cycles: Iterable[int], fixed: Mapping[str, int]) -> Miter:
        """Search for cycles after a reset, from any state, in one of which outputs differ."""
        component = replace(self.component, fixed={**fixed, SELECT: 0})

        def wrong(m: Module, i: Miter) -> Value:
            resets = {name: Const(name == "rst", component.inputs[name]) for name in self.inputs}
            sides = self._sides(m, i, [component.held(i)] * 2, number, 0, component, **resets)
            seen = []
            for cycle in cycles:
                sides = self._sides(m, i, [side.next for side in sides], number, cycle, component)
                seen.append(self._seen(*sides))
            return Cat(*seen).any()

        return Miter(component.free(cycles), wrong, (component.step,))

    def _ever(self, number: int) -> Miter:
        """Search without a bound for a difference of outputs after a reset; both sides have registers."""
        component = self.component

        def wrong(m: Module, i: Miter) -> Value:
            started = Signal()
            m.d.sync += started.eq(1)
            widths = component.step.registers.items()
            held = [{name: Signal(width, name=f"held{n}@{name}") for name, width in widths} for n in (0, number)]
            sides = self._sides(m, i, held, number, 0, component, rst=i["rst@0"] | ~started)
            for registers, side in zip(held, sides, strict=True):
                m.d.sync += [register.eq(side.next[name]) for name, register in registers.items()]
            return started & self._seen(*sides)

        return Miter(component.given(), wrong, (component.step,), registers=True)
