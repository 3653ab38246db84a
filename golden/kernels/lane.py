"""Types of vector lanes, roundings of their words to formats, and refusals of lanes that are not proved exact."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from halfulp.hdl.formats.base import floor_log2


@dataclass(frozen=True)
class Lane:
    """Binary floating-point type of the processor; its exponents are from ``emin`` to ``top`` - 1."""

    bits: int
    precision: int
    emin: int
    top: int

    @property
    def mantissa(self) -> int:
        """Bits of the mantissa."""
        return self.precision - 1

    @property
    def quantum(self) -> int:
        """Exponent of the last place of subnormal numbers."""
        return self.emin - self.mantissa

    @property
    def bias(self) -> int:
        """Exponent bias."""
        return 1 - self.emin

    def holds(self, value: Fraction, bits: int) -> bool:
        """Return True if a number, which is not negative, has at most ``bits`` bits in the lane."""
        if not value:
            return True
        exponent = floor_log2(value)
        place = max(exponent + 1 - bits, self.quantum)
        return exponent < self.top and (value / Fraction(2) ** place).denominator == 1

    def word(self, value: Fraction) -> int:
        """Return the word that encodes a number, which is not negative; truncated."""
        if not value:
            return 0
        exponent = floor_log2(value)
        if exponent < self.emin:
            return int(value / Fraction(2) ** self.quantum)
        return ((exponent + self.bias - 1) << self.mantissa) + int(value / Fraction(2) ** (exponent - self.mantissa))


BINARY32 = Lane(32, 24, -126, 128)
BINARY64 = Lane(64, 53, -1022, 1024)


class Refused(Exception):
    """Refusal of a lane that is not proved exact for a description, with the reason."""


def need(condition: bool, otherwise: str) -> None:
    """Raise `Refused` with the reason ``otherwise`` if the condition is false."""
    if not condition:
        raise Refused(otherwise)


@dataclass(frozen=True)
class Rounder:
    """Rounding of lane words to a format.

    Attributes
    ----------
    scale : int
        A lane holds numbers of the format times 2^scale.
    least : int
        Smallest number of discarded bits.
    natural : bool
        Overflow of the lane is overflow of the format.
    text : str
        C++ type.
    tables : dict of str to sequence of int
        Arrays of words that the type needs.
    """

    scale: int
    least: int
    natural: bool
    text: str
    tables: Mapping[str, Sequence[int]] = field(default_factory=dict)
