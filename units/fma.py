"""Fused multiply-add."""

from amaranth.hdl import Module, Value

from halfulp.hdl.formats import EXACT, RN, Format, Rounding, parse
from halfulp.hdl.formats.source import Source
from halfulp.hdl.number import Number, add, align, multiply
from halfulp.hdl.pipeline import Pipeline
from halfulp.hdl.specs import ValueRange

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
        Where the words of stochastic rounding come from: ``port``, or a source of the unit's own, such as ``lfsr16`` or
        ``plateau3``, which adds the ports ``en`` and ``valid``.
    seed : int
        State of that source after reset.
    stochastic : str, optional
        Structure of stochastic rounding: ``lazy`` adds the random word to the normalised sum; ``eager`` adds it
        before, on a shorter path. By default the one of fewer lookup tables, mostly lazy. Changes no result bit.
    saturate : bool
        Overflow gives the largest finite number; an infinite operand stays infinite.
    pipeline : int
        Register stages; changes ``latency`` and no result bit.
    dsp : bool
        Leave products to the DSP blocks of the device, where factors are long enough for them, rather than make them of
        lookup tables. Changes no result bit.

    Members
    -------
    a : In(a)
    b : In(b)
    c : In(c)
    random : In(rounding.bits)
        Random word of stochastic rounding; sampled with the operands.
    en : In(1, init=1)
        Clock enable, with ``pipeline`` or a source of random words only.
    valid : In(1, init=1)
        Whether there are operands in this cycle, with a source of random words only.
    o : Out(o)

    Raises
    ------
    TypeError, ValueError
        If a parameter is of the wrong kind or out of range, or ``rounding`` is ``exact`` and ``o`` cannot hold every
        result.

    Latency
    -------
    ``pipeline`` cycles.
    """

    BOUNDARIES = ("unpacked", "product", "aligned", "sum", "normalised", "packed")

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
        stochastic: str | None = None,
        saturate: bool = False,
        pipeline: int = 0,
        dsp: bool = False,
    ) -> None:
        operands = {"a": parse(a), "b": parse(b), "c": parse(c)}
        result, rounding = parse(o), Rounding.parse(rounding)
        if rounding == EXACT:
            span = ValueRange.of(operands["a"]) * ValueRange.of(operands["b"]) + ValueRange.of(operands["c"])
            span.check_fits(result, f"{a} * {b} + {c}")
        super().__init__(
            kind="fma",
            operands=operands,
            o=result,
            rounding=rounding,
            saturate=saturate,
            pipeline=pipeline,
            dsp=dsp,
            random=random,
            seed=seed,
            stochastic=stochastic,
        )

    def compute(
        self, m: Module, pipe: Pipeline, random: Value | None, *operands: Number
    ) -> tuple[Number, Value | None]:
        """Exact product, and the sum, exact down to the places that rounding looks at."""
        a, b, c = operands
        a, b, c, random = pipe.stage("unpacked", a, b, c, random)
        product, c, random = pipe.stage("product", multiply(m, a, b, dsp=self.dsp, to=self.operands["c"]), c, random)
        aligned, random = pipe.stage("aligned", align(m, product, c, self.result, self.rounding), random)
        return pipe.stage("sum", *add(m, aligned, self.result, self.rounding, random, self.stochastic))
