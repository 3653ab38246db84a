"""Square root."""

from amaranth.hdl import Module

from halfulp.hdl.divide import square_root
from halfulp.hdl.raw import Raw
from halfulp.hdl.rows import Rows
from halfulp.hdl.specs import SqrtSpec

from .endless import Function


class Sqrt(Function):
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
    Operation and rounding: IEEE 754, 2019, 5.4.1. Recurrence: Ercegovac and Lang, Digital Arithmetic, 2004, chapter 6.
    """

    SPEC = SqrtSpec

    def recur(self, m: Module, rows: Rows, *operands: Raw) -> Raw:
        """Return the root."""
        (a,) = operands
        return square_root(m, a, rows)
