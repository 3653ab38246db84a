"""Accumulation without a multiplier."""

from amaranth.hdl import Module

from halfulp.hdl.formats import RN, Format, Rounding, parse
from halfulp.hdl.formats.source import Source
from halfulp.hdl.number import Number, unpack
from halfulp.hdl.pipeline import Pipeline
from halfulp.hdl.specs import SumSpec
from halfulp.hdl.specs.quire import CARRY_BITS

from .accumulating import Accumulating, Travelling, accumulator_format


class Accumulate(Accumulating):
    """Accumulator that adds one number a step: acc <- round(acc + a).

    Parameters
    ----------
    a : Format or str
        Operand format.
    acc : Format or str
        Accumulator format; or ``exact``, a quire that holds the sum without rounding and is rounded when it is read.
    o : Format or str, optional
        Result format of an exact accumulator, and of its start values: that of ``a`` unless told otherwise.
    carry : int
        Carry guard of an exact accumulator, in bits: fewer than 2^carry terms cannot overflow it, and what overflows
        it is infinite.
    rounding : Rounding or str
        Rounding to the accumulator, or from an exact one to ``o``.
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
        Register stages before the accumulator, whose loop stays one cycle long, and behind an exact one; changes
        ``latency`` and no result bit.

    Members
    -------
    a : In(a)
    c : In(o)
        Start value.
    load : In(1)
        This step starts from ``c`` instead of the accumulator.
    clear : In(1)
        This step starts from +0; ``load`` goes first.
    random : In(rounding.bits)
        Random word of stochastic rounding; sampled with the operand.
    valid : In(1, init=1)
        Whether there is an operand in this cycle.
    en : In(1, init=1)
        Clock enable of all registers.
    o : Out(acc), or Out(o)
        The accumulator; +0 after reset. An exact one has no -0.

    Raises
    ------
    TypeError, ValueError
        If a parameter is of the wrong kind or out of range, or ``rounding`` is ``exact`` and the result format cannot
        hold every sum.

    Latency
    -------
    ``pipeline + 1`` cycles from the operand to the result; a step every cycle.
    """

    TERM_BOUNDARIES = ("unpacked",)
    spec: SumSpec

    def __init__(
        self,
        *,
        a: Format | str,
        acc: Format | str,
        o: Format | str | None = None,
        carry: int = CARRY_BITS,
        rounding: Rounding | str = RN,
        random: Source | str = "port",
        seed: int = 1,
        stochastic: str | None = None,
        saturate: bool = False,
        pipeline: int = 0,
    ) -> None:
        spec = SumSpec(
            a=parse(a),
            acc=accumulator_format(acc),
            rounding=Rounding.parse(rounding),
            o=None if o is None else parse(o),  # type: ignore[arg-type]
            carry=carry,
        )
        super().__init__(
            kind=f"accumulate_{spec.a}_{spec.acc_text}",
            spec=spec,
            operands={"a": spec.a},
            rounding=spec.rounding,
            saturate=saturate,
            pipeline=pipeline,
            random=random,
            seed=seed,
            stochastic=stochastic,
            parameters={
                "a": spec.a,
                "acc": spec.acc,
                **({"o": spec.o, "carry": spec.carry} if spec.quire else {}),
                "rounding": spec.rounding,
                "saturate": saturate,
            },
        )

    def term(self, m: Module, pipe: Pipeline, travelling: Travelling) -> tuple[Number, Travelling]:
        """The number itself."""
        number, *travelling = pipe.stage("unpacked", unpack(m, self.a.as_value(), self.spec.a, "a"), *travelling)
        return number, travelling
