"""Exact results of operations."""

import math
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Number:
    """Exact result: a magnitude, which is a float for infinity and NaN, and a sign; zeros are signed.

    ``invalid`` and ``by_zero`` are flags of the operation; a signalling NaN is invalid as an operand.
    """

    magnitude: Fraction | float
    negative: bool
    invalid: bool = False
    by_zero: bool = False

    @property
    def value(self) -> Fraction | float:
        """Value with its sign."""
        return -self.magnitude if self.negative else self.magnitude

    @property
    def is_nan(self) -> bool:
        """True for NaN."""
        return isinstance(self.magnitude, float) and math.isnan(self.magnitude)

    @property
    def is_inf(self) -> bool:
        """True for infinities."""
        return isinstance(self.magnitude, float) and math.isinf(self.magnitude)
