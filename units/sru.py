"""Stochastic rounding of fixed-point numbers in parallel lanes."""

from typing import Any

from amaranth.hdl import Module, Value, unsigned

from halfulp.hdl.fixed import goes_up, pack, truncate, unpack, wrapped
from halfulp.hdl.specs import SruSpec

from .described import Described, vector


class Sru(Described):
    """Stochastic rounding of wide fixed-point numbers to narrow ones, in parallel lanes (Chang et al., DATE 2023).

    Formula
    -------
    ``o = floor(a / u + r / 2**n) * u``; ``u`` is the last place of ``o``, and ``r`` a random word of ``n`` bits,
    aligned to the first discarded bits of ``a``.

    Members
    -------
    a0, a1, ... : In(a)
        Also as the list ``a``.
    random0, random1, ... : In(rounding.bits)
        Random words. Absent with an internal source.
    o0, o1, ... : Out(o)
        Also as the list ``o``.
    up0, up1, ... : Out(1)
        Rounding carries, also as the list ``up``. Absent if ``increment`` is true.

    Source
    ------
    Chang et al., DATE 2023.
    """

    SPEC = SruSpec

    @property
    def results(self) -> dict[str, Any]:
        spec = self.spec
        carries = 0 if spec.increment else spec.lanes
        return {"o": vector("o", spec.lanes, spec.o), "up": vector("up", carries, unsigned(1))}

    def logic(self, m: Module) -> None:
        def lane(m: Module, a: Value, random: Value | None = None) -> dict[str, Value]:
            ready = truncate(m, unpack(m, a, self.spec.a, "a"), self.spec.o)
            if self.spec.increment:
                return {"o": pack(m, ready, self.spec.o, self.rounding, self.saturate, random)}
            return {"o": wrapped(ready.floor, self.spec.o), "up": goes_up(m, ready, self.rounding, random)}

        for index, a in enumerate(self.a):
            word = self.word(m, f"random{index}")
            operands = {"a": a.as_value()} | ({} if word is None else {"random": word})
            for port, result in self.part(m, f"lane{index}", "lane", lane, **operands).items():
                m.d.comb += Value.cast(getattr(self, f"{port}{index}")).eq(result)
