"""Descriptions of the integral value and of the exponent of a number."""

from dataclasses import dataclass

from halfulp.hdl.formats.base import Format
from halfulp.hdl.formats.rounding import EXACT

from .unit import UnitSpec


@dataclass(frozen=True)
class _OfNumber(UnitSpec):
    """Base class of the descriptions of this module.

    Parameters
    ----------
    a : Format
        Format of the operand.
    o : Format
        Format of the result; default: ``a``.
    """

    FLAGS = True

    a: Format
    o: Format = None  # type: ignore[assignment]  # None asks for the default; after construction it is a format

    def check(self) -> None:
        if self.rounding == EXACT:
            raise ValueError(f"rounding exact is not possible for {self.form.unit}; choose a rounding mode")


@dataclass(frozen=True)
class RintSpec(_OfNumber, form="rint a[>o]", summary="a, rounded to an integer"):
    """Integral value of a number.

    The mode rounds the operand to an integer, and the integer to ``o`` if ``o`` does not hold it; stochastic rounding
    takes the same word for both. Fields are those of `_OfNumber`: ``a`` is the format of the operand, ``o`` that of the
    result. With flags, an integer that is not the operand is inexact (``roundToIntegralExact`` of IEEE 754).
    """

    @property
    def floors(self) -> bool:
        """True if the floor of the number is rounded, as in fixed point, and false for its magnitude."""
        return self.o.rounds == "floor"


@dataclass(frozen=True)
class LogbSpec(_OfNumber, form="logb a[>o]", summary="exponent of a"):
    """Floor of the binary logarithm of the magnitude of a number; ``a`` and ``o`` are its format and the result's.

    With flags, the exponent of a zero is a division by zero; in fixed point it is invalid, as those of infinity and NaN
    (IEEE 754-2019, 5.3.3).
    """
