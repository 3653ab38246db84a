"""Posit formats of any size.

(Gustafson and Yonemoto, Supercomputing Frontiers and Innovations 4(2), 2017; Standard for Posit Arithmetic, 2022.)
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

from .base import floor_log2, ldexp
from .checks import check_int
from .tapered import Tapered

MAX_ES, STANDARD_ES = 4, 2

_TEXT = re.compile(r"posit([0-9]+)(?:e([0-9]+))?")


@dataclass(frozen=True)
class Posit(Tapered):
    """Posit format.

    Parameters
    ----------
    width : int
        Width of a code, 3 to 64.
    es : int
        Number of exponent bits, 0 to 4; default: 2, as in the standard of 2022. More than 2 must be at most
        ``width - 3``, so that some codes have all exponent bits.

    Raises
    ------
    TypeError, ValueError
        If a parameter has the wrong type or is out of range.

    Notes
    -----
    A code is a two's-complement integer. The most negative code is NaR; negating a code negates its number. Below the
    sign, a positive code has the regime, a run of r equal bits and the opposite bit, then the exponent e and the
    fraction f, truncated to the width. The number is (1 + f) * 2^(k * 2^es + e) with k = r - 1 for a run of ones and k
    = -r for a run of zeros.
    """

    family = "posit"
    syntax = "posit<width>, 3 to 64 bits, with 2 exponent bits; then e<es> for 0 to 4 of them: posit12, posit16e1"
    names: ClassVar = {f"posit{width}": f"posit{width}" for width in (8, 16, 32, 64)}

    MIN_WIDTH = 3

    es: int = STANDARD_ES

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("es", self.es, "posit", 0, MAX_ES)
        if self.es > max(self.width - 3, STANDARD_ES):
            raise ValueError(
                f"{self} has {self.es} exponent bits, and its width has room for {self.width - 3}; "
                f"use a wider posit or a smaller es"
            )

    def __str__(self) -> str:
        return f"posit{self.width}" if self.es == STANDARD_ES else f"posit{self.width}e{self.es}"

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """Parse ``posit<width>``, which has two exponent bits, or ``posit<width>e<es>``."""
        match = _TEXT.fullmatch(text)
        return match and cls(int(match[1]), STANDARD_ES if match[2] is None else int(match[2]))

    def describe(self) -> str:
        return f"posit, {self.es} exponent bits"

    # Sizes and ranges ------------------------------------------------------------------------------------------

    @property
    def max_scale(self) -> int:
        """Exponent of the largest number; its negative is the exponent of the smallest positive number."""
        return (self.width - 2) << self.es

    @property
    def fraction_bits(self) -> int:
        """Fraction bits of numbers near one, which have the most."""
        return max(self.width - 3 - self.es, 0)

    @property
    def quantum(self) -> int:  # type: ignore[override]  # a property for an attribute of Format
        """Exponent of the smallest positive number; every number is a multiple of it."""
        return -self.max_scale

    def precision_at(self, scale: int) -> int:
        k = scale >> self.es
        rest = self.width - 1 - (k + 2 if k >= 0 else 1 - k)
        if abs(scale) == self.max_scale:
            return 1
        if rest < self.es:
            truncate = self.es - max(rest, 0)
            return int(rest >= 0 and scale % (1 << truncate) == 0)
        return rest - self.es + 1

    @property
    def regimes(self) -> range:  # type: ignore[override]  # a property for an attribute of Format
        """Regimes k: negative for runs of zeros, 0 or more for runs of ones."""
        return range(-(self.width - 2), self.width - 1)

    def regime_at(self, scale: int) -> int:
        """Return the regime k of numbers in [2**scale, 2**(scale + 1))."""
        return scale >> self.es

    # Codes -----------------------------------------------------------------------------------------------------

    def fields(self) -> dict[str, int]:
        """Return names and widths of the fields of a code, lowest first; only the sign has a fixed position."""
        return {"body": self.width - 1, "sign": 1}

    def decode_positive(self, code: int) -> Fraction:
        body = self.width - 1
        ones = code >> (body - 1)
        run = body - (code ^ ((1 << body) - 1) * ones).bit_length()
        k = run - 1 if ones else -run
        rest = max(body - run - 1, 0)
        tail = code & ((1 << rest) - 1)
        # Exponent bits beyond the end of the code are zeros.
        fraction_bits = max(rest - self.es, 0)
        exponent = (tail << self.es >> rest) if rest < self.es else tail >> fraction_bits
        significand = (1 << fraction_bits) | (tail & ((1 << fraction_bits) - 1))
        return ldexp(significand, (k << self.es) + exponent - fraction_bits)

    def string(self, magnitude: Fraction) -> Fraction:
        scale = floor_log2(magnitude)
        k, exponent = divmod(scale, 1 << self.es)
        regime, length = (((2 << k) - 1) << 1, k + 2) if k >= 0 else (1, 1 - k)
        string = (regime << self.es) + exponent - 1 + ldexp(magnitude, -scale)
        return ldexp(string, self.width - 1 - length - self.es)
