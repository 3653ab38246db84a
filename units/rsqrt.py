"""Reciprocal of the square root."""

from amaranth.hdl import Module

from halfulp.hdl.divide import inverse_square_root
from halfulp.hdl.raw import Raw
from halfulp.hdl.rows import Rows
from halfulp.hdl.specs import RsqrtSpec

from .endless import Endless


class Rsqrt(Endless):
    """Reciprocal of the square root of a number, rounded once.

    Formula
    -------
    ``o = round(1 / sqrt(a))``; the result for a zero is an infinity of its sign, that for a negative number is NaN.

    Source
    ------
    Operation and rounding: IEEE 754, 2019, 9.2. Recurrences: Ercegovac and Lang, Digital Arithmetic, 2004, chapters 5
    and 6.
    """

    SPEC = RsqrtSpec

    def recur(self, m: Module, rows: Rows, *operands: Raw) -> Raw:
        """Return the reciprocal of the root."""
        (a,) = operands
        return inverse_square_root(m, a, rows)
