"""Enumeration of all inputs of a unit."""

from dataclasses import dataclass

import numpy as np

from halfulp.hdl.specs.formula import Port, Role

from .ports import Codes, Ports


@dataclass(frozen=True)
class Space:
    """All input combinations, except random words and state controls.

    Attributes
    ----------
    free : tuple of Port
        Ports whose codes are enumerated, the first one fastest.
    random : tuple of Port
        Ports of random words.
    fixed : dict
        Constant codes of state controls: every vector loads the state.
    """

    free: tuple[Port, ...]
    random: tuple[Port, ...]
    fixed: dict[str, int]

    @classmethod
    def of(cls, inputs: Ports) -> "Space":
        """Return the space of a unit's inputs."""
        return cls(
            free=tuple(port for port in inputs if port.role not in (Role.RANDOM, Role.STATE)),
            random=tuple(port for port in inputs if port.role is Role.RANDOM),
            fixed={name: int(name == "load") for name in inputs.having(Role.STATE)},
        )

    @property
    def bits(self) -> int:
        """Log2 of the number of vectors, without random words."""
        return sum(port.width for port in self.free)

    @property
    def operand_bits(self) -> int:
        """Total width of the operands, without controls such as ``subtract``."""
        return sum(port.width for port in self.free if port.fmt is not None)

    @property
    def random_bits(self) -> int:
        """Total width of the random words."""
        return sum(port.width for port in self.random)

    def codes(self, start: int, count: int, *, with_random: bool = False) -> dict[str, Codes]:
        """Return vectors from number ``start`` on; ``with_random`` also enumerates the random words, last."""
        index = np.arange(start, start + count, dtype=np.uint64)
        rows = {name: np.full(1, code, dtype=np.uint64) for name, code in self.fixed.items()}
        for port in (*self.free, *(self.random if with_random else ())):
            rows[port.name] = index & np.uint64((1 << port.width) - 1)
            index = index >> np.uint64(port.width)
        return rows
