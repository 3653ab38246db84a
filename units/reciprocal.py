"""Reciprocal."""

from amaranth.hdl import Module

from halfulp.hdl.divide import ONE, divide
from halfulp.hdl.raw import Raw
from halfulp.hdl.rows import Rows
from halfulp.hdl.specs import ReciprocalSpec

from .endless import Function


class Reciprocal(Function):
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
        Register stages or iterations; changes ``latency`` and no result bit.
    **options
        Rounding, random source, saturation and flags; see `Options`.

    Members
    -------
    a : In(a)
    o : Out(o)
    flags : Out(5)
        Exception flags, from bit 0 on those of `halfulp.hdl.specs.unit.FLAGS`. Absent without ``flags``.

    Latency
    -------
    ``stages`` cycles; with ``build.iterations``, one cycle and those of the iterations.

    Source
    ------
    Recurrence: Ercegovac and Lang, Digital Arithmetic, 2004, chapter 5.
    """

    SPEC = ReciprocalSpec

    def recur(self, m: Module, rows: Rows, *operands: Raw) -> Raw:
        """Return the reciprocal."""
        (a,) = operands
        return divide(m, ONE, a, rows)
