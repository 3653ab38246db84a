"""Claims as circuits: an output that is 1 where the claim does not hold, for which inputs are looked for."""

from collections.abc import Callable, Mapping
from typing import Any

from amaranth.hdl import Cat, ClockDomain, Const, Elaboratable, Instance, Module, Signal, Value

from .prove import Question, Step, circuit

Codes = Mapping[str, Value]


class Miter(Elaboratable):
    """Units beside each other, and what is not to be.

    Parameters
    ----------
    inputs : dict of str to int
        Names and widths of what may have any value.
    wrong : callable
        Makes, of a module and this miter, the value that is never to be 1.
    steps : sequence of Step
        What it has instances of.
    registers : bool
        Whether it has registers of its own, in the domain ``sync``.

    Attributes
    ----------
    free : dict of str to Signal
        The inputs, which are also items.
    bad : Signal
        The claim does not hold for these inputs.
    applied : list of Unit
        The units in it, once it was elaborated.
    """

    def __init__(
        self,
        inputs: Mapping[str, int],
        wrong: Callable[[Module, "Miter"], Value],
        steps: tuple[Step, ...] = (),
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
        """Question about the circuit."""
        ports = [*self.free.values(), self.bad, *([self.domain.clk] if self.registers else [])]
        return Question(name, circuit(self, ports), self.steps, self.registers)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self.applied.clear()
        if self.registers:
            m.domains += self.domain
        m.d.comb += self.bad.eq(self.wrong(m, self))
        return m

    def apply(self, m: Module, unit: Any, codes: Codes) -> dict[str, Value]:
        """Results of a combinational unit on some codes."""
        m.submodules += unit
        self.applied.append(unit)
        m.d.comb += [Value.cast(getattr(unit, name)).eq(codes[name]) for name in unit.inputs]
        return {name: Value.cast(getattr(unit, name)) for name in unit.outputs}

    def advance(self, m: Module, step: Step, held: Codes, given: Codes, ports: Mapping[str, int]) -> "After":
        """A clock cycle of a step from some register values; ``ports`` are its outputs."""
        next_ = {name: Signal(width, name=f"next_{name}") for name, width in step.registers.items()}
        outputs = {name: Signal(width, name=f"{name}_seen") for name, width in ports.items()}
        connections: dict[str, Any] = {"i_rst": Const(0, 1), "i_clk": Const(0, 1)} if step.registers else {}
        connections |= {f"i_{name}": value for name, value in given.items()}
        connections |= {f"i_held@{name}": held[name] for name in step.registers}
        connections |= {f"o_next@{name}": value for name, value in next_.items()}
        connections |= {f"o_{name}": value for name, value in outputs.items()}
        m.submodules += Instance(step.name, **connections)
        return After(held, next_, outputs)


class After:
    """A clock cycle: registers before and after it, and the outputs in it."""

    def __init__(self, held: Codes, next_: Codes, outputs: Codes) -> None:
        self.held, self.next, self.outputs = held, next_, outputs

    def moved(self) -> Value:
        """True if any register changes."""
        return differ(self.held, self.next)


def differ(x: Codes, y: Codes) -> Value:
    """True if some value is not the same in both."""
    return Cat(*(x[name] != y[name] for name in x)).any()


def widths(unit: Any) -> dict[str, int]:
    """Names and widths of a unit's inputs."""
    return {name: int(shape.width) for name, shape in unit.inputs.items()}
