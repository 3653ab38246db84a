"""Common base of the families whose codes are strings: rounded as strings, in two's complement, with one NaR."""

import math
from abc import abstractmethod
from fractions import Fraction

from .base import Format
from .rounding import Rounding


class Tapered(Format):
    """A format of two's-complement codes, of which the most negative one is NaR; posits and takums.

    Negating a code negates its number. The code of a positive number is the beginning of an endless string, and a
    rounding acts on that; nothing is rounded to zero or to NaR.
    """

    code_order = "two's complement"
    rounds = "string"
    nan_is_ordered = True
    has_inf = has_negative_zero = False
    has_nan = True

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
    def lowest(self) -> Fraction:  # type: ignore[override]
        """Least number."""
        return -self.largest

    @property
    def nan_code(self) -> int:  # type: ignore[override]
        """Code of NaR."""
        return 1 << (self.width - 1)

    @property
    def max_code(self) -> int:
        """Code of the largest number; that of the smallest one above zero is 1."""
        return self.nan_code - 1

    def infinity(self, negative: bool) -> int:
        """Code that an infinite result takes: NaR."""
        return self.nan_code

    def decode(self, code: int) -> Fraction | float:
        """Number that a code stands for."""
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
