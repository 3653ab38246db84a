"""Requantization of accumulators."""

from dataclasses import replace

from amaranth.hdl import Module

from halfulp.hdl import fixed
from halfulp.hdl.fixed import FixedRaw
from halfulp.hdl.formats import OFF, RZ
from halfulp.hdl.number import pack, truncate
from halfulp.hdl.specs import RequantizeSpec
from halfulp.hdl.wire import NEVER, shift_right_sticky, wire

from .described import Described


class Requantize(Described):
    """Product of an accumulator and a multiplier, shifted right and rounded, plus a zero point.

    Formula
    -------
    ``o = zero + round(a * multiplier / 2^shift)``, which saturates; with ``product``,
    ``o = zero + round(product(a * multiplier) / 2^shift)``.

    Members
    -------
    multiplier : In(multiplier)
        Factor of the scale.
    shift : In(shift)
        Places of the shift to the right.
    zero : In(o)
        Zero point.
    o : Out(o)

    Source
    ------
    Jacob et al., CVPR 2018, section 2.2.
    """

    SPEC = RequantizeSpec
    multiplies = True

    def logic(self, m: Module) -> None:
        spec = self.spec
        a, multiplier, shift = (
            fixed.unpack(m, getattr(self, name).as_value(), fmt, name) for name, fmt in spec.operands.items()
        )
        product = fixed.multiply(m, a, multiplier, dsp=self.build.dsp)
        if spec.product is not None:
            ready = truncate(m, product, spec.product, spec.product_rounding)
            code = pack(m, ready, spec.product, spec.product_rounding, OFF, None)
            product = fixed.unpack(m, wire(m, code, "product_code"), spec.product, "rounded_product")
        ready = truncate(m, self._shifted(m, product, shift), spec.scaled, self.rounding)
        code = pack(m, ready, spec.scaled, self.rounding, OFF, self.word(m))
        scaled = fixed.unpack(m, wire(m, code, "scaled_code"), spec.scaled, "scaled")
        zero = fixed.unpack(m, self.zero.as_value(), spec.o, "zero")
        total = fixed.add(m, scaled, zero, RZ)
        m.d.comb += self.o.as_value().eq(pack(m, truncate(m, total, spec.o, RZ), spec.o, RZ, OFF, None))

    def _shifted(self, m: Module, x: FixedRaw, shift: FixedRaw) -> FixedRaw:
        """Return a number shifted right, with the places that rounding tells from others."""
        spec, signed = self.spec, x.integer.shape().signed
        # Shifts to the left become shifts to the right on a scale that is larger by the largest one.
        left = -spec.shift.lowest_integer
        places = wire(m, (shift.integer + left)[: spec.shift.width], "places")
        quantum = x.quantum + left
        below = max(quantum - (spec.scaled.quantum - self.rounding.places), 0)
        fill = x.integer[-1] if signed else NEVER
        integer, lost = shift_right_sticky(m, x.integer, places, "shifted", fill, below)
        integer = integer.as_signed() if signed else integer
        return replace(
            x, integer=wire(m, integer, "floor_of_shifted"), sticky=wire(m, lost, "lost"), quantum=quantum - below
        )
