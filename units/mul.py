"""Multiplication."""

from typing import Unpack

from amaranth.hdl import Module, Value

from halfulp.hdl.formats import Format
from halfulp.hdl.multiply import has_goals
from halfulp.hdl.number import Number, multiply
from halfulp.hdl.specs import Build, MulSpec

from .base import Arithmetic, Computed, Options


class Mul(Arithmetic):
    """Product of two numbers, rounded once.

    Formula
    -------
    ``o = round(a * b)``

    Parameters
    ----------
    a, b : Format or str
        Operand formats; they may differ.
    o : Format or str, optional
        Result format; default: ``a``.
    build : Build
        Register stages and structure; changes ``latency`` and no result bit.
    **options
        Rounding, random source, saturation and flags; see `Options`.

    Members
    -------
    a : In(a)
    b : In(b)
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

    SPEC = MulSpec

    def __init__(
        self,
        *,
        a: Format | str,
        b: Format | str,
        o: Format | str | None = None,
        build: Build = Build(),
        **options: Unpack[Options],
    ) -> None:
        spec = MulSpec.of(a=a, b=b, o=o, **options)
        # The base class checks the type of the build.
        uses_dsp = isinstance(build, Build) and build.dsp
        goals = has_goals(spec.a, spec.b, spec.o, dsp=uses_dsp)
        super().__init__(spec, build=build, multiplies=True, goals=goals)

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the exact product."""
        a, b = operands
        return multiply(m, a, b, dsp=self.build.dsp, o=self.result, rounding=self.rounding, fast=self.fast), random
