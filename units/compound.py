"""Conversions to and from compound formats."""

from dataclasses import replace
from typing import Any

from amaranth.hdl import Const, Module, Mux, Value

from halfulp.hdl import floating, raw
from halfulp.hdl.eager import Sum
from halfulp.hdl.number import add, align, pack, truncate, unpack
from halfulp.hdl.specs import JoinSpec, SplitSpec
from halfulp.hdl.wire import wire

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
        spec, part = self.spec, self.spec.o.part
        rest = floating.unpack(m, self.a.as_value(), spec.a, "a")
        word = self.word(m)
        # ``part.precision`` bits hold a remainder exactly. If the part saturates at its largest number, the remainder
        # is longer; ``far`` more bits suffice then, because later parts saturate too.
        far = spec.o.parts.bit_length() + 2 if spec.a.emax > part.emax else 0
        ended: Value = Const(0, 1)
        codes: list[Value] = []
        for place in range(spec.o.parts):
            last = place == spec.o.parts - 1
            mode = spec.rounding if last else spec.o.leading(spec.rounding)
            ready = truncate(m, rest, part, mode)
            code = wire(m, pack(m, ready, part, mode, self.saturate, word if last else None), f"code{place}")
            codes.append(Mux(ended, 0, code))
            if not last:
                taken = floating.unpack(m, code, part, f"part{place}")
                ended = wire(m, ended | rest.nan | rest.inf | taken.nan | taken.inf, f"ended{place}")
                aligned = raw.align(m, rest, replace(taken, sign=~taken.sign), part.precision + far)
                rest = raw.add(m, aligned, spec.rounding)
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
