"""The quire: exact sums of products."""

from typing import Unpack

from amaranth.hdl import Module

from halfulp.hdl.formats import Format
from halfulp.hdl.number import multiply, negate_if, unpack
from halfulp.hdl.specs import Build, QuireSpec
from halfulp.hdl.specs.quire import CARRY_BITS

from .accumulating import Accumulating, Term
from .base import Options


class Quire(Accumulating):
    """Register that holds a sum of products exactly and rounds it when it is read.

    For posits of n bits it is the quire of the posit standard (2022, 3.4) with 16 n bits; for other formats it is a
    Kulisch accumulator.

    Formula
    -------
    ``acc = start + a * b``, and ``acc = start - a * b`` if ``subtract`` is set, without rounding; ``start`` is ``c`` if
    ``load`` is set, 0 if ``clear`` is set, and ``acc`` otherwise. ``o = round(acc)``.

    Parameters
    ----------
    a, b, o, carry, interleave
        Fields of `QuireSpec`; formats may be texts.
    build : Build
        Register stages and structure; changes ``latency`` and no result bit.
    **options
        Rounding, random source and saturation; see `Options`.

    Members
    -------
    a : In(a)
    b : In(b)
    subtract : In(1)
        Subtract the product instead of adding it.
    c, load, clear, o
        Start value, start of a sum, and result; see `Accumulating`.

    Latency
    -------
    ``stages + 1`` cycles from operands to result; one step per cycle.

    Source
    ------
    Kulisch, Computer Arithmetic and Validity, 2013; Posit Working Group, 2022, 3.4.
    """

    SPEC = QuireSpec

    def __init__(
        self,
        *,
        a: Format | str,
        b: Format | str,
        o: Format | str | None = None,
        carry: int = CARRY_BITS,
        interleave: int = 1,
        build: Build = Build(),
        **options: Unpack[Options],
    ) -> None:
        spec = QuireSpec.of(a=a, b=b, o=o, carry=carry, interleave=interleave, **options)
        operands = {"a": spec.a, "b": spec.b}
        super().__init__(spec, operands=operands, controls=("subtract",), build=build, multiplies=True)

    def term(self, m: Module) -> Term:
        """Return the product, negated if ``subtract`` is 1."""
        a = unpack(m, self.a.as_value(), self.spec.a, "a")
        b = unpack(m, self.b.as_value(), self.spec.b, "b")
        return negate_if(multiply(m, a, b, dsp=self.build.dsp), self.subtract), None
