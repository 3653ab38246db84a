"""Common base of the families whose codes are strings: rounded as strings, in two's complement, with one NaR."""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Self

from .base import Format
from .checks import check_int
from .rounding import Rounding

MAX_WIDTH = 64


@dataclass(frozen=True)
class Tapered(Format):
    """A format of two's-complement codes, of which the most negative one is NaR; posits and takums.

    Negating a code negates its number. The code of a positive number is the beginning of an endless string, and a
    rounding acts on that; nothing is rounded to zero or to NaR.

    Parameters
    ----------
    width : int
        Bits of a code, up to 64.

    Raises
    ------
    TypeError, ValueError
        If a parameter is of the wrong kind, or out of range.
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
        """Twice the width, at most 64 bits."""
        return replace(self, width=min(2 * self.width, MAX_WIDTH))

    def holds(self, other: Format) -> bool:
        """True for formats whose codes are the beginnings of this one's."""
        return isinstance(other, Tapered) and self.width >= other.width and replace(other, width=self.width) == self

    @property
    @abstractmethod
    def fraction_bits(self) -> int:
        """Fraction bits of the longest significand."""

    @abstractmethod
    def decode_positive(self, code: int) -> Fraction:
        """Number of a code above zero and below NaR."""

    @abstractmethod
    def string(self, magnitude: Fraction) -> Fraction:
        """The endless code of a magnitude, with the point behind the last bit that there is room for."""

    @property
    def precision(self) -> int:  # type: ignore[override]
        """Bits of the longest significand, the hidden one included."""
        return self.fraction_bits + 1

    @property
    def smallest(self) -> Fraction:  # type: ignore[override]
        return Fraction(self.decode(1))

    @property
    def largest(self) -> Fraction:  # type: ignore[override]
        return Fraction(self.decode(self.max_code))

    @property
    def nan_code(self) -> int:  # type: ignore[override]
        return 1 << (self.width - 1)

    @property
    def max_code(self) -> int:
        """Code of the largest number; that of the smallest one above zero is 1."""
        return self.nan_code - 1

    def infinity(self, negative: bool) -> int:
        """Code that an infinite result takes: NaR."""
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
        self, magnitude: Fraction, negative: bool, rounding: Rounding, random: int = 0, saturate: bool = False
    ) -> int:
        """Code of a finite number given by magnitude and sign: its string is rounded; these formats saturate anyway."""
        if magnitude == 0:
            return 0
        if rounding.mode == "exact" and not self.smallest <= magnitude <= self.largest:
            raise ValueError(f"exact was asked for, but {self} goes from {self.smallest} to {self.largest}")
        if magnitude >= self.largest:
            code = self.max_code
        elif magnitude <= self.smallest:
            code = 1
        else:
            code = rounding.round(self.string(magnitude), negative, random)
        return (1 << self.width) - code if negative else code
