"""Conversion between formats."""

from amaranth.hdl import Module, Value

from halfulp.hdl.number import Number
from halfulp.hdl.specs import ConvertSpec

from .arithmetic import Arithmetic, Computed


class Convert(Arithmetic):
    """Conversion of a number to another format, rounded once.

    Formula
    -------
    ``o = round(a)``

    Source
    ------
    Operation and rounding: IEEE 754, 2019, 5.4.2.
    """

    SPEC = ConvertSpec

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the operand unchanged."""
        (a,) = operands
        return a, random
