"""Equal steps of a computation: rows of adders one after the other."""

from collections.abc import Callable
from typing import TypeVar

from amaranth.hdl import Module, Value

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

    def held(self, m: Module, value: Value, name: str) -> Value:
        """Return a value of the operands that is needed in or after the steps."""
        return wire(m, value, name)

    def run(self, m: Module, start: State, row: Callable[[Module, State, int], State]) -> State:
        """Return the state after all steps; ``row(m, state, place)`` returns the state after one step."""
        for place in range(self.count):
            start = row(m, start, place)
        return start
