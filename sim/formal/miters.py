"""Miters: circuits whose output is 1 if a claim is violated."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amaranth.hdl import Cat, ClockDomain, Const, Elaboratable, Instance, Module, Signal, Value

from halfulp.sim.ports import Ports

from .prove import Question, Transition, circuit

if TYPE_CHECKING:
    from halfulp.units import Unit

Codes = Mapping[str, Value]


class Miter(Elaboratable):
    """Circuit that compares the results of units.

    Parameters
    ----------
    inputs : dict of str to int
        Widths of the free inputs, by name.
    wrong : callable
        Function from a module and this miter to the value that must never be 1.
    steps : sequence of Transition
        Modules with instances in the circuit.
    registers : bool
        True if the circuit has its own registers, in the domain ``sync``.

    Attributes
    ----------
    free : dict of str to Signal
        Inputs; ``miter[name]`` is one of them.
    bad : Signal
        1 if these inputs violate the claim.
    applied : list of Unit
        Units in the circuit, after elaboration.
    """

    def __init__(
        self,
        inputs: Mapping[str, int],
        wrong: Callable[[Module, "Miter"], Value],
        steps: tuple[Transition, ...] = (),
        *,
        registers: bool = False,
    ) -> None:
        self.free = {name: Signal(width, name=name) for name, width in inputs.items()}
        self.bad = Signal()
        self.wrong, self.steps, self.registers = wrong, steps, registers
        self.domain = ClockDomain("sync", reset_less=True)
        self.applied: list[Any] = []

    def __getitem__(self, name: str) -> Value:
        return self.free[name]

    def question(self, name: str) -> Question:
        """Return the question about the circuit."""
        ports = [*self.free.values(), self.bad, *([self.domain.clk] if self.registers else [])]
        return Question(name, circuit(self, ports), self.steps, self.registers)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self.applied.clear()
        if self.registers:
            m.domains += self.domain
        m.d.comb += self.bad.eq(self.wrong(m, self))
        return m

    def apply(self, m: Module, unit: "Unit", codes: Codes) -> dict[str, Value]:
        """Add a combinational unit with these input codes; return its outputs."""
        m.submodules += unit
        self.applied.append(unit)
        m.d.comb += [Value.cast(getattr(unit, name)).eq(codes[name]) for name in unit.inputs]
        return {name: Value.cast(getattr(unit, name)) for name in unit.outputs}


@dataclass(frozen=True)
class Cycle:
    """Clock cycle of a component: registers before and after it, and outputs."""

    held: Codes
    next: Codes
    outputs: Codes

    def moved(self) -> Value:
        """Return 1 if any register changes."""
        return differ(self.held, self.next)


@dataclass(frozen=True)
class Clocked:
    """Component with registers in a miter, cycle by cycle.

    Its inputs in cycle ``n`` are the miter's inputs ``NAME@n``, and its registers ``held@NAME``.

    Parameters
    ----------
    inputs, outputs : dict of str to int
        Widths of the ports, without the clock.
    fixed : dict of str to int
        Constant inputs.
    """

    step: Transition
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    fixed: Mapping[str, int]

    def given(self, cycles: Iterable[int] = (0,)) -> dict[str, int]:
        """Return the miter inputs for the component's inputs in these cycles."""
        free = {name: width for name, width in self.inputs.items() if name not in self.fixed}
        return {f"{name}@{number}": width for number in cycles for name, width in free.items()}

    def free(self, cycles: Iterable[int] = (0,)) -> dict[str, int]:
        """Return the miter inputs for free register values, and for the component's inputs in these cycles."""
        return {f"held@{name}": width for name, width in self.step.registers.items()} | self.given(cycles)

    def held(self, i: Miter) -> dict[str, Value]:
        """Return the free register values."""
        return {name: i[f"held@{name}"] for name in self.step.registers}

    def advance(self, m: Module, i: Miter, held: Codes, number: int = 0, **given: Value) -> Cycle:
        """Add a clock cycle from these register values; ``given`` overrides constants and inputs of the miter."""
        step = self.step
        next_ = {name: Signal(width, name=f"next_{name}") for name, width in step.registers.items()}
        outputs = {name: Signal(width, name=f"{name}_seen") for name, width in self.outputs.items()}
        connections: dict[str, Any] = {"i_clk": Const(0, 1)} if step.registers else {}
        for name, width in self.inputs.items():
            if name in given:
                value = given[name]
            else:
                value = Const(self.fixed[name], width) if name in self.fixed else i[f"{name}@{number}"]
            connections[f"i_{name}"] = value
        connections |= {f"i_held@{name}": held[name] for name in step.registers}
        connections |= {f"o_next@{name}": value for name, value in next_.items()}
        connections |= {f"o_{name}": value for name, value in outputs.items()}
        m.submodules += Instance(step.name, **connections)
        return Cycle(held, next_, outputs)

    def run(self, m: Module, i: Miter, held: Codes, cycles: Iterable[int], **given: Value) -> list[Cycle]:
        """Add consecutive clock cycles."""
        trace: list[Cycle] = []
        for number in cycles:
            trace.append(self.advance(m, i, trace[-1].next if trace else held, number, **given))
        return trace


def differ(x: Codes, y: Codes) -> Value:
    """Return 1 if any value differs."""
    return Cat(*(x[name] != y[name] for name in x)).any()


def widths(shapes: Mapping[str, Any]) -> dict[str, int]:
    """Return the widths of ports by name, from ``unit.inputs`` or ``unit.outputs``."""
    return {port.name: port.width for port in Ports.of(shapes)}


def ports_of(unit: "Unit") -> tuple[dict[str, int], dict[str, int]]:
    """Return the widths of a unit's inputs, including controls, and outputs, without the clock."""
    controls = ["rst", "en"] * unit.clocked + ["valid"] * unit.has_valid
    return widths(unit.inputs) | dict.fromkeys(controls, 1), widths(unit.outputs)


def stream_ports_of(unit: "Unit") -> tuple[dict[str, int], dict[str, int]]:
    """Return the widths of the inputs and outputs of a unit's stream wrapper, without the clock."""
    return (
        {"rst": 1, "i__valid": 1, "i__payload": Ports.inputs_of(unit).width, "o__ready": 1},
        {"i__ready": 1, "o__valid": 1, "o__payload": Ports.of(unit.outputs).width},
    )
