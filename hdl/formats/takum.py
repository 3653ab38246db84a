"""Linear takum formats of any size (Hunhold, Beating Posits at Their Own Game: Takum Arithmetic, CoNGA 2024)."""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

from .base import floor_log2, ldexp
from .tapered import Tapered

HEAD, MAX_REGIME = 5, 7
FULL_WIDTH = HEAD + MAX_REGIME
"""Bits of sign, direction and regime; maximum bits of the characteristic; width from which codes have all of these."""

_TEXT = re.compile(r"takum([0-9]+)")


@dataclass(frozen=True)
class Takum(Tapered):
    """Linear takum format.

    Parameters
    ----------
    width : int
        Width of a code, 2 to 64.

    Notes
    -----
    A code is a two's-complement integer. The most negative code is NaR; negating a code negates its number. Below the
    sign, a positive code has the direction D, three bits of regime R, the characteristic C of r bits, with r = R if D
    and r = 7 - R if not, and the fraction f. The number is (1 + f) * 2^c, with c = 2^r - 1 + C if D and c = 1 - 2^(r +
    1) + C if not. A code of fewer than 12 bits is a prefix of a longer code that continues with zeros.
    """

    family = "takum"
    syntax = "takum<width>, linear, 2 to 64 bits: takum8, takum16"
    names: ClassVar = {f"takum{width}": f"takum{width}" for width in (8, 16, 32, 64)}

    MIN_WIDTH = 2

    def __str__(self) -> str:
        return f"takum{self.width}"

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        match = _TEXT.fullmatch(text)
        return match and cls(int(match[1]))

    def describe(self) -> str:
        return "takum, linear"

    # Sizes and ranges ------------------------------------------------------------------------------------------

    @property
    def fraction_bits(self) -> int:
        """Fraction bits of numbers from 1 to 2, which have the most."""
        return max(self.width - HEAD, 0)

    @property
    def quantum(self) -> int:  # type: ignore[override]  # a property for an attribute of Format
        """Exponent of the last place of the smallest positive number; every number is a multiple of it."""
        return floor_log2(self.smallest) - max(self.width - FULL_WIDTH, 0)

    def precision_at(self, scale: int) -> int:
        # The code of 2^-255 is the code of zero, so the exponent -255 is unused.
        if not -254 <= scale <= 254:
            return 0
        bits, string = _beginning(scale)
        rest = self.width - HEAD - bits
        return rest + 1 if rest >= 0 else int(string % (1 << -rest) == 0)

    @property
    def regimes(self) -> range:  # type: ignore[override]  # a property for an attribute of Format
        """Bits r of the characteristic for exponents of 0 or more, and -1 - r for negative exponents."""
        return range(-MAX_REGIME - 1, MAX_REGIME + 1)

    def regime_at(self, scale: int) -> int:
        bits, _ = _beginning(scale)
        return bits if scale >= 0 else -1 - bits

    # Codes -----------------------------------------------------------------------------------------------------

    def fields(self) -> dict[str, int]:
        regime = min(3, max(self.width - 2, 0))
        return {"tail": self.width - 2 - regime, "regime": regime, "direction": 1, "sign": 1}

    def decode_positive(self, code: int) -> Fraction:
        width = max(self.width, FULL_WIDTH)
        code <<= width - self.width
        direction, regime = code >> (width - 2), (code >> (width - HEAD)) & 7
        bits = regime if direction else 7 - regime
        fraction_bits = width - HEAD - bits
        characteristic = (code >> fraction_bits) & ((1 << bits) - 1)
        exponent = (1 << bits) - 1 + characteristic if direction else 1 - (2 << bits) + characteristic
        significand = (1 << fraction_bits) | (code & ((1 << fraction_bits) - 1))
        return ldexp(significand, exponent - fraction_bits)

    def string(self, magnitude: Fraction) -> Fraction:
        scale = floor_log2(magnitude)
        bits, string = _beginning(scale)
        return ldexp(string - 1 + ldexp(magnitude, -scale), self.width - HEAD - bits)


def _beginning(scale: int) -> tuple[int, int]:
    """Return the bits of the characteristic at an exponent, and the code between sign and fraction as an integer."""
    bits = (scale + 1 if scale >= 0 else -scale).bit_length() - 1
    characteristic = scale + 1 - (1 << bits) if scale >= 0 else scale - 1 + (2 << bits)
    return bits, ((8 | bits if scale >= 0 else 7 - bits) << bits) + characteristic
