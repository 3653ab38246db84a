"""Conversion between formats."""

from typing import Unpack

from amaranth.hdl import Module, Value

from halfulp.hdl.formats import Format
from halfulp.hdl.number import Number
from halfulp.hdl.specs import Build, ConvertSpec

from .base import Arithmetic, Computed, Options


class Convert(Arithmetic):
    """Conversion of a number to another format, rounded once.

    Formula
    -------
    ``o = round(a)``

    Parameters
    ----------
    a : Format or str
        Operand format.
    o : Format or str
        Result format.
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
    Operation and rounding: IEEE 754, 2019, 5.4.2.
    """

    SPEC = ConvertSpec

    def __init__(self, *, a: Format | str, o: Format | str, build: Build = Build(), **options: Unpack[Options]) -> None:
        super().__init__(ConvertSpec.of(a=a, o=o, **options), build=build)

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the operand unchanged."""
        (a,) = operands
        return a, random
