"""Conversion between formats."""

from amaranth.hdl import Module, Value

from halfulp.hdl.formats import RN, Format, Rounding
from halfulp.hdl.formats.source import Source
from halfulp.hdl.number import Number
from halfulp.hdl.pipeline import Pipeline
from halfulp.hdl.specs import Build, ConvertSpec

from .base import Arithmetic


class Convert(Arithmetic):
    """The same number in another format, rounded once.

    Parameters
    ----------
    a : Format or str
        Operand format.
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
    random : In(rounding.bits)
        Random word of stochastic rounding; sampled with the operand.
    en, valid : In(1, init=1)
        Clock enable and presence of operands, where the unit has them; see `Unit`.
    o : Out(o)

    Raises
    ------
    TypeError, ValueError
        If a parameter is of the wrong kind or out of range, or ``rounding`` is ``exact`` and ``o`` cannot hold every
        number of ``a``.

    Latency
    -------
    ``build.pipeline`` cycles.
    """

    BOUNDARIES = ("unpacked", "normalised", "packed")

    SPEC = ConvertSpec

    def __init__(
        self,
        *,
        a: Format | str,
        o: Format | str,
        rounding: Rounding | str = RN,
        random: Source | str = "port",
        seed: int = 1,
        saturate: bool = False,
        build: Build = Build(),
    ) -> None:
        spec = ConvertSpec.of(a=a, o=o, rounding=rounding, random=random, seed=seed, saturate=saturate)
        super().__init__(spec, build=build)

    def compute(
        self, m: Module, pipe: Pipeline, random: Value | None, *operands: Number
    ) -> tuple[Number, Value | None]:
        """The number itself."""
        (a,) = operands
        return pipe.stage("unpacked", a, random)
