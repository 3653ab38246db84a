"""Product of a number and a power of two."""

from amaranth.hdl import Module, Value

from halfulp.hdl.fixed import FixedRaw
from halfulp.hdl.integral import times_power
from halfulp.hdl.number import Number, as_raw
from halfulp.hdl.specs.scaleb import ScalebSpec

from .arithmetic import Arithmetic, Computed


class Scaleb(Arithmetic):
    """Product of a number and a power of two, rounded once.

    Formula
    -------
    ``o = round(a * 2^b)``; zeros, infinities and NaN stay what they are.

    Source
    ------
    IEEE 754, 2019, 5.3.3.
    """

    SPEC = ScalebSpec

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the number with a changed exponent."""
        a, b = operands
        assert isinstance(b, FixedRaw)
        return times_power(m, as_raw(m, a, "a"), b.integer, self.spec.exponent_bits), random
