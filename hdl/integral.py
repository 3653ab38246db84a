"""Integral values and exponents of numbers."""

from dataclasses import replace

from amaranth.hdl import Cat, Const, Module, Mux, Value

from .fixed import FixedRaw
from .formats import Rounding
from .raw import LeadingZeros, OperationFlags, Promises, Raw, normalise
from .round import RoundingBits, round_outward
from .wire import NEVER, shift_right_sticky, wire


def rounded_to_integer(m: Module, x: Raw, rounding: Rounding, random: Value | None, *, floors: bool) -> Raw:
    """Round a number to an integer: of its magnitude, or with ``floors`` of its floor."""
    width, places = len(x.significand), rounding.places
    # Numbers of this exponent and above are integers.
    top = width - 1
    down = wire(m, (top - x.base) - x.exponent, "places_below_point")
    is_integer = down < 0
    amount = Mux(is_integer, 0, down)[: max((top - x.promises.emin).bit_length(), 1)]
    shifted, lost = shift_right_sticky(m, Cat(Const(0, places), x.significand), amount, "integer_shifted")
    kept, discarded, sticky = shifted[places:], shifted[:places], wire(m, lost | x.sticky, "below_discarded")
    up = round_outward(rounding, RoundingBits(x.sign, kept[0], discarded, sticky), random, floors=floors)
    integer = wire(m, (kept + wire(m, up, "integer_up"))[: width + 1], "integer")
    return Raw(
        sign=x.sign,
        exponent=wire(m, Mux(is_integer, -down, 0)[: max((x.promises.emax - top).bit_length(), 1)], "integer_exponent"),
        significand=integer,
        nan=x.nan,
        inf=x.inf,
        zero=wire(m, x.zero | ~integer.any(), "integer_zero"),
        base=top + 1,
        promises=Promises(
            emin=top + 1, emax=max(x.promises.emax, top) + 1, leading=LeadingZeros.ANY, zero_at_floor=True
        ),
        flags=OperationFlags(inexact=~(x.nan | x.inf | x.zero) & (discarded.any() | sticky), invalid=x.flags.invalid),
    )


def exponent_of(m: Module, x: Raw) -> FixedRaw:
    """Return the exponent of the first one of a number; that of a zero is minus infinity."""
    x = normalise(m, x, "x", x.quantum, x.base)
    exponent = wire(m, (x.exponent + x.base).as_signed(), "logarithm")
    return FixedRaw(
        integer=exponent,
        sign=wire(m, ~x.inf & (x.zero | exponent[-1]), "logarithm_sign"),
        quantum=0,
        nan=x.nan,
        inf=wire(m, x.inf | x.zero, "logarithm_inf"),
    )


def times_power(m: Module, x: Raw, power: Value, bits: int) -> Raw:
    """Return ``x * 2^power``; ``bits`` is the width of a signed integer to whose range the power is clamped."""
    if not power.shape().signed:
        power = Cat(power, NEVER)
    bits = min(bits, len(power))
    sign, upper = power[-1], power[bits - 1 :]
    fits = upper.all() | ~upper.any()
    low = Mux(fits, power[: bits - 1], (~sign).replicate(bits - 1)) if bits < len(power) else power[:-1]
    # The inverse of the sign bit adds a constant, so that the sum is not negative.
    places = wire(m, Cat(low, ~sign), "power")
    offset = 1 << (bits - 1)
    return replace(
        x,
        exponent=wire(m, x.exponent + places, "scaled_exponent"),
        base=x.base - offset,
        promises=x.promises.moved(-offset, offset - 1),
    )
