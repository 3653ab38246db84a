"""Unsigned powers of two: the scales of blocks."""

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

from .base import Format, floor_log2, ldexp
from .checks import check_int
from .rounding import Rounding
from .saturation import OFF, Saturation

MIN_EXP, MAX_EXP = 2, 8

_TEXT = re.compile(r"(?:float8_(?=e8))?e([0-9]+)m0fnu")

OTHER_NAMES = ("E8M0", "f8_e8m0", "ue8m0")
"""Names of e8m0fnu in OCP, safetensors and PTX; they parse too."""


@dataclass(frozen=True)
class Scale(Format):
    """Unsigned powers of two: code c is 2^(c - bias), and all ones is NaN; there is no zero and no sign.

    ``e8m0fnu`` is the scale of OCP Microscaling Formats 1.0 (2023), section 5.4.1, and has the name of ml_dtypes.

    Parameters
    ----------
    exp : int
        Width in bits, 2 to 8. The bias is 2^(exp-1) - 1.

    Raises
    ------
    TypeError, ValueError
        If ``exp`` has the wrong type or is out of range.

    Notes
    -----
    A number is rounded to one significand bit, so ties go to the larger power of two under ``rn``; ``ro`` truncates. A
    positive number below the smallest power of two becomes the smallest one in every mode. Zero, negative numbers and
    infinities become NaN, and so does an overflow that is not the largest number.
    """

    family = "block scale"
    syntax = "e<exp>m0fnu, unsigned powers of two, exp 2 to 8: e8m0fnu"
    code_order = "unsigned"
    rounds = "magnitude"
    spacing = "relative"
    has_zero = has_inf = has_negative_zero = False
    has_nan = True
    precision = 1
    subnormals = False
    man = 0
    names: ClassVar = {"e8m0fnu": "e8m0fnu"}

    exp: int

    def __post_init__(self) -> None:
        check_int("exp", self.exp, "block scale", MIN_EXP, MAX_EXP)

    def __str__(self) -> str:
        return f"e{self.exp}m0fnu"

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        match = _TEXT.fullmatch("e8m0fnu" if text in OTHER_NAMES else text)
        return None if match is None else cls(int(match[1]))

    def describe(self) -> str:
        return f"unsigned powers of two, bias {self.bias}"

    # Sizes and ranges ------------------------------------------------------------------------------------------

    @property
    def width(self) -> int:  # type: ignore[override]  # a property for an attribute of Format
        """Width of a code: its exponent bits."""
        return self.exp

    @property
    def bias(self) -> int:
        """Code of the number one."""
        return (1 << (self.exp - 1)) - 1

    @property
    def emin(self) -> int:
        """Exponent of the smallest number."""
        return -self.bias

    @property
    def emax(self) -> int:
        """Exponent of the largest number."""
        return self.bias

    @property
    def quantum(self) -> int:  # type: ignore[override]  # a property for an attribute of Format
        return self.emin

    @property
    def smallest(self) -> Fraction:  # type: ignore[override]  # a property for an attribute of Format
        return Fraction(2) ** self.emin

    @property
    def lowest(self) -> Fraction:
        return self.smallest

    @property
    def largest(self) -> Fraction:  # type: ignore[override]  # a property for an attribute of Format
        return Fraction(2) ** self.emax

    @property
    def nan_code(self) -> int:  # type: ignore[override]  # a property for an attribute of Format
        """Code of NaN: all ones."""
        return (1 << self.exp) - 1

    @property
    def max_code(self) -> int:
        return self.nan_code - 1

    def precision_at(self, scale: int) -> int:
        return int(self.emin <= scale <= self.emax)

    # Codes -----------------------------------------------------------------------------------------------------

    def infinity(self, negative: bool) -> int:
        """Return NaN, which is the code of an infinite result."""
        return self.nan_code

    def fields(self) -> dict[str, int]:
        return {"exponent": self.exp}

    def decode(self, code: int) -> Fraction | float:
        self.check_code(code)
        return math.nan if code == self.nan_code else ldexp(1, code - self.bias)

    def encode_magnitude(
        self, magnitude: Fraction, negative: bool, rounding: Rounding, random: int = 0, saturate: Saturation = OFF
    ) -> int:
        if rounding.mode == "exact" and (negative or not self.smallest <= magnitude <= self.largest):
            raise ValueError(f"rounding exact needs a power of two from {self.smallest} to {self.largest} in {self}")
        if magnitude == 0 or negative:
            return self.nan_code
        exponent = floor_log2(magnitude)
        exponent += rounding.round(ldexp(magnitude, -exponent), negative, random) - 1
        if exponent > self.emax:
            return self.max_code if saturate or rounding.overflows_to_largest[negative] else self.nan_code
        return max(exponent + self.bias, 0)
