"""Addition and subtraction."""

from amaranth.hdl import Module, Value

from halfulp.hdl.eager import Sum
from halfulp.hdl.number import Number, add, align, negate_if
from halfulp.hdl.specs import AddSpec

from .arithmetic import Arithmetic, Computed


class Add(Arithmetic):
    """Sum or difference of two numbers, rounded once.

    Formula
    -------
    ``o = round(a + b)``, and ``o = round(a - b)`` if ``subtract`` is set

    Members
    -------
    subtract : In(1)
        Compute a - b instead of a + b.

    Source
    ------
    Operation and rounding: IEEE 754, 2019, 5.4.1. Stochastic rounding: Ben Ali, Filip and Sentieys, DATE 2024.
    """

    SPEC = AddSpec

    @property
    def sums(self) -> list[Sum]:
        a, b = self.spec.operands.values()
        return [Sum(((a,), (b,)), self.result, self.spec.rounding)]

    @property
    def goals(self) -> bool:
        return self.has_only_floats

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the sum, exact above the rounding position, with lower bits merged into sticky."""
        a, b = operands
        b = negate_if(b, self.subtract)
        aligned = align(m, a, b, self.result, self.rounding, fast=self.fast)
        return add(m, aligned, self.result, self.rounding, random, self.stochastic, fast=self.fast)
