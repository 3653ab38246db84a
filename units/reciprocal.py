"""Reciprocal."""

from amaranth.hdl import Module

from halfulp.hdl.divide import ONE, divide
from halfulp.hdl.raw import Raw
from halfulp.hdl.rows import Rows
from halfulp.hdl.specs import ReciprocalSpec

from .endless import Endless


class Reciprocal(Endless):
    """Reciprocal of a number, rounded once.

    Formula
    -------
    ``o = round(1 / a)``; the reciprocal of zero is an infinity of its sign.

    Source
    ------
    Recurrence: Ercegovac and Lang, Digital Arithmetic, 2004, chapter 5.
    """

    SPEC = ReciprocalSpec

    def recur(self, m: Module, rows: Rows, *operands: Raw) -> Raw:
        """Return the reciprocal."""
        (a,) = operands
        return divide(m, ONE, a, rows)
