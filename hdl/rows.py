# amaranth: UnusedElaboratable=no
"""Equal steps of a computation: rows of adders one after the other, or a few of them that registers iterate."""

from collections.abc import Callable
from copy import copy
from typing import Any, Self, TypeVar

from amaranth.hdl import Const, Module, Signal, Value

from .wire import wire

State = TypeVar("State", bound=tuple[Value, ...])
"""Values between two steps, a named tuple."""


class Rows:
    """Steps that are laid out one after the other.

    Parameters
    ----------
    count : int
        Number of steps.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def after(self, place: int) -> Value:
        """Return the number of steps after the one at ``place``."""
        return Const(self.count - 1 - place)

    def held(self, m: Module, value: Value, name: str) -> Value:
        """Return a value of the operands that is needed in or after the steps."""
        return wire(m, value, name)

    def run(self, m: Module, start: State, row: Callable[[Module, State, int], State], *, grows: bool = True) -> State:
        """Return the state after all steps.

        ``row(m, state, place)`` returns the state after one step; its values are wider than those before if it
        ``grows``.
        """
        for place in range(self.count):
            start = row(m, start, place)
        return start


class Iterated(Rows):
    """Steps that registers iterate, some in each cycle after the operands.

    A multiple of the steps of a cycle is computed, at least ``count``. The state after them holds until the next
    operands.

    Parameters
    ----------
    count : int
        Number of steps needed.
    width : int
        Number of steps in a cycle.
    m : Module
    valid, enable : Value
        Operands are present; the registers are enabled.
    cycles : Value, optional
        Cycles with steps that these operands need, at most those for ``count``. Default: all.

    Attributes
    ----------
    cycles : int
        Cycles with steps.
    ready : Value
        Operands are accepted in this cycle if they are present, and the state is that after all steps.
    """

    def __init__(
        self, count: int, width: int, m: Module, valid: Value, enable: Value, cycles: Value | None = None
    ) -> None:
        self.cycles, self._width = cycles_of(count, width), width
        super().__init__(self.cycles * width)
        left = Signal(range(self.cycles + 1), name="cycles_left")
        self.ready = wire(m, left == 0, "is_ready")
        self._left = left
        self._accepts = wire(m, self.ready & valid & enable, "accepts")
        self._steps = wire(m, ~self.ready & enable, "steps")
        with m.If(self._accepts):
            m.d.sync += left.eq(self.cycles if cycles is None else cycles)
        with m.Elif(self._steps):
            m.d.sync += left.eq(left - 1)

    def of(self, count: int) -> Self:
        """Return steps in the same cycles, of which at least ``count`` are needed."""
        steps = copy(self)
        steps.count = cycles_of(count, self._width) * self._width
        return steps

    def after(self, place: int) -> Value:
        """Return the number of steps after the one at ``place`` of a cycle."""
        return self._left * self._width - (1 + place)

    def held(self, m: Module, value: Value, name: str) -> Value:
        """Return the value in a register, which is loaded with the operands."""
        if isinstance(value, Const) or not len(value):
            return value
        register = Signal(value.shape(), name=name)
        with m.If(self._accepts):
            m.d.sync += register.eq(value)
        return register

    def run(self, m: Module, start: State, row: Callable[[Module, State, int], State], *, grows: bool = True) -> State:
        """Return the registers of the state."""
        # Values after the last step decide the widths of registers that grow. The module is not part of the design; the
        # comment in the first line of this file turns off Amaranth's warning about it.
        end: Any = super().run(Module(), start, row) if grows else start
        widths = [max(len(first), len(last)) for first, last in zip(start, end, strict=True)]
        names: Any = type(start)
        registers = (
            Signal(width, name=name) if width else Const(0, 0)
            for name, width in zip(names._fields, widths, strict=True)
        )
        state: State = names(*registers)
        after = state
        for place in range(self._width):
            after = row(m, after, place)
        for register, first, later in zip(state, start, after, strict=True):
            if not isinstance(register, Signal):
                continue
            with m.If(self._accepts):
                m.d.sync += register.eq(first)
            with m.Elif(self._steps):
                m.d.sync += register.eq(later)
        return state


def cycles_of(count: int, width: int) -> int:
    """Return the number of cycles for ``count`` steps, ``width`` of them in a cycle."""
    return -(-count // width)
