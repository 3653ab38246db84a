"""Division."""

from typing import Unpack

from amaranth.hdl import Module

from halfulp.hdl.divide import divide
from halfulp.hdl.formats import Format
from halfulp.hdl.raw import Raw
from halfulp.hdl.rows import Rows
from halfulp.hdl.specs import Build, DivSpec

from .base import Options
from .endless import Endless


class Div(Endless):
    """Quotient of two numbers, rounded once.

    Formula
    -------
    ``o = round(a / b)``; ``x / 0`` is an infinity that neither rounding nor saturation makes finite, ``0 / 0`` and
    ``inf / inf`` are NaN.

    Parameters
    ----------
    a, b : Format or str
        Formats of dividend and divisor; they may differ.
    o : Format or str, optional
        Result format; default: ``a``.
    build : Build
        Register stages or iterations; changes ``latency`` and no result bit.
    **options
        Rounding, random source, saturation and flags; see `Options`.

    Members
    -------
    a : In(a)
    b : In(b)
    o : Out(o)
    flags : Out(5)
        Exception flags, from bit 0 on those of `halfulp.hdl.specs.unit.FLAGS`. Absent without ``flags``.

    Latency
    -------
    ``stages`` cycles; with ``build.iterations``, one cycle and those of the iterations.

    Source
    ------
    Operation and rounding: IEEE 754, 2019, 5.4.1. Recurrence: Ercegovac and Lang, Digital Arithmetic, 2004, chapter 5.
    """

    SPEC = DivSpec

    def __init__(
        self,
        *,
        a: Format | str,
        b: Format | str,
        o: Format | str | None = None,
        build: Build = Build(),
        **options: Unpack[Options],
    ) -> None:
        super().__init__(DivSpec.of(a=a, b=b, o=o, **options), build=build)

    def recur(self, m: Module, rows: Rows, *operands: Raw) -> Raw:
        """Return the quotient."""
        a, b = operands
        return divide(m, a, b, rows)
