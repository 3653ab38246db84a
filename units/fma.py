"""Fused multiply-add."""

from amaranth.hdl import Module, Value

from halfulp.hdl.eager import Sum
from halfulp.hdl.formats import RN, Format, Rounding
from halfulp.hdl.formats.source import Source
from halfulp.hdl.number import Number, add, align, multiply
from halfulp.hdl.pipeline import Pipeline
from halfulp.hdl.specs import Build, FmaSpec

from .base import Arithmetic


class Fma(Arithmetic):
    """a * b + c with a single rounding.

    Parameters
    ----------
    a, b, c : Format or str
        Operand formats; they may differ.
    o : Format or str
        Result format.
    rounding : Rounding or str
        ``sr`` modes add the port ``random``.
    random : Lfsr, Plateau or str
    seed : int
        Source of random words and its state after reset; see `Unit`.
    saturate : bool
        Overflow gives the largest finite number; an infinite operand stays infinite.
    build : Build
        Register stages and structure; changes ``latency`` and no result bit.

    Members
    -------
    a : In(a)
    b : In(b)
    c : In(c)
    random : In(rounding.bits)
        Random word of stochastic rounding; sampled with the operands.
    en, valid : In(1, init=1)
        Clock enable and presence of operands, where the unit has them; see `Unit`.
    o : Out(o)

    Raises
    ------
    TypeError, ValueError
        If a parameter is of the wrong kind or out of range, or ``rounding`` is ``exact`` and ``o`` cannot hold every
        result.

    Latency
    -------
    ``build.pipeline`` cycles.
    """

    BOUNDARIES = ("unpacked", "product", "aligned", "sum", "normalised", "packed")

    SPEC = FmaSpec

    def __init__(
        self,
        *,
        a: Format | str,
        b: Format | str,
        c: Format | str,
        o: Format | str,
        rounding: Rounding | str = RN,
        random: Source | str = "port",
        seed: int = 1,
        saturate: bool = False,
        build: Build = Build(),
    ) -> None:
        spec = FmaSpec.of(a=a, b=b, c=c, o=o, rounding=rounding, random=random, seed=seed, saturate=saturate)
        terms = ((spec.a, spec.b), (spec.c,))
        super().__init__(spec, build=build, multiplies=True, sums=[Sum(terms, spec.o, spec.rounding)])

    def compute(
        self, m: Module, pipe: Pipeline, random: Value | None, *operands: Number
    ) -> tuple[Number, Value | None]:
        """Exact product, and the sum, exact down to the places that rounding looks at."""
        a, b, c = operands
        a, b, c, random = pipe.stage("unpacked", a, b, c, random)
        product, c, random = pipe.stage(
            "product", multiply(m, a, b, dsp=self.build.dsp, to=self.operands["c"]), c, random
        )
        aligned, random = pipe.stage("aligned", align(m, product, c, self.result, self.rounding), random)
        return pipe.stage("sum", *add(m, aligned, self.result, self.rounding, random, self.stochastic))
