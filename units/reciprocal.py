"""Reciprocal."""

from typing import Unpack

from amaranth.hdl import Module, Value

from halfulp.hdl.divide import ONE, divide
from halfulp.hdl.formats import Format
from halfulp.hdl.number import Number, as_raw
from halfulp.hdl.specs import Build, ReciprocalSpec

from .base import Arithmetic, Computed, Options


class Reciprocal(Arithmetic):
    """Reciprocal of a number, rounded once.

    Formula
    -------
    ``o = round(1 / a)``; the reciprocal of zero is an infinity of its sign.

    Parameters
    ----------
    a : Format or str
        Operand format.
    o : Format or str, optional
        Result format; default: ``a``.
    build : Build
        Register stages and structure; changes ``latency`` and no result bit.
    **options
        Rounding, random source and saturation; see `Options`.

    Members
    -------
    a : In(a)
    o : Out(o)

    Latency
    -------
    ``stages`` cycles.

    Source
    ------
    Recurrence: Ercegovac and Lang, Digital Arithmetic, 2004, chapter 5.
    """

    SPEC = ReciprocalSpec

    def __init__(
        self, *, a: Format | str, o: Format | str | None = None, build: Build = Build(), **options: Unpack[Options]
    ) -> None:
        super().__init__(ReciprocalSpec.of(a=a, o=o, **options), build=build)

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the reciprocal, with bits below the rounding position merged into sticky."""
        (a,) = operands
        return divide(m, ONE, as_raw(m, a, "a"), self.spec.window), random
