"""Division."""

from amaranth.hdl import Module

from halfulp.hdl.divide import divide
from halfulp.hdl.raw import Raw
from halfulp.hdl.rows import Rows
from halfulp.hdl.specs import DivSpec

from .endless import Endless


class Div(Endless):
    """Quotient of two numbers, rounded once.

    Formula
    -------
    ``o = round(a / b)``; ``x / 0`` is an infinity that neither rounding nor saturation makes finite, ``0 / 0`` and
    ``inf / inf`` are NaN.

    Source
    ------
    Operation and rounding: IEEE 754, 2019, 5.4.1. Recurrence: Ercegovac and Lang, Digital Arithmetic, 2004, chapter 5.
    """

    SPEC = DivSpec

    def recur(self, m: Module, rows: Rows, *operands: Raw) -> Raw:
        """Return the quotient."""
        a, b = operands
        return divide(m, a, b, rows)
