"""Stochastic rounding of fixed-point numbers in parallel lanes."""

from typing import Unpack

from amaranth.hdl import Module, Value, unsigned

from halfulp.hdl.fixed import goes_up, pack, truncate, unpack, wrapped
from halfulp.hdl.formats import Format
from halfulp.hdl.specs import Build, RounderSpec

from .base import Options, Unit, numbered


class StochasticRounder(Unit):
    """Stochastic rounding of wide fixed-point numbers to narrow ones, in parallel lanes (Chang et al., DATE 2023).

    Formula
    -------
    ``o = floor(a / u + r / 2**n) * u``; ``u`` is the last place of ``o``, and ``r`` a random word of ``n`` bits,
    aligned to the first discarded bits of ``a``.

    Parameters
    ----------
    a, o : Fixed or str
        Wide format, such as ``int16``, and narrow format, such as ``fxp8.0-wrap``.
    lanes : int
        Numbers per cycle, 1 to 4096.
    sharing : str
        ``own`` for one random source per lane, ``rotated`` for one source shared by all lanes; see `RounderSpec`.
    increment : bool
        If true, the unit adds the carry of the rounding decision. If false, ``o`` is the floor, in a format that
        wraps, and ``up`` is the carry for an external adder.
    build : Build
        Register stages and structure; changes ``latency`` and no result bit.
    **options
        Stochastic rounding (default: ``sr3``), random source and saturation; see `Options`.

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

    Latency
    -------
    ``stages`` cycles.

    Source
    ------
    Chang et al., DATE 2023.
    """

    SPEC = RounderSpec

    def __init__(
        self,
        *,
        a: Format | str,
        o: Format | str,
        lanes: int = 1,
        sharing: str = "own",
        increment: bool = True,
        build: Build = Build(),
        **options: Unpack[Options],
    ) -> None:
        spec = RounderSpec.of(a=a, o=o, lanes=lanes, sharing=sharing, increment=increment, **options)
        self.wide, self.narrow = spec.a, spec.o
        self.lanes, self.increment = spec.lanes, spec.increment
        super().__init__(
            spec,
            inputs=dict.fromkeys(numbered("a", lanes), spec.a),
            outputs=dict.fromkeys(numbered("o", lanes), spec.o)
            | dict.fromkeys(numbered("up", 0 if increment else lanes), unsigned(1)),
            build=build,
        )
        self._add_vectors(
            **{name: numbered(name, lanes) for name in "ao"}, up=numbered("up", 0 if increment else lanes)
        )

    def logic(self, m: Module) -> None:
        def lane(m: Module, a: Value, random: Value | None = None) -> dict[str, Value]:
            ready = truncate(m, unpack(m, a, self.wide, "a"), self.narrow)
            if self.increment:
                return {"o": pack(m, ready, self.narrow, self.rounding, self.saturate, random)}
            return {"o": wrapped(ready.floor, self.narrow), "up": goes_up(m, ready, self.rounding, random)}

        for index, a in enumerate(self.a):
            word = self.word(m, f"random{index}")
            operands = {"a": a.as_value()} | ({} if word is None else {"random": word})
            for port, result in self.part(m, f"lane{index}", "lane", lane, **operands).items():
                m.d.comb += Value.cast(getattr(self, f"{port}{index}")).eq(result)
