"""Conversions to and from compound formats."""

from typing import Any

from amaranth.hdl import Module

from halfulp.hdl import floating, unevaluated
from halfulp.hdl.eager import Sum
from halfulp.hdl.number import add, align, pack, truncate, unpack
from halfulp.hdl.specs import JoinSpec, SplitSpec

from .described import Described, vector


class Split(Described):
    """Conversion of a float to the parts of a compound format.

    Formula
    -------
    ``o0 = round(a)``, ``o1 = round(a - o0)``, ``o2 = round(a - o0 - o1)``; the parts after an infinity or NaN are +0.

    Members
    -------
    o0, o1, ... : Out(o.part)
        Parts, the largest first; also as the list ``o``.

    Source
    ------
    Henry, Tang and Heinecke, ARITH 2019.
    """

    SPEC = SplitSpec

    @property
    def results(self) -> dict[str, Any]:
        return {"o": vector("o", self.spec.o.parts, self.spec.o.part)}

    def logic(self, m: Module) -> None:
        number = floating.unpack(m, self.a.as_value(), self.spec.a, "a")
        codes = unevaluated.parts(m, number, self.spec.o, self.spec.rounding, self.saturate, self.word(m))
        for port, code in zip(self.o, codes, strict=True):
            m.d.comb += port.as_value().eq(code)


class Join(Described):
    """Sum of the parts of a compound number, from the smallest part up.

    Formula
    -------
    Two parts: ``o = round(a1 + a0)``; three parts: ``o = round(round(a2 + a1) + a0)``.

    Members
    -------
    a0, a1, ... : In(a.part)
        Parts, the largest first; also as the list ``a``.
    random0, random1, ... : In(rounding.bits)
        Random word of each addition. Absent with an internal source.
    o : Out(o)

    Source
    ------
    Henry, Tang and Heinecke, ARITH 2019.
    """

    SPEC = JoinSpec

    @property
    def sums(self) -> list[Sum]:
        spec = self.spec
        part, bases = spec.a.part, (spec.a.part, spec.o)[: spec.a.parts - 1]
        return [Sum(((part,), (base,)), spec.o, spec.rounding) for base in bases]

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
