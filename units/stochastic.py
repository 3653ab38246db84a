"""Stochastic rounding of fixed point, in many lanes."""

from typing import Any

from amaranth.hdl import Module, Value, unsigned

from halfulp.hdl.fixed import goes_up, pack, truncate, unpack, wrapped
from halfulp.hdl.formats import Format, Rounding
from halfulp.hdl.formats.source import Source
from halfulp.hdl.specs import Build, RounderSpec

from .base import Unit


class StochasticRounder(Unit):
    """Wide fixed-point numbers cropped to narrow ones, each up or down at random (Chang et al., DATE 2023).

    Parameters
    ----------
    a : Fixed or str
        Format of the wide numbers, such as ``int16``.
    o : Fixed or str
        Format of the narrow ones, such as ``fxp8.0``; it saturates or wraps as it says.
    rounding : Rounding or str
        A stochastic one, such as ``sr3``.
    lanes : int
        Numbers at once, 1 to 4096.
    random : Lfsr, Plateau or str
        Where the words come from: ``port``, or a source of the unit's own, such as ``lfsr16`` or ``plateau3``, which
        adds the ports ``en`` and ``valid``.
    sharing : str
        ``own``: each lane has a source. ``rotated``: all lanes share one; lane i has its words rotated by i places, and
        those of a plateau source complemented in every second turn, which changes no frequency of any word.
    seed : int
        State of the source of the first lane after reset.
    saturate : bool
        A wrapping format saturates too.
    increment : bool
        Whether the unit adds the carry of the rounding decision. Without, ``o`` is the floor and ``up`` the carry for
        an adder of the user's own: the sum of both is what the unit gives otherwise. ``o`` has to be a format that
        wraps, and there is no ``saturate``.
    build : Build
        Register stages and structure; changes ``latency`` and no result bit.

    Members
    -------
    a0, a1, ... : In(a)
        Also as the list ``a``.
    random0, random1, ... : In(rounding.bits)
        Random words, where they come from ports.
    en, valid : In(1, init=1)
        Clock enable and presence of operands, where the unit has them; see `Unit`.
    o0, o1, ... : Out(o)
        Also as the list ``o``.
    up0, up1, ... : Out(1)
        Where the unit has no increment; also as the list ``up``.

    Raises
    ------
    TypeError, ValueError
        If a parameter is of the wrong kind or out of range.

    Latency
    -------
    ``build.pipeline`` cycles.
    """

    BOUNDARIES = ("cut", "packed")

    SPEC = RounderSpec

    def __init__(
        self,
        *,
        a: Format | str,
        o: Format | str,
        rounding: Rounding | str = "sr3",
        lanes: int = 1,
        random: Source | str = "port",
        sharing: str = "own",
        seed: int = 1,
        saturate: bool = False,
        increment: bool = True,
        build: Build = Build(),
    ) -> None:
        spec = RounderSpec.of(
            a=a,
            o=o,
            rounding=rounding,
            lanes=lanes,
            random=random,
            sharing=sharing,
            seed=seed,
            saturate=saturate,
            increment=increment,
        )
        self.wide, self.narrow = spec.a, spec.o
        self.lanes, self.increment = spec.lanes, spec.increment
        super().__init__(
            spec,
            inputs={f"a{lane}": spec.a for lane in range(lanes)},
            outputs={f"o{lane}": spec.o for lane in range(lanes)}
            | {f"up{lane}": unsigned(1) for lane in range(0 if increment else lanes)},
            build=build,
        )

    @property
    def arguments(self) -> list[str | list[str]]:
        """Operands as the golden function takes them: one vector."""
        return [[f"a{lane}" for lane in range(self.lanes)]]

    @property
    def a(self) -> list[Any]:
        """The wide numbers."""
        return [getattr(self, f"a{lane}") for lane in range(self.lanes)]

    @property
    def o(self) -> list[Any]:
        """The narrow numbers."""
        return [getattr(self, f"o{lane}") for lane in range(self.lanes)]

    @property
    def up(self) -> list[Any]:
        """The carries, of a unit without increment."""
        return [getattr(self, f"up{lane}") for lane in range(0 if self.increment else self.lanes)]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipe = self.start_pipeline(m)
        words = [self.word(m, f"random{lane}") for lane in range(self.lanes)]
        numbers = [unpack(m, port.as_value(), self.wide, f"a{lane}") for lane, port in enumerate(self.a)]
        ready = [truncate(m, number, self.narrow) for number in numbers]
        # One value alone would come back bare.
        _, *held = pipe.stage("cut", None, *ready, *words)
        lanes = list(zip(held[: self.lanes], held[self.lanes :], strict=True))
        if self.increment:
            results = [pack(m, number, self.narrow, self.rounding, self.saturate, word) for number, word in lanes]
        else:
            results = [wrapped(number.floor, self.narrow) for number, _ in lanes]
            results += [goes_up(m, number, self.rounding, word) for number, word in lanes]
        _, *packed = pipe.stage("packed", None, *results)
        for port, result in zip([*self.o, *self.up], packed, strict=True):
            m.d.comb += Value.cast(port).eq(result)
        return m
