"""Unpacking and rounding of posit codes.

Each direction needs one shifter. Unpacking counts the regime bits after the first; the count is also the shift distance
of exponent and fraction. Packing writes the regime with an arithmetic shift that repeats its first bit. (Jaiswal and
So, IEEE Access 7, 2019.)
"""

from dataclasses import dataclass, replace
from fractions import Fraction

from amaranth.hdl import Cat, Const, Module, Value

from .formats import SATFINITE, Posit, Rounding, Saturation
from .formats.base import floor_log2
from .formats.tapered import Tapered
from .multiply import INPUTS
from .raw import Anticipated, LeadingZeros, Promises, Raw, leading_zeros_of
from .round import RoundingBits, round_up
from .wire import NEVER, extended, incremented, leading_zeros, lookup, saturate, shift_left, shift_right_sticky, wire

SHORT = 8
"""Maximum width of posits and takums whose magnitudes are compared after unpacking, which then takes fewer LUTs."""


def unpack(m: Module, bits: Value, fmt: Posit, name: str) -> Raw:
    """Unpack a code to a raw number."""
    body = wire(m, magnitude_of(bits), f"{name}_body")
    first = body[-1]
    # Number of regime bits after the first; the regime is this count, or its inverse if the first bit is 0.
    count = leading_zeros(m, body[:-1] ^ first.replicate(fmt.width - 2), f"{name}_regime")
    tail = shift_left(m, body[:-2], count, f"{name}_tail")
    missing = max(fmt.es - len(tail), 0)
    tail = Cat(Const(0, missing), tail)
    none = wire(m, ~bits[:-1].any(), f"{name}_no_body")
    # A power of two as offset replaces the sign bit of the scale and makes the exponent nonnegative.
    scale = Cat(tail[len(tail) - fmt.es :], count ^ (~first).replicate(len(count)), first)
    x = as_raw(m, bits[-1], body, none, scale, tail[: len(tail) - fmt.es], -(1 << (len(scale) - 1)), fmt, name)
    # A LUT more than its inputs, joined by a multiplexer, makes a function of one input more.
    if len(body) <= INPUTS + 1 and 0 < fmt.fraction_bits <= INPUTS // 2:
        fraction = wire(m, lookup(body, _fractions(fmt))[: fmt.fraction_bits], f"{name}_fraction")
        return replace(x, anticipated=replace(x.anticipated, fraction=fraction))
    return x


def _fractions(fmt: Posit) -> list[int]:
    """Return the fractions of the magnitudes of all codes; that of zero is 0."""
    numbers = [Fraction(fmt.decode(code)) for code in range(1, 1 << (fmt.width - 1))]
    significands = [number / Fraction(2) ** floor_log2(number) for number in numbers]
    return [0, *(int((significand - 1) * (1 << fmt.fraction_bits)) for significand in significands)]


def magnitude_of(bits: Value) -> Value:
    """Return the code of the magnitude, without sign bit."""
    return ((bits[:-1] ^ bits[-1].replicate(len(bits) - 1)) + bits[-1])[: len(bits) - 1]


def as_raw(  # noqa: PLR0913 - parts of a code
    m: Module,
    sign: Value,
    body: Value,
    none: Value,
    exponent: Value,
    fraction: Value,
    base: int,
    fmt: Tapered,
    name: str,
) -> Raw:
    """Combine the parts of a code to a raw number.

    ``body`` is the code of the magnitude, and ``none`` is true for zero and NaR, which have no exponent or fraction.
    """
    return Raw(
        sign=sign,
        exponent=wire(m, exponent, f"{name}_exponent"),
        significand=wire(m, Cat(fraction, ~none), f"{name}_significand"),
        nan=wire(m, none & sign, f"{name}_nan"),
        zero=wire(m, none & ~sign, f"{name}_zero"),
        base=base,
        promises=Promises(
            emin=floor_log2(fmt.smallest),
            emax=floor_log2(fmt.largest),
            leading=LeadingZeros.NONE,
            zero_at_floor=True,
        ),
        anticipated=Anticipated(magnitude=(fmt, body) if fmt.width > SHORT else None),
    )


@dataclass(frozen=True)
class TruncatedPosit:
    """Code of a posit before rounding, truncated to its width.

    If ``beyond`` is true, the number lies beyond the first or last code, and only bit 0 of ``kept`` is defined. ``nan``
    is true for infinities too. With ``complement``, ``discarded`` and ``sticky`` are of the two's complement of the
    string, and ``kept`` is the inverse of its upper bits.
    """

    sign: Value
    kept: Value
    discarded: Value
    sticky: Value
    beyond: Value
    nan: Value
    inf: Value
    zero: Value
    complement: Value | None = None
    selects_carry: bool = False


def normal(m: Module, x: Raw) -> tuple[Value, Value, int]:
    """Return the number of leading zeros, the normalised significand, and a lower bound on its exponent."""
    count = leading_zeros_of(m, x, "leading_zeros")
    significand = shift_left(m, x.significand, count, "normal", x.promises.tail) if len(count) else x.significand
    return count, significand, x.promises.emin if x.promises.leading is LeadingZeros.NONE else x.quantum


def _within_range(m: Module, x: Raw, o: Posit, rounding: Rounding) -> Raw:
    """Return a sum with only those places that decide its code; the exponent of its first bit is constant.

    All magnitudes from the largest posit on have its code, and the OR of their places replaces them. Places below the
    smallest posit, and below those that stochastic rounding takes there, are sticky.
    """
    complement = x.anticipated.complement
    assert complement is not None
    significand, sticky, emax = x.significand, x.sticky, x.promises.emax
    if emax > o.max_scale:
        upper = significand[o.max_scale - emax - 1 :]
        any_upper = wire(m, (upper ^ complement.replicate(len(upper))).any(), "reaches_largest")
        significand = Cat(significand[: -len(upper)], any_upper ^ complement)
        emax = o.max_scale
    below = len(significand) - (emax + o.max_scale + rounding.places + 1)
    if below > 0:
        significand, sticky = significand[below:], wire(m, sticky | significand[:below].any(), "below_smallest")
    significand = wire(m, significand, "within_range")
    return replace(
        x,
        significand=significand,
        sticky=sticky,
        base=x.base + emax - x.promises.emax,
        promises=replace(x.promises, emin=emax, emax=emax),
    )


def truncate(m: Module, x: Raw, o: Posit, rounding: Rounding) -> TruncatedPosit:
    """Write a number as an unbounded code string and truncate it to the code's width."""
    complement, leading = x.anticipated.complement, x.promises.leading
    if leading is LeadingZeros.ANY and complement is not None and not len(x.exponent):
        x = _within_range(m, x, o, rounding)
    count, significand, smallest = normal(m, x)
    width = max(x.promises.emax, -smallest - 1, (1 << o.es) - 1).bit_length() + 1
    scale = x.exponent + x.base - count
    if leading is LeadingZeros.AT_MOST_ONE:
        # A count of 0 or 1 is subtracted by adding its inverse, with one less in the base.
        scale = x.exponent + (x.base - 1) + x.significand[-1]
    scale = wire(m, extended(scale, width)[:width].as_signed(), "scale")
    down = scale[-1]
    # The string 10ef or 01ef is shifted right by k or -k - 1 places, which repeats its first bit.
    regime = scale[o.es : -1]
    places_down = wire(m, regime ^ down.replicate(len(regime)), "regime_places")
    last = o.width - 2
    is_beyond = max(x.promises.emax >> o.es, -(smallest >> o.es) - 1) >= last
    beyond = wire(m, places_down >= last, "beyond") if is_beyond else NEVER
    string, fill = Cat(significand[:-1], scale[: o.es], down, ~down), ~down
    if complement is not None:
        # The discarded bits are those of the two's complement, as in the significand.
        head = complement.replicate(len(string) - (len(significand) - 1))
        string, fill = string ^ Cat(Const(0, len(significand) - 1), head), fill ^ complement
    # Bits below the rounding position never shift up, so they are merged first.
    seen = o.width - 1 + rounding.places
    below = string[: max(len(string) - seen, 0)].any()
    string = wire(m, Cat(Const(0, max(seen - len(string), 0)), string)[-seen:], "string")
    places_down = saturate(places_down, last.bit_length())
    shifted, lost = shift_right_sticky(m, string, places_down, "string_shifted", fill=fill)
    discarded = len(shifted) - (o.width - 1)
    kept = shifted[discarded:]
    if complement is not None:
        kept = kept ^ complement.replicate(len(kept))
    return TruncatedPosit(
        sign=x.sign,
        kept=wire(m, kept, "kept"),
        discarded=wire(m, shifted[:discarded], "discarded"),
        sticky=wire(m, lost | below | x.sticky, "sticky"),
        beyond=beyond,
        nan=wire(m, x.nan | x.inf, "not_real"),
        inf=x.inf & ~x.nan,
        zero=x.zero,
        complement=complement,
        selects_carry=x.anticipated.selects_carry,
    )


def pack(
    m: Module, x: TruncatedPosit, o: Posit, rounding: Rounding, saturating: Saturation, random: Value | None
) -> Value:
    """Round a number once to a code. No number rounds to zero or NaR, and posits always saturate."""
    nan, zero, beyond, kept = x.nan, x.zero, x.beyond, x.kept
    if saturating == SATFINITE:
        # An infinity is beyond the last code, whose bits are ones.
        nan, zero, beyond, kept = nan & ~x.inf, zero & ~x.inf, beyond | x.inf, kept | x.inf.replicate(len(kept))
    last = kept[0] | beyond
    up = round_up(rounding, RoundingBits(x.sign, last, x.discarded, x.sticky, complement=x.complement), random)
    special = wire(m, nan | zero, "special")
    up = wire(m, up & ~beyond & ~special, "round_up")
    sign = wire(m, (x.sign & ~zero) | nan, "sign")
    magnitude = Cat(last, kept[1:]) & (~special).replicate(o.width - 1)
    # -(x + 1) is the inverse of x, and -x is the inverse plus one.
    body = magnitude ^ sign.replicate(o.width - 1)
    body = incremented(m, wire(m, body, "body"), sign ^ up, "rounded") if x.selects_carry else body + (sign ^ up)
    return Cat(body[: o.width - 1], sign)
