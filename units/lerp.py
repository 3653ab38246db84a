"""Linear interpolation."""

from amaranth.hdl import Const, Module, Value

from halfulp.hdl.number import Number, add, align, exact_sum, multiply, negate_if
from halfulp.hdl.specs.arithmetic import LerpSpec

from .arithmetic import Arithmetic, Computed


class Lerp(Arithmetic):
    """Linear interpolation between a and b, rounded once.

    Formula
    -------
    ``o = round(a + t * (b - a))``. The difference is exact, so that finite results are ``a`` for ``t`` = 0 and ``b``
    for ``t`` = 1, apart from the sign of a zero.

    Members
    -------
    t : In(t)

    Source
    ------
    Operations and rounding: IEEE 754, 2019, 5.4.1.
    """

    SPEC = LerpSpec
    multiplies = True

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the sum of a and a product, exact above the rounding position, with lower bits merged into sticky."""
        a, b, t = operands
        difference = exact_sum(m, b, negate_if(a, Const(1, 1)), self.rounding)
        product = multiply(m, difference, t, dsp=self.build.dsp, to=self.spec.a)
        aligned = align(m, product, a, self.result, self.rounding)
        return add(m, aligned, self.result, self.rounding, random, self.stochastic)
