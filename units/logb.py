"""Exponent."""

from dataclasses import replace

from amaranth.hdl import Module, Value

from halfulp.hdl.formats import Float
from halfulp.hdl.integral import exponent_of
from halfulp.hdl.number import Number, as_raw
from halfulp.hdl.specs.integral import LogbSpec

from .base import Computed, Unary


class LogB(Unary):
    """Exponent of a number, as of its first bit: also that of a subnormal number.

    Formula
    -------
    ``o = round(floor(log2(abs(a))))``; minus infinity for a zero, infinity for an infinity.

    Parameters
    ----------
    a : Format or str
        Operand format.
    o : Format or str, optional
        Result format; default: ``a``.
    build : Build
        Register stages and structure; changes ``latency`` and no result bit.
    **options
        Rounding, random source, saturation and flags; see `Options`.

    Members
    -------
    a : In(a)
    o : Out(o)
    flags : Out(5)
        Exception flags, from bit 0 on those of `halfulp.hdl.specs.unit.FLAGS`. Absent without ``flags``.

    Latency
    -------
    ``stages`` cycles.

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
        if self.spec.flags and isinstance(self.spec.o, Float):
            # In fixed point the exponents of zero, infinity and NaN are invalid, because it does not hold them.
            exponent = replace(as_raw(m, exponent, "logarithm"), invalid=x.invalid, by_zero=x.zero & ~x.nan)
        return exponent, random
