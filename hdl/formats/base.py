"""Protocol of number formats: everything that the rest of the project asks of a format, whatever its family."""

import decimal
import functools
import math
from abc import abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar, Literal, Self

from .checks import check_int
from .rounding import RN, RZ, Rounding

TABLE_WIDTH = 16
"""Widest format whose codes are tabulated."""

CodeOrder = Literal["sign-magnitude", "two's complement", "unsigned", "table"]
RoundedUnit = Literal["magnitude", "string", "floor"]
Spacing = Literal["uniform", "relative", "tapered"]


class Plain:
    """Base of `Format` without Amaranth; ``halfulp.hdl.shape`` puts one that is an Amaranth shape in its place."""


class Format(Plain):
    """A number format: a finite set of codes and the numbers they stand for.

    Formats are immutable, compare and hash by value, and ``parse(str(fmt)) == fmt``. A family of formats is a subclass
    in a module of its own, listed in ``families.py``; its stages are registered in ``hdl/number.py``,
    ``golden/codec.py`` and ``golden/kernels/text.py``. All other code asks a format through this class and never
    tests its family.

    Attributes
    ----------
    family : str
        Name of the family.
    names : mapping of str to str
        Named formats of the family: name, and the text that it stands for.
    syntax : str
        Texts of the family, for ``halfulp list formats``.
    width : int
        Number of bits of a code.
    code_order : str
        Order of the codes: ``sign-magnitude``, ``two's complement`` or ``unsigned`` where the numbers rise as these
        integers do; ``table`` where only the table of values tells.
    rounds : str
        Integer that a rounding acts on: the ``magnitude`` in units of the last place; the ``string`` of the
        magnitude's code, which never becomes zero or NaN; or the ``floor`` of the signed number.
    spacing : str
        ``uniform``: the numbers are all multiples of 2^quantum from lowest to largest; ``relative``: all have the
        same precision, down to ``floor_exponent``; ``tapered``: only `precision_at` tells.
    wraps : bool
        A result beyond the range loses its upper bits.
    flushes : bool
        Codes below the smallest normal number read as zero, and results there become zero.
    floor_exponent : int or None
        Exponent below which numbers have the last place that those at this exponent have; None where none is.
    nan_is_ordered : bool
        NaN is less than every number and equals itself (NaR).
    has_nan, has_inf : bool
        A code stands for NaN (NaR of a posit), and for infinity.
    has_negative_zero : bool
        -0 has a code of its own.
    nan_code : int
        Code that a NaN result takes.
    precision : int
        Most bits between the first and the last one of a number, both included.
    quantum : int
        Every number is a multiple of 2^quantum.
    lowest, largest : Fraction
        Least and largest finite number.
    smallest : Fraction
        Smallest number above zero.
    """

    family: ClassVar[str]
    names: ClassVar[Mapping[str, str]] = {}
    syntax: ClassVar[str] = ""

    width: int
    code_order: CodeOrder
    rounds: RoundedUnit
    spacing: Spacing = "tapered"
    wraps: bool = False
    flushes: bool = False
    floor_exponent: int | None = None
    nan_is_ordered: bool = False
    has_nan: bool
    has_inf: bool
    has_negative_zero: bool
    nan_code: int
    precision: int
    quantum: int
    largest: Fraction
    smallest: Fraction

    # Questions that a family answers ---------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def from_text(cls, text: str) -> Self | None:
        """Format of the family that a text names, or None where the text is of another family."""

    @abstractmethod
    def describe(self) -> str:
        """Family and fields in words."""

    def default_accumulator(self) -> "Format":
        """Accumulator of products of this format where none is named.

        Raises
        ------
        TypeError
            If the family has none.
        """
        raise TypeError(f"{self} has no default accumulator; name the accumulator's format")

    def default_sum(self) -> "Format":
        """Accumulator of numbers of this format, without a multiplier, where none is named."""
        return self.default_accumulator()

    @abstractmethod
    def decode(self, code: int) -> Fraction | float:
        """Number that a code stands for.

        Returns
        -------
        Fraction or float
            A `Fraction` where the number is finite (both zeros give 0), else the float inf, -inf or nan.

        Raises
        ------
        TypeError, ValueError
            If ``code`` is not an integer, or does not fit ``width`` bits.
        """

    @abstractmethod
    def infinity(self, negative: bool) -> int:
        """Code that an infinite result takes."""

    @abstractmethod
    def encode_magnitude(
        self, magnitude: Fraction, negative: bool, rounding: Rounding, random: int = 0, saturate: bool = False
    ) -> int:
        """Code of a finite number given by magnitude and sign, so that a zero can carry its sign."""

    @abstractmethod
    def fields(self) -> dict[str, int]:
        """Names and widths of the fields of a code, least significant first."""

    def precision_at(self, scale: int) -> int:
        """Most significand bits p such that the format holds all numbers of p bits from 2^scale to the next power of
        two, or to its largest number; 0 where it does not hold 2^scale."""
        unit = Fraction(2) ** scale
        held = {value / unit for value in self.values if isinstance(value, Fraction) and unit <= value < 2 * unit}
        bits, last = 0, {Fraction(1)}
        while last and last <= held:
            bits += 1
            odd = (1 + Fraction(step, 1 << bits) for step in range(1, 1 << bits, 2))
            last = {number for number in odd if number * unit <= self.largest}
        return bits

    regimes: range = range(0)
    """Numbers of the prefixes of varying length that codes begin with; none by default."""

    def regime_at(self, scale: int) -> int:
        """Number of the prefix that codes of numbers from 2^scale to the next power of two begin with."""
        raise TypeError(f"codes of {self} begin with no prefix of varying length")

    def holds(self, other: "Format") -> bool:
        """True if every number of another format is known to be one of this."""
        return self == other

    # Answers that follow from these ----------------------------------------------------------------------------

    @property
    def values(self) -> tuple[Fraction | float, ...]:
        """Numbers of all codes, by code.

        Raises
        ------
        ValueError
            If the format has more than 16 bits.
        """
        return _values(self)

    @property
    def lowest(self) -> Fraction:
        """Least finite number; default: minus the largest."""
        return -self.largest

    @property
    def is_symmetric(self) -> bool:
        """True if every number has an opposite, and numbers of either sign round alike."""
        return self.lowest == -self.largest

    @property
    def window(self) -> int:
        """Most bits, from the first one of a number on, that a rounding to the format keeps or compares."""
        return self.precision

    @property
    def max_code(self) -> int:
        """Code of the largest number."""
        return self.encode(self.largest, RZ)

    def middle(self, low: Fraction, high: Fraction) -> Fraction:
        """Number between two neighbours from zero up at which rounding to nearest passes from one to the other."""
        if self.rounds == "string" and 0 < 4 * low <= high:
            # Codes that lack bits of the exponent: a power of two is halfway.
            below, above = floor_log2(low), floor_log2(high)
            while above - below > 1:
                exponent = (below + above) // 2
                up = self.decode(self.encode(Fraction(1025, 1024) * Fraction(2) ** exponent)) == high
                below, above = (below, exponent) if up else (exponent, above)
            return Fraction(2) ** above
        if low > 0 or not self.flushes:
            return (low + high) / 2
        # A result is flushed after it was rounded to full precision.
        return high - Fraction(2) ** (floor_log2(high) - self.precision - 1)

    def rank(self, code: int) -> int | None:
        """Integer that rises with the number of a code, the same for both zeros; None for NaN."""
        if isinstance(value := self.decode(code), float) and math.isnan(value):
            return None
        if self.code_order == "table":
            return _ranks(self)[value]
        sign = 1 << (self.width - 1)
        if self.code_order == "unsigned" or not code & sign:
            return code
        return -(code ^ sign) if self.code_order == "sign-magnitude" else code - 2 * sign

    def negated(self, code: int) -> int:
        """Code of the number with the other sign; of NaN the same code.

        Raises
        ------
        ValueError
            If the format does not hold that number.
        """
        value = self.decode(code)
        if isinstance(value, float):
            return code if math.isnan(value) else self.infinity(value > 0)
        negative = not self.negative(code) and (value != 0 or self.has_negative_zero)
        found = self.encode_magnitude(abs(value), negative, RZ, saturate=True)
        if self.decode(found) != -value:
            raise ValueError(f"{self} has no opposite of {self.text(code)}")
        return found

    def encode(
        self, value: Fraction | int | float, rounding: Rounding | str = RN, random: int = 0, saturate: bool = False
    ) -> int:
        """Code of a number, rounded once to the format.

        Parameters
        ----------
        value : Fraction, int or float
            Taken exactly; a float may be inf, nan or -0.0.
        rounding : Rounding or str
        random : int
            Random word of stochastic rounding.
        saturate : bool
            Overflow gives the largest finite number in every mode. An infinite ``value`` stays infinite.
        """
        rounding = Rounding.parse(rounding)
        negative = value < 0 or (isinstance(value, float) and math.copysign(1.0, value) < 0)
        if isinstance(value, float) and not math.isfinite(value):
            return self.nan_code if math.isnan(value) else self.infinity(negative)
        return self.encode_magnitude(abs(Fraction(value)), negative, rounding, random, saturate)

    def text(self, code: int) -> str:
        """A code's number as people write it, such as ``-0``, ``0.375``, ``inf``."""
        value = self.decode(code)
        if not isinstance(value, Fraction):
            return str(value)
        if value == 0:
            return "-0" if self.negative(code) else "0"
        return decimal_text(value)

    def negative(self, code: int) -> bool:
        """True if a code carries a minus sign, zeros included."""
        return self.decode(code) < 0

    def check_code(self, code: int) -> None:
        """Raise TypeError or ValueError unless ``code`` is a code of this format."""
        check_int("code", code, str(self))
        if not 0 <= code < 1 << self.width:
            raise ValueError(f"code {code:#x} does not fit the {self.width} bits of {self}")


@functools.lru_cache(maxsize=64)
def _values(fmt: Format) -> tuple[Fraction | float, ...]:
    if fmt.width > TABLE_WIDTH:
        raise ValueError(f"{fmt} has {fmt.width} bits; the values of all codes are tabulated up to {TABLE_WIDTH} bits")
    return tuple(fmt.decode(code) for code in range(1 << fmt.width))


@functools.lru_cache(maxsize=64)
def _ranks(fmt: Format) -> dict[Fraction | float, int]:
    """Places of the numbers in rising order, counted from zero's."""
    numbers = sorted({value for value in fmt.values if value == value})
    zero = numbers.index(Fraction(0))
    return {number: place - zero for place, number in enumerate(numbers)}


def floor_log2(value: Fraction) -> int:
    """Largest e with 2^e <= value, for a value above zero."""
    e = value.numerator.bit_length() - value.denominator.bit_length()
    return e if Fraction(2) ** e <= value else e - 1


def significand_bits(value: Fraction) -> int:
    """Bits between the first and the last one of a dyadic fraction, both included; 1 of zero."""
    numerator = abs(value.numerator) or 1
    return (numerator // (numerator & -numerator)).bit_length()


def decimal_text(value: Fraction, digits: int = 9) -> str:
    """Decimal text of a number of any size, to so many significant digits."""
    if Fraction(1, 1 << 1074) <= abs(value) < Fraction(1 << 1023) or value == 0:
        return f"{float(value):.{digits}g}"
    with decimal.localcontext(prec=digits, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN):
        return f"{decimal.Decimal(value.numerator) / decimal.Decimal(value.denominator):e}"
