"""Conversion of compound formats to other formats."""

from typing import Unpack

from amaranth.hdl import Module

from halfulp.hdl.eager import Sum
from halfulp.hdl.formats import Format
from halfulp.hdl.number import add, align, pack, truncate, unpack
from halfulp.hdl.specs import Build, JoinSpec

from .base import Options, Unit, numbered


class Join(Unit):
    """Sum of the parts of a compound number, from the smallest part up.

    Formula
    -------
    Two parts: ``o = round(a1 + a0)``; three parts: ``o = round(round(a2 + a1) + a0)``.

    Parameters
    ----------
    a : Compound or str
        Operand format.
    o : Format or str
        Result format.
    build : Build
        Register stages and structure; changes ``latency`` and no result bit.
    **options
        Rounding, random source and saturation; see `Options`.

    Members
    -------
    a0, a1, ... : In(a.part)
        Parts, the largest first; also as the list ``a``.
    random0, random1, ... : In(rounding.bits)
        Random word of each addition. Absent with an internal source.
    o : Out(o)

    Latency
    -------
    ``stages`` cycles.

    Source
    ------
    Henry, Tang and Heinecke, ARITH 2019.
    """

    SPEC = JoinSpec

    def __init__(self, *, a: Format | str, o: Format | str, build: Build = Build(), **options: Unpack[Options]) -> None:
        spec = JoinSpec.of(a=a, o=o, **options)
        part, bases = spec.a.part, (spec.a.part, spec.o)[: spec.a.parts - 1]
        super().__init__(
            spec,
            inputs=dict.fromkeys(numbered("a", spec.a.parts), part),
            outputs={"o": spec.o},
            build=build,
            sums=[Sum(((part,), (base,)), spec.o, spec.rounding) for base in bases],
        )
        self._add_vectors(a=numbered("a", spec.a.parts))

    def logic(self, m: Module) -> None:
        spec = self.spec
        words = [self.word(m, f"random{place}") for place in range(len(self.a) - 1)]
        parts = [unpack(m, port.as_value(), spec.a.part, f"a{place}") for place, port in enumerate(self.a)]
        total, *rest = reversed(parts)
        for place, (part, word) in enumerate(zip(rest, words, strict=True)):
            aligned = align(m, part, total, spec.o, spec.rounding)
            exact, word = add(m, aligned, spec.o, spec.rounding, word, self.stochastic)
            ready = truncate(m, exact, spec.o, spec.rounding)
            code = pack(m, ready, spec.o, spec.rounding, spec.saturate, word)
            total = unpack(m, code, spec.o, f"sum{place}")
        m.d.comb += self.o.as_value().eq(code)
