"""Interface of number formats, common to all families."""

import decimal
import functools
import math
import numbers
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

from amaranth.hdl import Format as Text
from amaranth.hdl import Shape, ShapeCastable, unsigned

from halfulp.tools import html

from .checks import check_int
from .rounding import RN, RZ, Rounding
from .saturation import OFF, SAT, SATFINITE, Saturation
from .view import TEXTS_WIDTH, FormatConst, FormatView, NumberText, fields_text

TABLE_WIDTH = 16
"""Maximum width of formats whose codes are tabulated."""

CodeOrder = Literal["sign-magnitude", "two's complement", "unsigned", "table"]
RoundedUnit = Literal["magnitude", "string", "floor"]
Spacing = Literal["uniform", "relative", "tapered"]


class Family:
    """Interface of operands, which families of formats and blocks share.

    Attributes
    ----------
    family : str
        Name of the family.
    names : mapping of str to str
        Texts of the named members, by name.
    syntax : str
        Syntax of the texts of the family, for ``halfulp list formats``.
    shares_scale : bool
        True if an operand is a vector of numbers that share a scale.
    parts : int
        Number of parts whose exact sum is a number; more than 1 in compound formats.
    is_floating_point : bool
        True if a number is a sign, an exponent and a significand with a hidden bit, and zero has codes (IEEE 754).
    width : int
        Width in bits.
    """

    family: ClassVar[str]
    names: ClassVar[Mapping[str, str]] = {}
    syntax: ClassVar[str] = ""
    shares_scale: ClassVar[bool] = False

    parts: int = 1
    is_floating_point: bool = False
    width: int

    @classmethod
    @abstractmethod
    def from_text(cls, text: str) -> Self | None:
        """Return the operand of a text, or None if the text is of another family."""

    @abstractmethod
    def describe(self) -> str:
        """Return a description of family and fields."""

    def _repr_html_(self) -> str:
        """Return the description as a table for notebooks."""
        return html.table(str(self), [("description", self.describe()), ("bits", self.width)])


class Format(Family, ShapeCastable):
    """Number format: a finite set of codes and their values.

    Formats are immutable, compare and hash by value, and ``parse(str(fmt)) == fmt``. A family of formats is a subclass
    in its own module, listed in ``families.py``; its stages are registered in ``hdl/number.py``, ``golden/codec.py``
    and ``golden/kernels/text.py``. All other code uses formats through this class and never tests for a family.

    Attributes
    ----------
    code_order : str
        Order of the codes: ``sign-magnitude``, ``two's complement`` or ``unsigned`` if the numbers ascend with these
        integers; ``table`` if the codes are in no order.
    rounds : str
        Integer that is rounded: the ``magnitude`` in units of the last place; the ``string``, the unbounded code of
        the magnitude, which never rounds to zero or NaN; or the ``floor`` of the signed number.
    spacing : str
        ``uniform``: the numbers are all multiples of 2^quantum from lowest to largest; ``relative``: all have the
        same precision, down to ``floor_exponent``; ``tapered``: the precision is given by `precision_at`.
    wraps : bool
        True if results beyond the range lose their upper bits.
    flushes : bool
        True if subnormal codes read as zero, and subnormal results become zero.
    floor_exponent : int or None
        Exponent below which numbers share the last place of those at this exponent; None if there is none.
    threshold : Fraction or None
        Magnitude after the largest one, to which results that overflow round; None without such a number.
    held_in : Format or None
        Float to which operands of matrix products are converted first, because functions alone know the numbers;
        None for other formats.
    has_flags : bool
        True if operations on the format have exception flags.
    nan_is_ordered : bool
        True if NaN is less than every number and equals itself (NaR).
    has_nan, has_inf : bool
        True if a code stands for NaN (NaR of a posit), or for infinity.
    has_zero : bool
        True if a code stands for zero.
    has_negative_zero : bool
        True if -0 has its own code.
    nan_code : int
        Code of a NaN result.
    precision : int
        Maximum significand bits from the first to the last one, both included.
    quantum : int
        Exponent of the coarsest unit of which every number is a multiple.
    lowest, largest : Fraction
        Lowest and largest finite number.
    smallest : Fraction
        Smallest positive number.
    """

    shares_scale: ClassVar[Literal[False]] = False
    code_order: CodeOrder
    rounds: RoundedUnit
    spacing: Spacing = "tapered"
    wraps: bool = False
    flushes: bool = False
    floor_exponent: int | None = None
    threshold: Fraction | None = None
    held_in: "Format | None" = None
    has_flags: bool = False
    nan_is_ordered: bool = False
    has_zero: bool = True
    has_nan: bool
    has_inf: bool
    has_negative_zero: bool
    nan_code: int
    precision: int
    quantum: int
    largest: Fraction
    smallest: Fraction

    # Interface of a family -------------------------------------------------------------------------------------

    def default_accumulator(self) -> "Format":
        """Return the default accumulator of products of this format.

        Raises
        ------
        TypeError
            If the family has none.
        """
        raise TypeError(f"{self} has no default accumulator; give an accumulator format")

    def default_sum(self) -> "Format":
        """Return the default accumulator of numbers of this format, without multiplier."""
        return self.default_accumulator()

    @abstractmethod
    def decode(self, code: int) -> Fraction | float:
        """Return the value of a code.

        Returns
        -------
        Fraction or float
            A `Fraction` if the number is finite (both zeros give 0), else the float inf, -inf or nan.

        Raises
        ------
        TypeError, ValueError
            If ``code`` is not an integer, or does not fit ``width`` bits.
        """

    @abstractmethod
    def infinity(self, negative: bool) -> int:
        """Return the code of an infinite result."""

    def end(self, negative: bool) -> int:
        """Return the code of the last finite number of a sign."""
        return self.encode_magnitude(2 * self.largest, negative, RZ, saturate=SAT)

    def infinite(self, negative: bool, saturate: Saturation) -> int:
        """Return the code of an infinite result with a saturation."""
        return self.end(negative) if saturate == SATFINITE else self.infinity(negative)

    @abstractmethod
    def encode_magnitude(
        self, magnitude: Fraction, negative: bool, rounding: Rounding, random: int = 0, saturate: Saturation = OFF
    ) -> int:
        """Return the code of a finite number given by magnitude and sign, so that zeros can have a sign."""

    @abstractmethod
    def fields(self) -> dict[str, int]:
        """Return names and widths of the fields of a code, least significant first."""

    def precision_at(self, scale: int) -> int:
        """Return the largest p such that the format holds all p-bit numbers in [2**scale, 2**(scale + 1)).

        Numbers above the largest one do not count. Return 0 if the format does not hold 2**scale.
        """
        unit = Fraction(2) ** scale
        held = {value / unit for value in self.values if isinstance(value, Fraction) and unit <= value < 2 * unit}
        bits, last = 0, {Fraction(1)}
        while last and last <= held:
            bits += 1
            odd = (1 + Fraction(step, 1 << bits) for step in range(1, 1 << bits, 2))
            last = {number for number in odd if number * unit <= self.largest}
        return bits

    regimes: range = range(0)
    """Indices of the variable-length prefixes of codes (regimes); default: none."""

    def regime_at(self, scale: int) -> int:
        """Return the index of the code prefix of numbers in [2**scale, 2**(scale + 1))."""
        raise TypeError(f"codes of {self} have no regime")

    def _repr_html_(self) -> str:
        """Return fields of a code, range and special codes as tables for notebooks."""
        fields, last = [], self.width - 1
        for name, width in reversed(self.fields().items()):
            if width:
                fields.append((name, f"{last}" if width == 1 else f"{last}:{last - width + 1}", width))
            last -= width
        layout = [[(place, width) for _, place, width in fields]]
        numbers = {"lowest": self.lowest, "largest": self.largest, "smallest above 0": self.smallest}
        facts = [(name, decimal_text(value)) for name, value in numbers.items()]
        specials = {"0": self.has_zero, "inf": self.has_inf, "nan": self.has_nan}
        digits = -(-self.width // 4)
        facts += [(name, f"0x{self.encode(float(name)):0{digits}x}") for name, there in specials.items() if there]
        header = [(name, width) for name, _, width in fields]
        return html.table(f"{self}: {self.describe()}", layout, header) + html.table(f"Numbers of {self}", facts)

    def holds(self, other: "Format") -> bool:
        """Return True if every number of another format is known to be one of this format."""
        return self == other

    # Shape of Amaranth -----------------------------------------------------------------------------------------

    def as_shape(self) -> Shape:
        """Return the plain shape: unsigned, with the format's width."""
        return unsigned(self.width)

    def const(self, init: Any) -> FormatConst:
        """Return the constant of a Python number that the format holds exactly; None is +0."""
        if init is None:
            return FormatConst(self, 0)
        if isinstance(init, FormatConst):
            if init.fmt != self:
                raise TypeError(f"a constant of {self} must be a number of that format, not {init!r} of {init.fmt}")
            return init
        if isinstance(init, bool) or not isinstance(init, (int, float, Fraction)):
            raise TypeError(f"a constant of {self} must be a number, not {type(init).__name__}")
        code = self.encode(init)
        held = self.decode(code)
        if held != init and not (init != init and held != held):
            raise ValueError(f"{self} cannot hold {init}; its nearest number is {self.text(code)}")
        return FormatConst(self, code)

    def from_bits(self, raw: int) -> FormatConst:
        """Return the constant of a code, used by simulators to read signals."""
        return FormatConst(self, raw)

    def __call__(self, target: Any) -> FormatView:
        """Return a view of a value as this format."""
        return FormatView(self, target)

    def format(self, value: FormatView, spec: str) -> Text:
        """Return the text for waveforms and ``Print``: the number, or for wide formats the fields of the code."""
        if spec:
            raise ValueError(f"a value of {self} takes no format specifier, not {spec!r}")
        if self.width <= TEXTS_WIDTH:
            return NumberText(self, value.as_value())
        return fields_text(self, value)

    # Derived properties ---------------------------------------------------------------------------------------

    @property
    def values(self) -> tuple[Fraction | float, ...]:
        """Values of all codes, by code.

        Raises
        ------
        ValueError
            If the format has more than 16 bits.
        """
        return _values(self)

    @property
    def lowest(self) -> Fraction:
        """Lowest finite number; default: the negative of the largest."""
        return -self.largest

    @property
    def lowest_result(self) -> Fraction:
        """Lowest finite number that a rounding gives; default: the lowest number."""
        return self.lowest

    @property
    def is_symmetric(self) -> bool:
        """True if every number has an opposite, and both signs round alike."""
        return self.lowest == -self.largest

    @property
    def has_subnormals(self) -> bool:
        """True if there are numbers below 2^floor_exponent, which have less precision than those above."""
        return self.floor_exponent is not None and self.precision > 1

    @property
    def has_signalling_nan(self) -> bool:
        """True if some codes are signalling NaNs; default: none is."""
        return False

    @property
    def part_format(self) -> "Format":
        """Format of each part of a number; default: the format itself, whose numbers have one part."""
        return self

    @property
    def window(self) -> int:
        """Maximum number of bits, from the first one of a number, that rounding to the format keeps or compares."""
        return self.precision

    @property
    def max_code(self) -> int:
        """Code of the largest number."""
        return self.encode(self.largest, RZ)

    def middle(self, low: Fraction, high: Fraction) -> Fraction:
        """Return the threshold of rounding to nearest between two neighbours that are zero or positive."""
        if self.rounds == "string" and 0 < 4 * low <= high:
            # Between codes without all exponent bits the threshold is a power of two.
            below, above = floor_log2(low), floor_log2(high)
            while above - below > 1:
                exponent = (below + above) // 2
                up = self.decode(self.encode(Fraction(1025, 1024) * Fraction(2) ** exponent)) == high
                below, above = (below, exponent) if up else (exponent, above)
            return Fraction(2) ** above
        if low > 0 or not self.flushes:
            return (low + high) / 2
        # Results are flushed after rounding to full precision.
        return high - Fraction(2) ** (floor_log2(high) - self.precision - 1)

    def rank(self, code: int) -> int | None:
        """Return the rank of a code among the numbers in ascending order, equal for both zeros; None for NaN."""
        if isinstance(value := self.decode(code), float) and math.isnan(value):
            return None
        if self.code_order == "table":
            return _ranks(self)[value]
        sign = 1 << (self.width - 1)
        if self.code_order == "unsigned" or not code & sign:
            return code
        return -(code ^ sign) if self.code_order == "sign-magnitude" else code - 2 * sign

    def negated(self, code: int) -> int:
        """Return the code of the number with opposite sign; for NaN the same code.

        Raises
        ------
        ValueError
            If the format does not hold that number.
        """
        value = self.decode(code)
        if isinstance(value, float):
            return code if math.isnan(value) else self.infinity(value > 0)
        negative = not self.negative(code) and (value != 0 or self.has_negative_zero)
        opposite = self.encode_magnitude(abs(value), negative, RZ, saturate=SAT)
        if self.decode(opposite) != -value:
            raise ValueError(f"{self} cannot hold the opposite of {self.text(code)}")
        return opposite

    def encode(
        self,
        value: Fraction | int | float | numbers.Real,
        rounding: Rounding | str = RN,
        random: int = 0,
        saturate: Saturation | bool | str = False,
    ) -> int:
        """Return the code of a number, rounded once to the format.

        Parameters
        ----------
        value : Fraction, int, float, or a scalar of numpy
            Exact value; a float may be inf, nan or -0.0.
        rounding : Rounding or str
        random : int
            Random word of stochastic rounding.
        saturate : Saturation, bool or str
            Return the largest finite number on overflow, in every mode. An infinite ``value`` stays infinite, except
            with ``satfinite``.

        Raises
        ------
        TypeError
            If ``value`` is not a real number.
        """
        rounding, saturate = Rounding.parse(rounding), Saturation.of(saturate)
        if not isinstance(value, (int, float, Fraction)):
            value = _exact(value, self)
        negative = value < 0 or (isinstance(value, float) and math.copysign(1.0, value) < 0)
        if isinstance(value, float) and not math.isfinite(value):
            return self.nan_code if math.isnan(value) else self.infinite(negative, saturate)
        number = value if isinstance(value, Fraction) else Fraction(value)
        return self.encode_magnitude(-number if negative else number, negative, rounding, random, saturate)

    def text(self, code: int) -> str:
        """Return the decimal text of a code's value, such as ``-0``, ``0.375`` or ``inf``."""
        value = self.decode(code)
        if not isinstance(value, Fraction):
            return str(value)
        if value == 0:
            return "-0" if self.negative(code) else "0"
        return decimal_text(value)

    def negative(self, code: int) -> bool:
        """Return True if a code is negative, including -0."""
        return self.decode(code) < 0

    def codes_of(self, code: int) -> list[int]:
        """Return the codes of the parts, the first and largest one first."""
        self.check_code(code)
        width = self.width // self.parts
        return [code >> place * width & (1 << width) - 1 for place in reversed(range(self.parts))]

    def code_of(self, codes: Iterable[int]) -> int:
        """Return the code of the first parts; the others are +0."""
        width = self.width // self.parts
        return sum(code << (self.parts - 1 - place) * width for place, code in enumerate(codes))

    def is_signalling(self, code: int) -> bool:
        """Return True for the codes of signalling NaNs; default: no code is one."""
        return False

    def check_code(self, code: int) -> None:
        """Raise TypeError or ValueError unless ``code`` is a code of this format."""
        if type(code) is not int:
            check_int("code", code, str(self))
        if not 0 <= code < 1 << self.width:
            raise ValueError(f"code {code:#x} does not fit the {self.width} bits of {self}")


def _exact(value: Any, fmt: Format) -> Fraction | int | float:
    """Return a number of another library as one of Python, without rounding."""
    if isinstance(value, numbers.Integral):
        return int(value)
    if not hasattr(value, "as_integer_ratio"):
        kind = type(value).__name__
        raise TypeError(f"value to encode in {fmt} must be an int, a float or a Fraction, not {kind} {value!r}")
    if value == 0 or value != value or value in (math.inf, -math.inf):
        # Only a float has a sign of zero, infinities and NaN.
        return float(value)
    return Fraction(*(int(part) for part in value.as_integer_ratio()))


@functools.lru_cache(maxsize=64)
def _values(fmt: Format) -> tuple[Fraction | float, ...]:
    if fmt.width > TABLE_WIDTH:
        raise ValueError(f"{fmt} has {fmt.width} bits; tables of values need {TABLE_WIDTH} bits or fewer")
    return tuple(fmt.decode(code) for code in range(1 << fmt.width))


@functools.lru_cache(maxsize=64)
def _ranks(fmt: Format) -> dict[Fraction | float, int]:
    """Return the rank of each number in ascending order, 0 for zero."""
    numbers = sorted({value for value in fmt.values if value == value})
    zero = numbers.index(Fraction(0))
    return {number: place - zero for place, number in enumerate(numbers)}


def ldexp(value: Fraction | int, exponent: int) -> Fraction:
    """Return value * 2^exponent, exactly; several times as fast as the product of fractions."""
    if exponent < 0:
        return Fraction(value.numerator, value.denominator << -exponent)
    return Fraction(value.numerator << exponent, value.denominator)


def floor_log2(value: Fraction) -> int:
    """Return the largest e with 2^e <= value, for a positive value."""
    numerator, denominator = value.numerator, value.denominator
    e = numerator.bit_length() - denominator.bit_length()
    return e if numerator << max(-e, 0) >= denominator << max(e, 0) else e - 1


def significand_bits(value: Fraction) -> int:
    """Return the bits from the first to the last one of a dyadic fraction, both included; 1 for zero."""
    numerator = abs(value.numerator) or 1
    return (numerator // (numerator & -numerator)).bit_length()


def decimal_text(value: Fraction, digits: int = 9) -> str:
    """Return the decimal text of a number of any size, with ``digits`` significant digits."""
    if Fraction(1, 1 << 1074) <= abs(value) < Fraction(1 << 1023) or value == 0:
        return f"{float(value):.{digits}g}"
    with decimal.localcontext(prec=digits, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN):
        return f"{decimal.Decimal(value.numerator) / decimal.Decimal(value.denominator):e}"
