"""What every number format has, whatever its family."""

import decimal
import math
from abc import abstractmethod
from fractions import Fraction

from .rounding import RN, Rounding


class Descriptor:
    """Root of the descriptors.

    It holds nothing. ``halfulp.hdl.shape`` inserts Amaranth's interface between it and `Format`, so that a format is
    a shape in hardware while this folder stays plain Python.
    """


class Format(Descriptor):
    """A number format: a finite set of codes and the numbers they stand for.

    Formats are immutable, compare and hash by value, and ``parse(str(fmt)) == fmt``.

    Attributes
    ----------
    width : int
        Number of bits of a code.
    has_nan, has_inf : bool
        Whether a code stands for NaN (NaR of a posit), and for infinity.
    has_negative_zero : bool
        Whether -0 has a code of its own.
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

    width: int
    has_nan: bool
    has_inf: bool
    has_negative_zero: bool
    nan_code: int
    precision: int
    quantum: int
    lowest: Fraction
    largest: Fraction
    smallest: Fraction

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

    @abstractmethod
    def fields(self) -> dict[str, int]:
        """Names and widths of the fields of a code, least significant first."""

    def text(self, code: int) -> str:
        """A code's number as people write it, such as ``-0``, ``0.375``, ``inf``."""
        value = self.decode(code)
        if not isinstance(value, Fraction):
            return str(value)
        if value == 0:
            return "-0" if self.negative(code) else "0"
        return decimal_text(value)

    def negative(self, code: int) -> bool:
        """Whether a code carries a minus sign, zeros included."""
        return self.decode(code) < 0

    def check_code(self, code: int) -> None:
        """Raise TypeError or ValueError unless ``code`` is a code of this format."""
        if not isinstance(code, int) or isinstance(code, bool):
            raise TypeError(f"a code of {self} is an int, not {type(code).__name__}")
        if not 0 <= code < 1 << self.width:
            raise ValueError(f"code {code:#x} does not fit the {self.width} bits of {self}")


def check_int(name: str, value: object, family: str) -> None:
    """Raise TypeError unless a parameter of a format is an int."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} of a {family} is an int, not {type(value).__name__}")


def floor_log2(value: Fraction) -> int:
    """Largest e with 2^e <= value, for a value above zero."""
    e = value.numerator.bit_length() - value.denominator.bit_length()
    return e if Fraction(2) ** e <= value else e - 1


def decimal_text(value: Fraction, digits: int = 9) -> str:
    """Decimal text of a number of any size, to so many significant digits."""
    if Fraction(1, 1 << 1074) <= abs(value) < Fraction(1 << 1023) or value == 0:
        return f"{float(value):.{digits}g}"
    with decimal.localcontext(prec=digits, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN):
        return f"{decimal.Decimal(value.numerator) / decimal.Decimal(value.denominator):e}"
