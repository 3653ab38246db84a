"""Compound formats: unevaluated sums of floats (Henry, Tang and Heinecke, ARITH 2019)."""

import re
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Self

from .base import Format, floor_log2
from .checks import check_int
from .floating import MAX_MAN, Float
from .rounding import RD, RN, RZ, Rounding
from .saturation import OFF, Saturation

MAX_WIDTH = 64

_TEXT = re.compile(r"(.+)x([0-9]+)")


@dataclass(frozen=True)
class Compound(Format):
    """Sum of floats of one format, each the rounding of what the former ones left.

    Parameters
    ----------
    part : Float
        Format of the parts.
    parts : int
        Number of parts, at least 2; a code has at most 64 bits.

    Raises
    ------
    TypeError, ValueError
        If a parameter has the wrong type or is out of range.

    Notes
    -----
    A code has the codes of the parts side by side, the first and largest part in its highest bits. Its number is their
    exact sum, so most numbers have several codes; a rounding gives one of them. Operations with a compound result round
    their exact result, of the exact sums of operands, in this way once:

    - Part 0 is the number, rounded; part i is the number minus all parts before it, which is exact, rounded. The last
      part is rounded by the mode of the operation. The parts before it are truncated if the mode is ``rz``, ``ru``,
      ``rd`` or ``ro``, so that the sum is the number rounded in that direction; ``ra`` and ``rh`` round all parts; with
      ``rn``, ``sr`` and ``exact`` the parts before the last one are rounded to nearest, ties to even.
    - An exact remainder of zero is +0, and -0 under ``rd``. The code of -0 is therefore that of -0 + 0, whose sum is 0.
    - The random word of ``sr`` rounds the last part.
    - Parts have subnormal numbers if their format has; a remainder below half the smallest one is lost.
    - The parts after an infinity or NaN are +0. A number beyond the largest part overflows there; ``saturate`` gives
      the largest part, and the parts after it hold the rest.
    """

    family = "compound"
    syntax = "<float>x<parts>, a sum of 2 or more floats in up to 64 bits: bf16x2, bf16x3"
    code_order = "table"
    rounds = "magnitude"

    part: Float
    parts: int = field()

    def __post_init__(self) -> None:
        if not isinstance(self.part, Float):
            raise TypeError(f"a part of a compound format must be a Float, not {type(self.part).__name__}")
        check_int("parts", self.parts, "compound format", 2)
        if self.width > MAX_WIDTH:
            raise ValueError(f"{self} has {self.width} bits; a compound format has at most {MAX_WIDTH}")

    def __str__(self) -> str:
        return f"{self.part}x{self.parts}"

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        match = _TEXT.fullmatch(text)
        part = match and Float.from_text(match[1])
        return cls(part, int(match[2])) if match and part else None

    @staticmethod
    def is_part(fmt: Format) -> bool:
        """Return True if a sum of two numbers of a format is a compound format."""
        return isinstance(fmt, Float) and 2 * fmt.width <= MAX_WIDTH

    @staticmethod
    def pair(fmt: Format) -> Format:
        """Return the sum of two numbers of a float, for the short form of units; another format is unchanged."""
        return Compound(fmt, 2) if isinstance(fmt, Float) else fmt

    def describe(self) -> str:
        return f"sum of {self.parts} parts, each {self.part.describe()}"

    def default_accumulator(self) -> Float:
        """Return the float with the exponent of the parts and three times their precision: fp32 for bf16."""
        part = self.part
        return Float(max(part.exp, 2), min(3 * part.precision - 1, MAX_MAN), part.bias, subnormals=part.subnormals)

    # Sizes and ranges ------------------------------------------------------------------------------------------

    @property
    def part_format(self) -> Float:
        return self.part

    @property
    def width(self) -> int:  # type: ignore[override]  # a property for an attribute of Format
        """Width of a code."""
        return self.parts * self.part.width

    @property
    def flushes(self) -> bool:  # type: ignore[override]  # a property for an attribute of Format
        return self.part.flushes

    @property
    def has_nan(self) -> bool:  # type: ignore[override]  # a property for an attribute of Format
        return self.part.has_nan

    @property
    def has_inf(self) -> bool:  # type: ignore[override]  # a property for an attribute of Format
        return self.part.has_inf

    @property
    def has_negative_zero(self) -> bool:  # type: ignore[override]  # a property for an attribute of Format
        return self.part.has_negative_zero

    @property
    def precision(self) -> int:  # type: ignore[override]  # a property for an attribute of Format
        """Maximum significand bits of a sum, whose parts may be far apart."""
        return floor_log2(self.largest) - self.quantum + 1

    def precision_at(self, scale: int) -> int:
        if not floor_log2(self.smallest) <= scale <= self.part.emax:
            return 0
        if scale == self.part.emax:
            # A number above the largest part would overflow.
            return self.part.precision_at(scale)
        # A remainder is at most half a last place, so its sign stands for one more bit.
        held = self.parts * (self.part.precision + 1) - 1
        return max(self.part.precision_at(scale), min(held, scale - floor_log2(self.smallest) + 1))

    @property
    def quantum(self) -> int:  # type: ignore[override]  # a property for an attribute of Format
        return self.part.quantum

    @property
    def largest(self) -> Fraction:  # type: ignore[override]  # a property for an attribute of Format
        return self.parts * self.part.largest

    @property
    def smallest(self) -> Fraction:  # type: ignore[override]  # a property for an attribute of Format
        return self.part.smallest

    # Codes -----------------------------------------------------------------------------------------------------

    @property
    def nan_code(self) -> int:  # type: ignore[override]  # a property for an attribute of Format
        """Code whose first part is the NaN of its format."""
        return self.code_of([self.part.nan_code])

    def infinity(self, negative: bool) -> int:
        return self.code_of([self.part.infinity(negative)])

    def fields(self) -> dict[str, int]:
        return {f"part{place}": self.part.width for place in reversed(range(self.parts))}

    def decode(self, code: int) -> Fraction | float:
        """Return the sum of the parts; infinities of both signs give NaN."""
        values = [self.part.decode(part_code) for part_code in self.codes_of(code)]
        specials = [value for value in values if isinstance(value, float)]
        return sum(specials) if specials else sum((Fraction(value) for value in values), Fraction(0))

    def negative(self, code: int) -> bool:
        value = self.decode(code)
        return value < 0 or (value == 0 and all(map(self.part.negative, self.codes_of(code))))

    @staticmethod
    def leading(rounding: Rounding) -> Rounding:
        """Return the rounding of the parts before the last one."""
        if rounding.is_nearest:
            return rounding
        return RN if rounding.mode in ("sr", "exact") else RZ

    def encode_magnitude(
        self, magnitude: Fraction, negative: bool, rounding: Rounding, random: int = 0, saturate: Saturation = OFF
    ) -> int:
        codes: list[int] = []
        rest, encode = -magnitude if negative else magnitude, self.part.encode_magnitude
        while len(codes) < self.parts:
            last = len(codes) == self.parts - 1
            how = (rounding, random) if last else (self.leading(rounding), 0)
            codes.append(encode(abs(rest), negative, *how, saturate))
            value = self.part.decode(codes[-1])
            if isinstance(value, float):
                break
            rest -= value
            negative = rest < 0 or (rest == 0 and rounding == RD)
        return self.code_of(codes)
