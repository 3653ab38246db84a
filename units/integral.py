"""Integral value and exponent of a number."""

from dataclasses import replace

from amaranth.hdl import Module, Value

from halfulp.hdl.integral import exponent_of, rounded_to_integer
from halfulp.hdl.number import Number, as_raw
from halfulp.hdl.raw import OperationFlags
from halfulp.hdl.specs.integral import LogbSpec, RintSpec

from .arithmetic import Arithmetic, Computed


class Rint(Arithmetic):
    """Number rounded to an integral value, of the same format or another.

    Formula
    -------
    ``o = round(integer)``, where ``integer`` is ``a`` rounded to an integer by the same mode; a zero keeps the sign of
    ``a``.

    Source
    ------
    IEEE 754, 2019, 5.3.1 and 5.9.
    """

    SPEC = RintSpec

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the integer."""
        (a,) = operands
        return rounded_to_integer(m, as_raw(m, a, "a"), self.rounding, random, floors=self.spec.floors), random


class Logb(Arithmetic):
    """Exponent of a number, as of its first bit: also that of a subnormal number.

    Formula
    -------
    ``o = round(floor(log2(abs(a))))``; minus infinity for a zero, infinity for an infinity.

    Source
    ------
    IEEE 754, 2019, 5.3.3.
    """

    SPEC = LogbSpec

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the exponent."""
        (a,) = operands
        x = as_raw(m, a, "a")
        exponent: Number = exponent_of(m, x)
        if self.spec.flags and self.spec.o.is_floating_point:
            # In fixed point the exponents of zero, infinity and NaN are invalid, because it does not hold them.
            flags = OperationFlags(invalid=x.flags.invalid, by_zero=x.zero & ~x.nan)
            exponent = replace(as_raw(m, exponent, "logarithm"), flags=flags)
        return exponent, random
