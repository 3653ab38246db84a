"""Multiplication."""

from amaranth.hdl import Module, Value

from halfulp.hdl.formats import RN, Format, Rounding
from halfulp.hdl.formats.source import Source
from halfulp.hdl.number import Number, multiply
from halfulp.hdl.pipeline import Pipeline
from halfulp.hdl.specs import Build, MulSpec

from .base import Arithmetic


class Mul(Arithmetic):
    """Product of two numbers, rounded once.

    Parameters
    ----------
    a, b : Format or str
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
    random : In(rounding.bits)
        Random word of stochastic rounding; sampled with the operands.
    en, valid : In(1, init=1)
        Clock enable and presence of operands, where the unit has them; see `Unit`.
    o : Out(o)

    Raises
    ------
    TypeError, ValueError
        If a parameter is of the wrong kind or out of range, or ``rounding`` is ``exact`` and ``o`` cannot hold every
        product.

    Latency
    -------
    ``build.pipeline`` cycles.
    """

    BOUNDARIES = ("unpacked", "product", "normalised", "packed")

    SPEC = MulSpec

    def __init__(
        self,
        *,
        a: Format | str,
        b: Format | str,
        o: Format | str,
        rounding: Rounding | str = RN,
        random: Source | str = "port",
        seed: int = 1,
        saturate: bool = False,
        build: Build = Build(),
    ) -> None:
        spec = MulSpec.of(a=a, b=b, o=o, rounding=rounding, random=random, seed=seed, saturate=saturate)
        super().__init__(spec, build=build, multiplies=True)

    def compute(
        self, m: Module, pipe: Pipeline, random: Value | None, *operands: Number
    ) -> tuple[Number, Value | None]:
        """Exact product."""
        a, b = operands
        a, b, random = pipe.stage("unpacked", a, b, random)
        return pipe.stage("product", multiply(m, a, b, dsp=self.build.dsp), random)
