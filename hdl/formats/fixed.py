"""Fixed-point formats of any size: scaled two's-complement or unsigned integers."""

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Self

from .base import CodeOrder, Format, floor_log2, ldexp
from .checks import check_bool, check_int, check_one_of
from .rounding import Rounding
from .saturation import OFF, Saturation

OVERFLOWS = ("saturate", "narrow", "wrap")
MAX_WIDTH, MAX_BITS = 64, 4096

_TEXT = re.compile(r"(u?)(?:fxp(-?[0-9]+)\.(-?[0-9]+)|int([0-9]+))(?:-(narrow|wrap))?")


@dataclass(frozen=True)
class Fixed(Format):
    """Fixed-point format: integers of ``int_bits + frac_bits`` bits, times 2^-frac_bits.

    Parameters
    ----------
    int_bits : int
        Bits before the binary point, sign bit included, -4096 to 4096.
    frac_bits : int
        Bits after the binary point, -4096 to 4096. One of the two may be negative; their sum is 1 to 64.
    signed : bool
        True for two's complement, false for unsigned numbers.
    overflow : str
        ``saturate``: results beyond the range become the nearest end of the range; ``narrow``: the same, and the range
        of results of a signed format is symmetric, without the lowest number, which operands may have all the same;
        ``wrap``: upper bits are dropped. In all, an infinite result becomes the end of the range, and NaN becomes 0.

    Raises
    ------
    TypeError, ValueError
        If a parameter has the wrong type or is out of range.
    """

    family = "fixed point"
    syntax = (
        "fxp<int_bits>.<frac_bits> or, unsigned, ufxp<int_bits>.<frac_bits>, int<bits> or uint<bits>, 1 to 64 bits in "
        "all; then -wrap for no saturation, or -narrow for a symmetric range: fxp4.4, ufxp0.8, int12, fxp1.7-wrap, "
        "int8-narrow"
    )
    rounds = "floor"
    spacing = "uniform"
    has_flags = True
    names: ClassVar = {name: name for name in ("int4", "int8", "int16", "int32", "uint8")}

    int_bits: int
    frac_bits: int
    signed: bool = True
    overflow: str = "saturate"

    def __post_init__(self) -> None:
        check_int("int_bits", self.int_bits, "fixed-point format", -MAX_BITS, MAX_BITS)
        check_int("frac_bits", self.frac_bits, "fixed-point format", -MAX_BITS, MAX_BITS)
        check_bool("signed", self.signed, "fixed-point format")
        check_one_of("overflow", self.overflow, OVERFLOWS)
        if not 1 <= self.width <= MAX_WIDTH:
            raise ValueError(_width_error(str(self), self.width))
        if self.overflow == "narrow" and (not self.signed or self.width < 2):
            raise ValueError(
                f"{self} has no narrow range; signed formats of 2 bits or more have one, such as int8-narrow"
            )

    def __str__(self) -> str:
        kind = "" if self.signed else "u"
        if self.frac_bits == 0 and self.int_bits > 0:
            text = f"{kind}int{self.int_bits}"
        else:
            text = f"{kind}fxp{self.int_bits}.{self.frac_bits}"
        return text if self.overflow == "saturate" else f"{text}-{self.overflow}"

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        match = _TEXT.fullmatch(text)
        if match is None:
            return None
        int_bits, frac_bits = (int(match[4]), 0) if match[4] else (int(match[2]), int(match[3]))
        if not 1 <= int_bits + frac_bits <= MAX_WIDTH:
            raise ValueError(_width_error(text, int_bits + frac_bits))
        return cls(int_bits, frac_bits, match[1] == "", match[5] or "saturate")

    def describe(self) -> str:
        sign = "signed" if self.signed else "unsigned"
        return f"fixed point, {sign}, {self.int_bits}.{self.frac_bits}, {self.overflow}"

    def default_accumulator(self) -> "Fixed":
        """Return the format with twice the bits on both sides of the point: fxp8.8 for fxp4.4.

        For integers, and if the result is too wide, return `default_sum`.
        """
        far = max(abs(self.int_bits), abs(self.frac_bits)) > MAX_BITS // 2
        if self.frac_bits == 0 or self.width > 32 or far:
            return self.default_sum()
        return replace(self, int_bits=2 * self.int_bits, frac_bits=2 * self.frac_bits)

    def default_sum(self) -> "Fixed":
        """Return the format with the same last place and four times the width, at most 64 bits."""
        more = min(3 * self.width, MAX_WIDTH - self.width, MAX_BITS - self.int_bits)
        return replace(self, int_bits=self.int_bits + more)

    # Sizes and ranges ------------------------------------------------------------------------------------------

    has_inf = has_nan = has_negative_zero = False
    nan_code = 0

    @property
    def code_order(self) -> CodeOrder:  # type: ignore[override]  # a property for an attribute of Format
        return "two's complement" if self.signed else "unsigned"

    @property
    def wraps(self) -> bool:  # type: ignore[override]  # a property for an attribute of Format
        return self.overflow == "wrap"

    def precision_at(self, scale: int) -> int:
        held = self.largest > 0 and self.quantum <= scale <= floor_log2(self.largest)
        return scale - self.quantum + 1 if held else 0

    @property
    def width(self) -> int:  # type: ignore[override]  # a property for an attribute of Format
        return self.int_bits + self.frac_bits

    @property
    def precision(self) -> int:  # type: ignore[override]  # a property for an attribute of Format
        """Maximum significand bits from the first to the last one; the lowest number alone needs only one."""
        return max(self.width - self.signed, 1)

    @property
    def quantum(self) -> int:  # type: ignore[override]  # a property for an attribute of Format
        return -self.frac_bits

    @property
    def lowest_integer(self) -> int:
        """Lowest number of a code, in units of the last place."""
        return -(1 << (self.width - 1)) if self.signed else 0

    @property
    def least_integer(self) -> int:
        """Lowest number of a result, in units of the last place."""
        return -self.largest_integer if self.overflow == "narrow" else self.lowest_integer

    @property
    def largest_integer(self) -> int:
        """Largest number in units of the last place."""
        return (1 << (self.width - self.signed)) - 1

    @property
    def smallest(self) -> Fraction:  # type: ignore[override]  # a property for an attribute of Format
        return ldexp(1, self.quantum)

    @property
    def lowest(self) -> Fraction:
        return ldexp(self.lowest_integer, self.quantum)

    @property
    def lowest_result(self) -> Fraction:
        return ldexp(self.least_integer, self.quantum)

    @property
    def largest(self) -> Fraction:  # type: ignore[override]  # a property for an attribute of Format
        return ldexp(self.largest_integer, self.quantum)

    def holds(self, other: Format) -> bool:
        # An operand in a narrow range may be lower than any result.
        return self == other and self.overflow != "narrow"

    def check_wraps(self, saturate: Saturation) -> None:
        """Raise ValueError unless results wrap, which an external increment requires."""
        if saturate or not self.wraps:
            text = "saturate" if saturate else str(self)
            raise ValueError(
                f"without increment {text} is not possible, because saturation needs the sum; "
                "use a format that wraps, such as int8-wrap"
            )

    # Codes -----------------------------------------------------------------------------------------------------

    def fields(self) -> dict[str, int]:
        sign = int(self.signed)
        fraction = min(max(self.frac_bits, 0), self.width - sign)
        return {"fraction": fraction, "integer": self.width - fraction - sign, "sign": sign}

    def infinity(self, negative: bool) -> int:
        """Return the code of an infinite result: the end of the range."""
        return (self.least_integer if negative else self.largest_integer) & ((1 << self.width) - 1)

    def integer(self, code: int) -> int:
        """Return the value of a code in units of the last place."""
        self.check_code(code)
        return code - (1 << self.width) if self.signed and code >> (self.width - 1) else code

    def decode(self, code: int) -> Fraction:
        return ldexp(self.integer(code), self.quantum)

    def encode_magnitude(
        self, magnitude: Fraction, negative: bool, rounding: Rounding, random: int = 0, saturate: Saturation = OFF
    ) -> int:
        """Return the code of a finite number given by magnitude and sign.

        ``saturate`` makes a wrapping format saturate.
        """
        value = -magnitude if negative else magnitude
        rounded = rounding.round_signed(ldexp(value, -self.quantum), random)
        if not self.least_integer <= rounded <= self.largest_integer:
            if rounding.mode == "exact":
                raise ValueError(f"rounding exact needs a result from {self.lowest_result} to {self.largest} in {self}")
            if saturate or not self.wraps:
                return self.infinity(rounded < 0)
        return rounded & ((1 << self.width) - 1)


def _width_error(text: str, width: int) -> str:
    return f"{text} has {width} bits; a fixed-point format needs 1 to {MAX_WIDTH}"
