"""Accumulation without a multiplier."""

from amaranth.hdl import Module

from halfulp.hdl.formats import RN, Format, Rounding
from halfulp.hdl.formats.source import Source
from halfulp.hdl.number import Number, unpack
from halfulp.hdl.pipeline import Pipeline
from halfulp.hdl.specs import Build, SumSpec
from halfulp.hdl.specs.quire import CARRY_BITS

from .accumulating import Accumulating, Travelling


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
    seed : int
        Source of random words and its state after reset; see `Unit`.
    saturate : bool
        Overflow gives the largest finite number; an infinite operand stays infinite.
    build : Build
        Register stages and structure; changes ``latency`` and no result bit.

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
    ``build.pipeline + 1`` cycles from the operand to the result; a step every cycle.
    """

    TERM_BOUNDARIES = ("unpacked",)
    spec: SumSpec

    SPEC = SumSpec

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
        saturate: bool = False,
        build: Build = Build(),
    ) -> None:
        spec = SumSpec.of(
            a=a, acc=acc, o=o, carry=carry, rounding=rounding, random=random, seed=seed, saturate=saturate
        )
        super().__init__(spec, operands={"a": spec.a}, build=build)

    def term(self, m: Module, pipe: Pipeline, travelling: Travelling) -> tuple[Number, Travelling]:
        """The number itself."""
        number, *travelling = pipe.stage("unpacked", unpack(m, self.a.as_value(), self.spec.a, "a"), *travelling)
        return number, travelling
