"""Addition and subtraction."""

from typing import Unpack

from amaranth.hdl import Module, Value

from halfulp.hdl.eager import Sum
from halfulp.hdl.formats import Format
from halfulp.hdl.number import Number, add, align, negate_if
from halfulp.hdl.specs import AddSpec, Build

from .base import Arithmetic, Computed, Options, has_only_floats


class Add(Arithmetic):
    """Sum or difference of two numbers, rounded once.

    Formula
    -------
    ``o = round(a + b)``, and ``o = round(a - b)`` if ``subtract`` is set

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
    subtract : In(1)
        Compute a - b instead of a + b.
    o : Out(o)
    flags : Out(5)
        Exception flags, from bit 0 on those of `halfulp.hdl.specs.unit.FLAGS`. Absent without ``flags``.

    Latency
    -------
    ``stages`` cycles.

    Source
    ------
    Operation and rounding: IEEE 754, 2019, 5.4.1. Stochastic rounding: Ben Ali, Filip and Sentieys, DATE 2024.
    """

    SPEC = AddSpec

    def __init__(
        self,
        *,
        a: Format | str,
        b: Format | str,
        o: Format | str | None = None,
        build: Build = Build(),
        **options: Unpack[Options],
    ) -> None:
        spec = AddSpec.of(a=a, b=b, o=o, **options)
        terms = tuple((fmt,) for fmt in spec.operands.values())
        sums = [Sum(terms, spec.o, spec.rounding)]
        super().__init__(spec, controls=("subtract",), build=build, sums=sums, goals=has_only_floats(spec))

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the sum, exact above the rounding position, with lower bits merged into sticky."""
        a, b = operands
        b = negate_if(b, self.subtract)
        aligned = align(m, a, b, self.result, self.rounding, fast=self.fast)
        return add(m, aligned, self.result, self.rounding, random, self.stochastic, fast=self.fast)
