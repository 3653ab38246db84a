"""Description of a multiply-accumulate of compound numbers."""

from dataclasses import dataclass
from typing import Any, Self

from halfulp.hdl.formats.base import Format
from halfulp.hdl.formats.compound import Compound
from halfulp.hdl.formats.rounding import Rounding

from .formula import Factor, Pick, Port, Role
from .mac import MacSpec
from .unit import UNEVALUATED


def ports_of(name: str, fmt: Format) -> dict[str, Format]:
    """Return the ports of an operand with their formats: one for each part of a compound format."""
    return {f"{name}{place}": fmt.part_format for place in range(fmt.parts)} if fmt.parts > 1 else {name: fmt}


@dataclass(frozen=True)
class PartMacSpec(MacSpec, form="partmac a*b[=product]+acc[=o]", summary="a * b of compound numbers, in steps"):
    """Multiply-accumulate of compound numbers, one product of parts per step; fields as in `MacSpec`."""

    FLAGS = False
    NO_FLAGS = UNEVALUATED

    def check(self) -> None:
        super().check()
        if len(self.pairs) == 1:
            raise ValueError(f"{self.a} and {self.b} have one part; partmac needs a compound format, such as bf16x2")

    @property
    def operand_ports(self) -> tuple[Port, ...]:
        parts = (
            Port(port, part, Role.OPERAND, name if fmt.parts > 1 else "")
            for name, fmt in self.operands.items()
            for port, part in ports_of(name, fmt).items()
        )
        return (*parts, Port("step", self.step_bits, Role.INDEX))

    @property
    def factors(self) -> tuple[Factor, Factor]:
        """Parts that the number of the step selects."""
        a, b = (
            Pick(name, "step", tuple(f"{name}{pair[side]}" for pair in self.pairs)) if fmt.parts > 1 else name
            for side, (name, fmt) in enumerate(self.operands.items())
        )
        return a, b

    @property
    def step_bits(self) -> int:
        """Width of the number of a step."""
        return (len(self.pairs) - 1).bit_length()

    @classmethod
    def takes(cls, fmt: Format, rounding: Rounding | None) -> bool:
        """Return True for the format of a part, which the short form takes."""
        return Compound.is_part(fmt)

    @classmethod
    def filled(cls, a: Format, **given: Any) -> Self:
        """Fill the short form, in which a float is the part of a sum of two."""
        return super().filled(Compound.pair(a), **given)
