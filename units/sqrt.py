"""Square root."""

from amaranth.hdl import Module

from halfulp.hdl.divide import square_root
from halfulp.hdl.raw import Raw
from halfulp.hdl.rows import Rows
from halfulp.hdl.specs import SqrtSpec

from .endless import Endless


class Sqrt(Endless):
    """Square root of a number, rounded once.

    Formula
    -------
    ``o = round(sqrt(a))``; the root of -0 is -0, that of another negative number is NaN.

    Source
    ------
    Operation and rounding: IEEE 754, 2019, 5.4.1. Recurrence: Ercegovac and Lang, Digital Arithmetic, 2004, chapter 6.
    """

    SPEC = SqrtSpec

    def recur(self, m: Module, rows: Rows, *operands: Raw) -> Raw:
        """Return the root."""
        (a,) = operands
        return square_root(m, a, rows)
