"""Integral value."""

from amaranth.hdl import Module, Value

from halfulp.hdl.integral import rounded_to_integer
from halfulp.hdl.number import Number, as_raw
from halfulp.hdl.specs.integral import RintSpec

from .base import Computed, Unary


class Round(Unary):
    """Number rounded to an integral value, of the same format or another.

    Formula
    -------
    ``o = round(integer)``, where ``integer`` is ``a`` rounded to an integer by the same mode; a zero keeps the sign of
    ``a``.

    Parameters
    ----------
    a : Format or str
        Operand format.
    o : Format or str, optional
        Result format; default: ``a``.
    build : Build
        Register stages and structure; changes ``latency`` and no result bit.
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
    ``stages`` cycles.

    Source
    ------
    IEEE 754, 2019, 5.3.1 and 5.9.
    """

    SPEC = RintSpec

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the integer."""
        (a,) = operands
        return rounded_to_integer(m, as_raw(m, a, "a"), self.rounding, random, floors=self.spec.floors), random
