"""Unpacking and rounding of codes of unsigned powers of two."""

from amaranth.hdl import Const, Module, Mux, Value

from .floating import TruncatedFloat
from .formats import SATFINITE, Rounding, Saturation, Scale
from .raw import LeadingZeros, Promises, Raw
from .round import RoundingBits, round_up, to_largest
from .wire import NEVER, reaches, wire


def unpack(m: Module, bits: Value, fmt: Scale, name: str) -> Raw:
    """Unpack a code to a raw number."""
    return Raw(
        sign=NEVER,
        exponent=bits,
        significand=Const(1, 1),
        nan=wire(m, bits.all(), f"{name}_nan"),
        zero=NEVER,
        base=-fmt.bias,
        promises=Promises(emin=fmt.emin, emax=fmt.emax, leading=LeadingZeros.NONE),
    )


def pack(
    m: Module, x: TruncatedFloat, o: Scale, rounding: Rounding, saturating: Saturation, random: Value | None
) -> Value:
    """Round a number once to a code; `floating.truncate` truncates it at its first bit."""
    up = round_up(rounding, RoundingBits(x.sign, x.last, x.discarded, x.sticky), random)
    rounded = wire(m, x.field + wire(m, up, "round_up"), "rounded")
    over = wire(m, reaches(rounded, o.max_code + 1), "overflow")
    stays_finite = to_largest(rounding, NEVER, saturating)
    # The field is unsigned if no number is below the smallest one.
    code = Mux(x.field < 0, 0, rounded) if x.field.shape().signed else rounded
    code = Mux(over, Mux(stays_finite, o.max_code, o.nan_code), code)
    not_number = x.nan | x.inf | x.zero
    if saturating == SATFINITE:
        code, not_number = Mux(x.inf, o.max_code, code), x.nan | (x.zero & ~x.inf)
    nan = wire(m, not_number | x.sign, "not_positive")
    return Mux(nan, o.nan_code, code)[: o.width]
