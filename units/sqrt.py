"""Square root."""

from typing import Unpack

from amaranth.hdl import Module, Value

from halfulp.hdl.divide import square_root
from halfulp.hdl.formats import Format
from halfulp.hdl.number import Number, as_raw
from halfulp.hdl.specs import Build, SqrtSpec

from .base import Arithmetic, Computed, Options


class Sqrt(Arithmetic):
    """Square root of a number, rounded once.

    Formula
    -------
    ``o = round(sqrt(a))``; the root of -0 is -0, that of another negative number is NaN.

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
    Operation and rounding: IEEE 754, 2019, 5.4.1. Recurrence: Ercegovac and Lang, Digital Arithmetic, 2004, chapter 6.
    """

    SPEC = SqrtSpec

    def __init__(
        self, *, a: Format | str, o: Format | str | None = None, build: Build = Build(), **options: Unpack[Options]
    ) -> None:
        super().__init__(SqrtSpec.of(a=a, o=o, **options), build=build)

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the root, with bits below the rounding position merged into sticky."""
        (a,) = operands
        return square_root(m, as_raw(m, a, "a"), self.spec.window), random
