"""Integral value."""

from amaranth.hdl import Module, Value

from halfulp.hdl.integral import rounded_to_integer
from halfulp.hdl.number import Number, as_raw
from halfulp.hdl.specs.integral import RintSpec

from .arithmetic import Arithmetic, Computed


class Round(Arithmetic):
    """Number rounded to an integral value, of the same format or another.

    Formula
    -------
    ``o = round(integer)``, where ``integer`` is ``a`` rounded to an integer by the same mode; a zero keeps the sign of
    ``a``.

    Source
    ------
    IEEE 754, 2019, 5.3.1 and 5.9.
    """

    SPEC = RintSpec

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the integer."""
        (a,) = operands
        return rounded_to_integer(m, as_raw(m, a, "a"), self.rounding, random, floors=self.spec.floors), random
