"""Accumulation without multiplier."""

from typing import Unpack

from amaranth.hdl import Module

from halfulp.hdl.formats import Format
from halfulp.hdl.specs import Build, SumSpec
from halfulp.hdl.specs.quire import CARRY_BITS

from .accumulating import Accumulating, Term
from .base import Options


class Accumulate(Accumulating):
    """Accumulator with one number per step: acc <- round(acc + a).

    Formula
    -------
    ``acc = round(start + a)``; ``start`` is ``c`` if ``load`` is set, +0 if ``clear`` is set, and ``acc`` otherwise.
    ``o = acc``; if the accumulator is exact, ``o = round(acc)``.

    Parameters
    ----------
    a, acc, o, carry, interleave
        Fields of `SumSpec`; formats and roundings may be texts.
    build : Build
        Register stages and structure; changes ``latency`` and no result bit.
    **options
        Rounding, random source, saturation and flags; see `Options`.

    Members
    -------
    a : In(a)
    c, load, clear, o, flags
        Start value, start of a sum, and results; see `Accumulating`.

    Latency
    -------
    ``stages + 1`` cycles from operand to result; one step per cycle.

    Source
    ------
    Exact accumulator: Kulisch, Computer Arithmetic and Validity, 2013.
    """

    SPEC = SumSpec

    def __init__(
        self,
        *,
        a: Format | str,
        acc: Format | str,
        o: Format | str | None = None,
        carry: int = CARRY_BITS,
        interleave: int = 1,
        build: Build = Build(),
        **options: Unpack[Options],
    ) -> None:
        spec = SumSpec.of(a=a, acc=acc, o=o, carry=carry, interleave=interleave, **options)
        super().__init__(spec, operands={"a": spec.a}, build=build)

    def term(self, m: Module) -> Term:
        """Return the operand."""
        return self.unpacked(m, "a"), None
