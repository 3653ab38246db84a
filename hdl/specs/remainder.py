"""Description of the remainder of a division."""

from dataclasses import dataclass
from fractions import Fraction

from halfulp.hdl.formats.base import floor_log2

from .arithmetic import BinarySpec
from .ranges import ValueRange


@dataclass(frozen=True)
class RemainderSpec(BinarySpec, form="remainder a,b[=o]", summary="a - b * n, n nearest to a / b"):
    """Remainder of the division to the nearest integer quotient (IEEE 754-2019, 5.3.1); fields as in `BinarySpec`."""

    @property
    def results(self) -> tuple[ValueRange, str]:
        """Range of the exact remainders: no digit is below the last ones of both operands."""
        a, b = ValueRange.of(self.a), ValueRange.of(self.b)
        largest = a.magnitude if b.inf else min(a.magnitude, b.magnitude / 2)
        quantum = min(a.quantum, b.quantum)
        values = ValueRange(
            quantum=quantum,
            lowest=-largest,
            largest=largest,
            smallest=Fraction(2) ** quantum,
            precision=max(a.precision, b.precision),
            inf=False,
            nan=True,
        )
        return values, f"remainder of {self.a} and {self.b}"

    @property
    def digits(self) -> int:
        """Largest number of bits of an integer quotient of significands, and so of the rows of its division."""
        largest = max(-self.a.lowest, self.a.largest)
        return max(floor_log2(largest) - floor_log2(self.b.smallest) + 1, 1)
