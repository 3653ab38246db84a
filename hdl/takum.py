"""Unpacking and rounding of takum codes (Hunhold, CoNGA 2024, section 4).

The characteristic c follows from the integer G = 1C, a one followed by the field C, inverted for direction down: c is
G - 1 for direction up, and its complement for direction down.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Value

from .formats import Rounding
from .formats.takum import HEAD, MAX_REGIME, Takum
from .posit import TruncatedPosit, as_raw, magnitude_of, normal
from .raw import Raw
from .wire import extended, leading_zeros, shift_left, wire

BASE = -256
"""Offset of the exponents, which makes them nonnegative."""


def unpack(m: Module, bits: Value, fmt: Takum, name: str) -> Raw:
    """Unpack a code to a raw number."""
    none = wire(m, ~bits[:-1].any(), f"{name}_no_body")
    missing = max(HEAD - 1 + MAX_REGIME - (fmt.width - 1), 0)
    body = wire(m, Cat(Const(0, missing), magnitude_of(bits)), f"{name}_body")
    down = ~body[-1]
    regime = wire(m, body[-4:-1] ^ down.replicate(3), f"{name}_regime")
    tail = body[:-4]
    # Low bits are the inverse of zeros, so that the inversion after the shift makes them zeros.
    inverted = Cat(down.replicate(MAX_REGIME), tail ^ down.replicate(len(tail)), Const(1, 1 + MAX_REGIME))
    shifted = shift_left(m, inverted, regime, f"{name}_tail")
    characteristic = (shifted[MAX_REGIME + len(tail) :] - 1)[:8] ^ down.replicate(8)
    fraction = shifted[MAX_REGIME : MAX_REGIME + len(tail)] ^ down.replicate(len(tail))
    fraction = fraction[len(tail) - fmt.fraction_bits :]
    return as_raw(m, bits[-1], body, none, Cat(characteristic, ~down), fraction, BASE, fmt, name)


def truncate(m: Module, x: Raw, o: Takum, rounding: Rounding) -> TruncatedPosit:
    """Write a number as an unbounded code string and truncate it to the code's width."""
    count, significand, smallest = normal(m, x)
    width = max(x.promises.emax, -smallest, -BASE).bit_length() + 1
    scale = wire(m, extended(x.exponent + x.base - count, width)[:width].as_signed(), "scale")
    down = scale[-1]
    places = wire(m, scale[:-1] ^ down.replicate(width - 1), "characteristic_places")
    over = wire(m, places >= -BASE - 1, "over")
    one_and_field = wire(m, (places[:8] + 1)[:8], "one_and_field")
    zeros = leading_zeros(m, one_and_field, "regime")[:3]
    field = one_and_field[:MAX_REGIME] ^ down.replicate(MAX_REGIME)
    string = shift_left(m, Cat(significand[:-1], field), zeros, "tail")
    string = Cat(string, zeros ^ (~down).replicate(3), ~down)
    seen = o.width - 1 + rounding.places
    string = wire(m, Cat(Const(0, max(seen - len(string), 0)), string), "string")
    kept = string[len(string) - (o.width - 1) :]
    kept = wire(m, Mux(over, (~down).replicate(o.width - 1), kept), "kept")
    discarded = len(string) - (o.width - 1)
    return TruncatedPosit(
        sign=x.sign,
        kept=kept,
        discarded=wire(m, string[discarded - rounding.places : discarded], "discarded"),
        sticky=wire(m, string[: discarded - rounding.places].any() | x.sticky, "sticky"),
        # The last code must not round up, and the first code must not become zero.
        beyond=wire(m, over | kept.all() | ~kept.any(), "beyond"),
        nan=wire(m, x.nan | x.inf, "not_real"),
        inf=x.inf & ~x.nan,
        zero=x.zero,
    )
