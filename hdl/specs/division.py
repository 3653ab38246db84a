"""Descriptions of units whose exact results have endless digits: quotients and roots."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction

from halfulp.hdl.formats.base import Format, floor_log2
from halfulp.hdl.formats.fixed import MAX_WIDTH
from halfulp.hdl.formats.rounding import EXACT

from .arithmetic import BinarySpec
from .ranges import window_of
from .unit import UnitSpec


@dataclass(frozen=True)
class EndlessSpec(UnitSpec):
    """Base class of units whose exact results have endless digits; the rounding ``exact`` is an error."""

    FLAGS = True

    def check(self) -> None:
        if self.rounding == EXACT:
            raise ValueError(
                f"rounding exact is not possible for {self.form.unit}: its results have endless digits; "
                "choose a rounding mode"
            )

    @property
    @abstractmethod
    def bound(self) -> Fraction:
        """Upper bound on the magnitude of finite results."""

    @property
    def window(self) -> int:
        """Number of leading bits of an exact result that its rounding needs; lower bits only count as zero or not."""
        return max(window_of(self.result, self.unit_rounding, self.bound), 1)

    @property
    def digits(self) -> int:
        """Number of bits that a recurrence computes: the window, and a leading zero that most quotients may have."""
        return self.window + 1


@dataclass(frozen=True)
class DivSpec(EndlessSpec, BinarySpec, form="div a/b[=o]", summary="a / b"):
    """Quotient of two numbers; fields as in `BinarySpec`."""

    @property
    def bound(self) -> Fraction:
        """Largest magnitude divided by the smallest divisor."""
        return max(-self.a.lowest, self.a.largest) / self.b.smallest


@dataclass(frozen=True)
class UnarySpec(EndlessSpec):
    """Base class of functions of one number.

    Parameters
    ----------
    a : Format
        Format of the operand.
    o : Format
        Format of the result; default: ``a``.
    """

    a: Format
    o: Format = None  # type: ignore[assignment]  # None asks for the default; after construction it is a format


@dataclass(frozen=True)
class ReciprocalSpec(UnarySpec, form="reciprocal a[>o]", summary="1 / a"):
    """Reciprocal of a number; fields as in `UnarySpec`."""

    @property
    def bound(self) -> Fraction:
        """Reciprocal of the smallest number."""
        return 1 / self.a.smallest


@dataclass(frozen=True)
class SqrtSpec(UnarySpec, form="sqrt a[>o]", summary="square root of a"):
    """Square root of a number; fields as in `UnarySpec`."""

    @property
    def bound(self) -> Fraction:
        """A number that is hardly more than the square root of the largest number."""
        return Fraction(math.isqrt(math.floor(self.a.largest * 4**MAX_WIDTH)) + 1, 2**MAX_WIDTH)

    @property
    def digits(self) -> int:
        """Number of bits that a recurrence computes; roots have no leading zero."""
        return self.window


@dataclass(frozen=True)
class RsqrtSpec(UnarySpec, form="rsqrt a[>o]", summary="1 / square root of a"):
    """Reciprocal of the square root of a number; fields as in `UnarySpec`."""

    @property
    def bound(self) -> Fraction:
        """A power of two that is not less than the result for the smallest number."""
        return Fraction(2) ** -(floor_log2(self.a.smallest) // 2)
