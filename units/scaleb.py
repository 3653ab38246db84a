"""Product of a number and a power of two."""

from typing import Unpack

from amaranth.hdl import Module, Value

from halfulp.hdl.fixed import FixedRaw
from halfulp.hdl.formats import Format
from halfulp.hdl.integral import times_power
from halfulp.hdl.number import Number, as_raw
from halfulp.hdl.specs import Build
from halfulp.hdl.specs.scaleb import ScalebSpec

from .base import Arithmetic, Computed, Options


class ScaleB(Arithmetic):
    """Product of a number and a power of two, rounded once.

    Formula
    -------
    ``o = round(a * 2^b)``; zeros, infinities and NaN stay what they are.

    Parameters
    ----------
    a : Format or str
        Format of the number.
    b : Fixed or str
        Format of the exponent, an integer of up to 32 bits.
    o : Format or str, optional
        Result format; default: ``a``.
    build : Build
        Register stages; they change ``latency`` and no result bit.
    **options
        Rounding, random source, saturation and flags; see `Options`.

    Members
    -------
    a : In(a)
    b : In(b)
    o : Out(o)
    flags : Out(5)
        Exception flags, from bit 0 on those of `halfulp.hdl.specs.unit.FLAGS`. Absent without ``flags``.

    Latency
    -------
    ``stages`` cycles.

    Source
    ------
    IEEE 754, 2019, 5.3.3.
    """

    SPEC = ScalebSpec

    def __init__(
        self,
        *,
        a: Format | str,
        b: Format | str,
        o: Format | str | None = None,
        build: Build = Build(),
        **options: Unpack[Options],
    ) -> None:
        super().__init__(ScalebSpec.of(a=a, b=b, o=o, **options), build=build)

    def compute(self, m: Module, random: Value | None, *operands: Number) -> Computed:
        """Return the number with a changed exponent."""
        a, b = operands
        assert isinstance(b, FixedRaw)
        return times_power(m, as_raw(m, a, "a"), b.integer, self.spec.exponent_bits), random
