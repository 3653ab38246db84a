"""Fused multiply-add."""

from amaranth.hdl import Module, Value

from halfulp.hdl.eager import Sum
from halfulp.hdl.number import Number, add, align, multiply
from halfulp.hdl.specs import FmaSpec

from .arithmetic import Arithmetic, Computed


class Fma(Arithmetic):
    """Fused multiply-add a * b + c, rounded once.

    Formula
    -------
    ``o = round(a * b + c)``

    Source
    ------
    Operation and rounding: IEEE 754, 2019, 5.4.1.
    """

    SPEC = FmaSpec
    multiplies = True

    @property
    def sums(self) -> list[Sum]:
        spec = self.spec
        return [Sum(((spec.a, spec.b), (spec.c,)), spec.o, spec.rounding)]

    @property
    def goals(self) -> bool:
        return self.has_only_floats

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the product plus c, exact above the rounding position, with lower bits merged into sticky."""
        a, b, c = operands
        # Register stages of one chain of rows would be the slowest ones, and a tree needs few LUTs more.
        in_tree = self.fast or self.build.has_stages
        product = multiply(m, a, b, dsp=self.build.dsp, to=self.spec.operands["c"], fast=in_tree)
        aligned = align(m, product, c, self.result, self.rounding, fast=self.fast)
        return add(m, aligned, self.result, self.rounding, random, self.stochastic, fast=self.fast)
