"""Multiplication."""

from amaranth.hdl import Module, Value

from halfulp.hdl.multiply import has_goals
from halfulp.hdl.number import Number, multiply
from halfulp.hdl.specs import MulSpec

from .arithmetic import Arithmetic, Computed


class Mul(Arithmetic):
    """Product of two numbers, rounded once.

    Formula
    -------
    ``o = round(a * b)``

    Source
    ------
    Operation and rounding: IEEE 754, 2019, 5.4.1.
    """

    SPEC = MulSpec
    multiplies = True

    @property
    def goals(self) -> bool:
        return has_goals(self.spec.a, self.spec.b, self.result, dsp=self.build.dsp)

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the exact product."""
        a, b = operands
        return multiply(m, a, b, dsp=self.build.dsp, o=self.result, rounding=self.rounding, fast=self.fast), random
