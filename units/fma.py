"""Fused multiply-add."""

from typing import Unpack

from amaranth.hdl import Module, Value

from halfulp.hdl.eager import Sum
from halfulp.hdl.formats import Format
from halfulp.hdl.number import Number, add, align, multiply
from halfulp.hdl.specs import Build, FmaSpec

from .base import Arithmetic, Computed, Options, has_only_floats


class Fma(Arithmetic):
    """Fused multiply-add a * b + c, rounded once.

    Formula
    -------
    ``o = round(a * b + c)``

    Parameters
    ----------
    a, b, c : Format or str
        Operand formats; they may differ.
    o : Format or str, optional
        Result format; default: ``c``.
    build : Build
        Register stages and structure; changes ``latency`` and no result bit.
    **options
        Rounding, random source, saturation and flags; see `Options`.

    Members
    -------
    a : In(a)
    b : In(b)
    c : In(c)
    o : Out(o)
    flags : Out(5)
        Exception flags, from bit 0 on those of `halfulp.hdl.specs.unit.FLAGS`. Absent without ``flags``.

    Latency
    -------
    ``stages`` cycles.

    Source
    ------
    Operation and rounding: IEEE 754, 2019, 5.4.1.
    """

    SPEC = FmaSpec

    def __init__(
        self,
        *,
        a: Format | str,
        b: Format | str,
        c: Format | str,
        o: Format | str | None = None,
        build: Build = Build(),
        **options: Unpack[Options],
    ) -> None:
        spec = FmaSpec.of(a=a, b=b, c=c, o=o, **options)
        terms = ((spec.a, spec.b), (spec.c,))
        sums = [Sum(terms, spec.o, spec.rounding)]
        super().__init__(spec, build=build, multiplies=True, sums=sums, goals=has_only_floats(spec))

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the product plus c, exact above the rounding position, with lower bits merged into sticky."""
        a, b, c = operands
        # Register stages of one chain of rows would be the slowest ones, and a tree needs few LUTs more.
        in_tree = self.fast or self.build.has_stages
        product = multiply(m, a, b, dsp=self.build.dsp, to=self.operands["c"], fast=in_tree)
        aligned = align(m, product, c, self.result, self.rounding, fast=self.fast)
        return add(m, aligned, self.result, self.rounding, random, self.stochastic, fast=self.fast)
