"""Sequence items: operations with formatted operands, and patterns of back-pressure."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pyuvm import uvm_sequence_item

from halfulp.hdl.specs.formula import Port
from halfulp.sim.ports import Ports


@dataclass(frozen=True)
class Operand:
    """Code of a port; raises ValueError if it does not fit the port."""

    port: Port
    code: int

    def __post_init__(self) -> None:
        if not 0 <= self.code < 1 << self.port.width:
            raise ValueError(f"code {self.code:#x} does not fit the {self.port.width} bits of {self.port.name}")

    @property
    def fmt(self) -> Any:
        """Format of the port; None for plain bits."""
        return self.port.fmt

    @property
    def number(self) -> Fraction | float | int:
        """Value of the code."""
        return self.code if self.port.fmt is None else self.port.fmt.decode(self.code)

    def __str__(self) -> str:
        digits = -(-self.port.width // 4)
        number = "" if self.port.fmt is None else f" ({self.port.fmt} {self.port.fmt.text(self.code)})"
        return f"{self.port.name} 0x{self.code:0{digits}x}{number}"


class Operation(uvm_sequence_item):
    """Codes of a unit's inputs or outputs, with their handshake.

    Members
    -------
    operands : dict of str to Operand
        Operands by port name.
    gap : int
        Number of cycles without an offer before this operation.
    reset : bool
        True to reset the unit first.
    epoch, cycle : int
        Number of resets before an observed operation, and its clock cycle.
    """

    def __init__(self, name: str = "operation") -> None:
        super().__init__(name)
        self.operands: dict[str, Operand] = {}
        self.gap = 0
        self.reset = False
        self.epoch = self.cycle = 0

    def set(self, ports: Ports, codes: Mapping[str, int]) -> "Operation":
        """Set the codes of all ports, by name."""
        self.operands = {port.name: Operand(port, int(codes[port.name])) for port in ports}
        return self

    def set_word(self, ports: Ports, word: int) -> "Operation":
        """Set the codes from a packed word."""
        return self.set(ports, dict(zip(ports.names, ports.unpack(word), strict=True)))

    @property
    def codes(self) -> dict[str, int]:
        """Codes by port name."""
        return {name: operand.code for name, operand in self.operands.items()}

    @property
    def word(self) -> int:
        """Packed word of the codes."""
        operands = self.operands.values()
        return Ports(tuple(operand.port for operand in operands)).pack([operand.code for operand in operands])

    def __getitem__(self, name: str) -> Operand:
        return self.operands[name]

    def do_copy(self, rhs: Any) -> None:
        super().do_copy(rhs)
        self.operands, self.gap, self.reset = dict(rhs.operands), rhs.gap, rhs.reset
        self.epoch, self.cycle = rhs.epoch, rhs.cycle

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operation) and self.operands == other.operands

    __hash__ = uvm_sequence_item.__hash__

    def __str__(self) -> str:
        return ", ".join(map(str, self.operands.values()))


class Grants(uvm_sequence_item):
    """Levels of the clock enable of a unit, or of ``ready`` of a stream, in the next cycles.

    Members
    -------
    pattern : tuple of bool
        Level in each cycle.
    """

    pattern: tuple[bool, ...] = ()

    def __str__(self) -> str:
        return "".join("+" if granted else "." for granted in self.pattern)
