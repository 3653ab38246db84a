"""Base of posits and takums: two's-complement codes with one NaR, rounded as bit strings."""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Self

from .base import Format
from .checks import check_int
from .rounding import Rounding
from .saturation import OFF, Saturation

MAX_WIDTH = 64


@dataclass(frozen=True)
class Tapered(Format):
    """Base class of formats with two's-complement codes, the most negative of which is NaR: posits and takums.

    Negating a code negates its number. The code of a positive number is the prefix of an unbounded bit string, which
    is rounded. No number rounds to zero or NaR.

    Parameters
    ----------
    width : int
        Width of a code, up to 64.

    Raises
    ------
    TypeError, ValueError
        If a parameter has the wrong type or is out of range.
    """

    MIN_WIDTH: ClassVar[int]

    code_order = "two's complement"
    rounds = "string"
    nan_is_ordered = True
    has_inf = has_negative_zero = False
    has_nan = True

    width: int

    def __post_init__(self) -> None:
        check_int("width", self.width, self.family, self.MIN_WIDTH, MAX_WIDTH)

    def default_accumulator(self) -> Self:
        """Return the format of twice the width, at most 64 bits."""
        return replace(self, width=min(2 * self.width, MAX_WIDTH))

    def holds(self, other: Format) -> bool:
        """Return True if codes of ``other`` are prefixes of codes of this format."""
        return isinstance(other, Tapered) and self.width >= other.width and replace(other, width=self.width) == self

    @property
    @abstractmethod
    def fraction_bits(self) -> int:
        """Fraction bits of the longest significand."""

    @abstractmethod
    def decode_positive(self, code: int) -> Fraction:
        """Return the value of a code above zero and below NaR."""

    @abstractmethod
    def string(self, magnitude: Fraction) -> Fraction:
        """Return the unbounded code string of a magnitude, with the binary point after the last bit of a code."""

    @property
    def precision(self) -> int:  # type: ignore[override]  # a property for an attribute of Format
        """Bits of the longest significand, hidden bit included."""
        return self.fraction_bits + 1

    @property
    def smallest(self) -> Fraction:  # type: ignore[override]  # a property for an attribute of Format
        return Fraction(self.decode(1))

    @property
    def largest(self) -> Fraction:  # type: ignore[override]  # a property for an attribute of Format
        return Fraction(self.decode(self.max_code))

    @property
    def nan_code(self) -> int:  # type: ignore[override]  # a property for an attribute of Format
        return 1 << (self.width - 1)

    @property
    def max_code(self) -> int:
        """Code of the largest number; the smallest positive number has code 1."""
        return self.nan_code - 1

    def infinity(self, negative: bool) -> int:
        """Return the code of an infinite result: NaR."""
        return self.nan_code

    def decode(self, code: int) -> Fraction | float:
        self.check_code(code)
        if code == self.nan_code:
            return math.nan
        if code == 0:
            return Fraction(0)
        if code > self.nan_code:
            return -self.decode((1 << self.width) - code)
        return self.decode_positive(code)

    def encode_magnitude(
        self, magnitude: Fraction, negative: bool, rounding: Rounding, random: int = 0, saturate: Saturation = OFF
    ) -> int:
        """Return the code of a finite number: its bit string is rounded. These formats always saturate."""
        if magnitude == 0:
            return 0
        if rounding.mode == "exact" and not self.smallest <= magnitude <= self.largest:
            raise ValueError(f"rounding exact needs a magnitude from {self.smallest} to {self.largest} in {self}")
        if magnitude >= self.largest:
            code = self.max_code
        elif magnitude <= self.smallest:
            code = 1
        else:
            code = rounding.round(self.string(magnitude), negative, random)
        return (1 << self.width) - code if negative else code
