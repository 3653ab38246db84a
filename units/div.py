"""Division."""

from typing import Unpack

from amaranth.hdl import Module, Value

from halfulp.hdl.divide import divide
from halfulp.hdl.formats import Format
from halfulp.hdl.number import Number, as_raw
from halfulp.hdl.specs import Build, DivSpec

from .base import Arithmetic, Computed, Options


class Div(Arithmetic):
    """Quotient of two numbers, rounded once.

    Formula
    -------
    ``o = round(a / b)``; ``x / 0`` is an infinity that neither rounding nor saturation makes finite, ``0 / 0`` and
    ``inf / inf`` are NaN.

    Parameters
    ----------
    a, b : Format or str
        Formats of dividend and divisor; they may differ.
    o : Format or str
        Result format.
    build : Build
        Register stages and structure; changes ``latency`` and no result bit.
    **options
        Rounding, random source and saturation; see `Options`.

    Members
    -------
    a : In(a)
    b : In(b)
    o : Out(o)

    Latency
    -------
    ``stages`` cycles.

    Source
    ------
    Operation and rounding: IEEE 754, 2019, 5.4.1. Recurrence: Ercegovac and Lang, Digital Arithmetic, 2004, chapter 5.
    """

    SPEC = DivSpec

    def __init__(
        self, *, a: Format | str, b: Format | str, o: Format | str, build: Build = Build(), **options: Unpack[Options]
    ) -> None:
        super().__init__(DivSpec.of(a=a, b=b, o=o, **options), build=build)

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the quotient, with bits below the rounding position merged into sticky."""
        x, y = (as_raw(m, number, name) for number, name in zip(operands, "ab", strict=True))
        return divide(m, x, y, self.spec.window), random
