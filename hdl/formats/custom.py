"""Formats whose numbers are given by two functions."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Self

from .base import CodeOrder, Format, RoundedUnit
from .checks import check_int
from .floating import Float
from .rounding import RN, Rounding
from .saturation import OFF, Saturation

PREFIX = "custom:"

MAX_WIDTH = 32
"""Maximum width in bits."""


@dataclass(frozen=True)
class Custom(Format):
    """Number format given by a function from real numbers to codes and one from codes to real numbers.

    The golden model, matrix products, policies and emulation accept it. It has no RTL, as a `Codebook`
    of up to 8 bits has. `halfulp.golden.register_format` registers one.

    Parameters
    ----------
    name : str
        Name; the text of the format is ``custom:NAME``.
    width : int
        Width of codes in bits, 1 to 32.
    from_real, to_real : callable
        Code of a float, and float of a code. Numbers are those of binary32, infinities and NaN included.

    Raises
    ------
    TypeError, ValueError
        If ``width`` is invalid.
    """

    family = "custom"
    syntax = "custom:<name>, two functions registered with golden.register_format; without RTL"
    code_order: CodeOrder = field(default="table", init=False, repr=False)
    rounds: RoundedUnit = field(default="magnitude", init=False, repr=False)
    has_nan = has_inf = has_negative_zero = True
    precision = 24
    quantum = -149
    largest = Fraction(2) ** 128 - Fraction(2) ** 104
    smallest = Fraction(2) ** -149

    name: str
    width: int
    from_real: Callable[[float], int] = field(repr=False)
    to_real: Callable[[int], float] = field(repr=False)

    def __post_init__(self) -> None:
        check_int("width", self.width, str(self), 1, MAX_WIDTH)

    def __str__(self) -> str:
        return f"{PREFIX}{self.name}"

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """Return the registered format of ``custom:NAME``."""
        if not text.startswith(PREFIX):
            return None
        if text not in _REGISTERED:
            raise ValueError(f"unknown {text}; register it with halfulp.golden.register_format")
        return _REGISTERED[text]

    def register(self) -> Self:
        """Make the format known by its text, in this process."""
        _REGISTERED[str(self)] = self
        return self

    def describe(self) -> str:
        return "given by two functions"

    @property
    def held_in(self) -> Format:  # type: ignore[override]  # a property for an attribute of Format
        """Binary32."""
        return Float(8, 23)

    @property
    def window(self) -> int:
        """Bits of binary64, in which functions get the results that they round."""
        return 53

    @property
    def nan_code(self) -> int:  # type: ignore[override]  # a property for an attribute of Format
        """Code that the function gives for NaN."""
        return self.from_real(math.nan)

    def infinity(self, negative: bool) -> int:
        return self.from_real(-math.inf if negative else math.inf)

    def fields(self) -> dict[str, int]:
        return {"code": self.width}

    def decode(self, code: int) -> Fraction | float:
        self.check_code(code)
        value = self.to_real(code)
        return Fraction(value) if math.isfinite(value) else value

    def negative(self, code: int) -> bool:
        return math.copysign(1.0, self.to_real(code)) < 0

    def encode_magnitude(
        self, magnitude: Fraction, negative: bool, rounding: Rounding, random: int = 0, saturate: Saturation = OFF
    ) -> int:
        odd = _to_odd(magnitude) if magnitude else 0.0
        code = self.from_real(-odd if negative else odd)
        if abs(self.to_real(code)) != magnitude:
            self.check_rounding(rounding, saturate)
        return code

    def check_rounding(self, rounding: Rounding, saturate: Saturation) -> None:
        """Raise ValueError for a rounding mode or saturation, which the function decides."""
        if rounding != RN or saturate:
            raise ValueError(f"the function of {self} decides its rounding and overflow; use the rounding rn alone")


_REGISTERED: dict[str, Custom] = {}


def _to_odd(value: Fraction) -> float:
    """Truncate a positive number to 53 bits, and set the last bit if it is inexact; infinity beyond binary64."""
    shift = 52 - (value.numerator.bit_length() - value.denominator.bit_length())
    scaled = value * Fraction(2) ** shift
    if scaled >= 1 << 53:
        shift, scaled = shift - 1, scaled / 2
    integer = int(scaled)
    try:
        return math.ldexp(integer | (integer != scaled), -shift)
    except OverflowError:
        return math.inf
