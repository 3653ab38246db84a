"""Equivalence check of a changed netlist: a proof that no input detects the change, or inputs that detect it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from amaranth.hdl import Cat, Const, Module, Signal, Value

from halfulp.sim.formal import LIMIT
from halfulp.sim.formal.miters import Clocked, Codes, Cycle, Miter, differ
from halfulp.sim.formal.prove import PROVED, REFUTED, Transition, Verdict

from . import SELECT, WIDTH

LEVELS = 3
"""Number of cycles, from any state, that run before the comparison to exclude unreachable states."""

NO_STALL = {"rst": 0, "en": 1, "valid": 1}
"""Controls of a cycle without a stall."""


@dataclass(frozen=True)
class EquivalenceResult:
    """Result of an equivalence check.

    Attributes
    ----------
    equivalent : bool or None
        True or False if proved; None if undecided.
    cycles : list of dict
        Inputs of each cycle after a reset that detect the change, by port; one cycle for a unit without registers.
    """

    equivalent: bool | None
    cycles: list[dict[str, int]]


class EquivalenceChecker:
    """Equivalence checker of a component and its changes.

    Parameters
    ----------
    step : Transition
        Clock cycle of the component, with the input `SELECT`.
    inputs, outputs : dict of str to int
        Widths of the ports, without the clock.
    latency : int
    """

    def __init__(self, step: Transition, inputs: Mapping[str, int], outputs: Mapping[str, int], latency: int) -> None:
        self.inputs, self.latency = list(inputs), latency
        self.component = Clocked(step, {**inputs, SELECT: WIDTH}, outputs, {SELECT: 0})

    def check(self, number: int) -> EquivalenceResult:
        """Check a change, by its number."""
        if not self.component.step.registers:
            return self._result(self._ask(self._differs_after(number, 0), f"{number}"), [0], {})
        # The first two questions decide most changes.
        if self._ask(self._differs_after(number, 0), f"{number} 0").status == PROVED:
            return EquivalenceResult(True, [])
        cycles = range(1, self.latency + LEVELS + 1)
        verdict = self._ask(self._from_reset(number, cycles, NO_STALL), f"{number} reset")
        if verdict.status == REFUTED:
            return self._result(verdict, cycles, NO_STALL)
        for level in cycles[:-1]:
            # Equal states stay equal for any inputs; every state but the first follows from a cycle.
            if self._ask(self._differs_after(number, level), f"{number} {level}").status == PROVED:
                return EquivalenceResult(True, [])
        verdict = self._ask(self._from_reset(number, cycles, {}), f"{number} reset, stalls")
        if verdict.status == REFUTED:
            return self._result(verdict, cycles, {})
        # Registers may differ if no output depends on them.
        equivalent = self._ask(self._differs_ever(number), f"{number} ever").status == PROVED
        return EquivalenceResult(True if equivalent else None, [])

    def _ask(self, miter: Miter, name: str) -> Verdict:
        question = miter.question(f"change {name}")
        return question.known(LIMIT) or question.answer(LIMIT)

    def _result(self, verdict: Verdict, cycles: Iterable[int], fixed: Mapping[str, int]) -> EquivalenceResult:
        if verdict.status == PROVED:
            return EquivalenceResult(True, [])
        if verdict.witness is None:
            return EquivalenceResult(None, [])
        witness = verdict.witness
        rows = [{name: fixed.get(name, witness.get(f"{name}@{cycle}", 0)) for name in self.inputs} for cycle in cycles]
        return EquivalenceResult(False, rows)

    def _sides(
        self, m: Module, i: Miter, held: Sequence[Codes], number: int, cycle: int, component: Clocked, **given: Value
    ) -> list[Cycle]:
        """Add a cycle of the original component and one of the changed component."""
        return [
            component.advance(m, i, own, cycle, **given, **{SELECT: Const(change, WIDTH)})
            for own, change in zip(held, (0, number), strict=True)
        ]

    def _outputs_differ(self, x: Cycle, y: Cycle) -> Value:
        """Return 1 if outputs differ; the payload of a stream counts only with a result."""
        if "o__payload" not in self.component.outputs:
            return differ(x.outputs, y.outputs)
        flags = Cat(*(x.outputs[name] != y.outputs[name] for name in ("o__valid", "i__ready"))).any()
        return flags | (x.outputs["o__valid"] & (x.outputs["o__payload"] != y.outputs["o__payload"]))

    def _differs_after(self, number: int, level: int) -> Miter:
        """Ask for a state after ``level`` cycles from which outputs or next states differ."""
        component = self.component

        def wrong(m: Module, i: Miter) -> Value:
            before = component.run(m, i, component.held(i), range(level))
            held = before[-1].next if before else component.held(i)
            x, y = self._sides(m, i, [held, held], number, level, component)
            apart = self._outputs_differ(x, y) | (differ(x.next, y.next) if held else Const(0, 1))
            # Cycles that change nothing can be removed from any history.
            for cycle, after in enumerate(before):
                apart = apart & (after.moved() | i[f"rst@{cycle}"])
            return apart

        return Miter(component.free(range(level + 1)), wrong, (component.step,))

    def _from_reset(self, number: int, cycles: Iterable[int], fixed: Mapping[str, int]) -> Miter:
        """Ask for inputs after a reset, from any state, for which outputs differ in a cycle."""
        component = replace(self.component, fixed={**fixed, SELECT: 0})

        def wrong(m: Module, i: Miter) -> Value:
            resets = {name: Const(name == "rst", component.inputs[name]) for name in self.inputs}
            sides = self._sides(m, i, [component.held(i)] * 2, number, 0, component, **resets)
            seen = []
            for cycle in cycles:
                sides = self._sides(m, i, [side.next for side in sides], number, cycle, component)
                seen.append(self._outputs_differ(*sides))
            return Cat(*seen).any()

        return Miter(component.free(cycles), wrong, (component.step,))

    def _differs_ever(self, number: int) -> Miter:
        """Ask without a bound on time for a difference of outputs after a reset; both sides have registers."""
        component = self.component

        def wrong(m: Module, i: Miter) -> Value:
            started = Signal()
            m.d.sync += started.eq(1)
            widths = component.step.registers.items()
            held = [{name: Signal(width, name=f"held{n}@{name}") for name, width in widths} for n in (0, number)]
            sides = self._sides(m, i, held, number, 0, component, rst=i["rst@0"] | ~started)
            for registers, side in zip(held, sides, strict=True):
                m.d.sync += [register.eq(side.next[name]) for name, register in registers.items()]
            return started & self._outputs_differ(*sides)

        return Miter(component.given(), wrong, (component.step,), registers=True)
