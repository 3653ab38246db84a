"""Fixed-point numbers: unpacking, arithmetic and rounding of scaled integers.

Scales are constants; only raw numbers are shifted by signals.
"""

from dataclasses import dataclass, field, fields, replace
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Value

from .formats import Fixed, Rounding, Saturation
from .product import product
from .raw import LeadingZeros, Promises, Raw
from .round import Flags, RoundingBits, cancelled_sign, is_exact, round_up
from .wire import NEVER, bounds, extended, never, shift_right_sticky, shifted_up, wire


@dataclass(frozen=True)
class FixedRaw:
    """Number ``integer * 2^quantum``, with a sticky bit.

    Attributes
    ----------
    integer : Value
        Integer, signed or unsigned.
    sign : Value
        Sign of the number, including zeros and infinities.
    quantum : int
    sticky : Value
        OR of truncated bits: the integer is the floor of the number, which is not an integer.
    nan, inf : Value
        Flags that override the number.
    negated : Value
        The number is the negative of the integer; the next addition negates it.
    plus_half : bool
        Half a unit in the last place of the result has been added, so that rounding to nearest needs no adder.
    """

    integer: Value
    sign: Value
    quantum: int
    sticky: Value = field(default_factory=never)
    nan: Value = field(default_factory=never)
    inf: Value = field(default_factory=never)
    negated: Value = field(default_factory=never)
    plus_half: bool = False


def parts(number: FixedRaw) -> dict[str, Value]:
    """Return the parts of a number that are values, by name."""
    return {
        item.name: getattr(number, item.name) for item in fields(number) if item.name not in ("quantum", "plus_half")
    }


@dataclass(frozen=True)
class Pair:
    """Two numbers ready for addition."""

    x: FixedRaw
    y: FixedRaw


def unpack(m: Module, bits: Value, fmt: Fixed, name: str) -> FixedRaw:
    """Unpack a code to a number."""
    integer = wire(m, bits.as_signed() if fmt.signed else bits, f"{name}_integer")
    sign = bits[-1] if fmt.signed else NEVER
    return FixedRaw(integer, sign, fmt.quantum)


def multiply(m: Module, x: FixedRaw, y: FixedRaw, *, dsp: bool) -> FixedRaw:
    """Return the exact product of two unpacked numbers."""
    return replace(
        x,
        integer=wire(m, product(m, x.integer, y.integer, "partial_product", dsp=dsp), "product"),
        sign=wire(m, x.sign ^ y.sign, "product_sign"),
        quantum=x.quantum + y.quantum,
    )


def add(m: Module, x: FixedRaw, y: FixedRaw, rounding: Rounding) -> FixedRaw:
    """Return the exact sum. One operand may have a sticky bit, and y may be negated."""
    quantum = min(x.quantum, y.quantum)
    first, second = (shifted_up(z.integer, z.quantum - quantum) for z in (x, y))
    negated = y.negated
    if isinstance(negated, Const):
        assert not negated.value or isinstance(y.sticky, Const), "a floor is negated by the inverse of its bits"
        total = first - second if negated.value else first + second
    else:
        # -y is the inverse of y plus one, which enters as carry from the bit below.
        width = len(second) + (not second.shape().signed)
        inverse = Cat(second, NEVER)[:width] ^ negated.replicate(width)
        carry = negated & ~y.sticky
        total = (_with_one_below(first) + Cat(carry, inverse).as_signed())[1:].as_signed()
    total = wire(m, total, "sum")
    zero = ~total.any() & ~x.sticky & ~y.sticky
    zero_sign = cancelled_sign(rounding, x.sign | y.sign, x.sign & y.sign)
    inf_sign = Mux(x.inf, x.sign, y.sign)
    negative = total[-1] if total.shape().signed else NEVER
    inf = x.inf | y.inf
    return FixedRaw(
        integer=total,
        sign=wire(m, Mux(inf, inf_sign, Mux(zero, zero_sign, negative)), "sum_sign"),
        sticky=x.sticky | y.sticky,
        nan=wire(m, x.nan | y.nan | (x.inf & y.inf & (x.sign ^ y.sign)), "sum_nan"),
        inf=wire(m, inf, "sum_inf"),
        quantum=quantum,
    )


def negate_if(x: FixedRaw, condition: Value) -> FixedRaw:
    """Negate the number if the condition holds."""
    return replace(x, sign=x.sign ^ condition, negated=condition)


def truncate_below(m: Module, x: FixedRaw, quantum: int) -> FixedRaw:
    """Truncate a number to the scale 2^quantum if its own is finer; the result is the floor."""
    places_down = quantum - x.quantum
    if places_down <= 0:
        return x
    below = x.integer[:places_down].any()
    integer = _shifted_down(x.integer, places_down)
    return replace(x, integer=integer, sticky=wire(m, x.sticky | below, "cut_off"), quantum=quantum)


def of_raw(m: Module, x: Raw, quantum: int, limit: int | None, name: str, *, exact: bool = False) -> FixedRaw:
    """Convert a raw number to fixed point; with ``exact`` no bit may be lost below the scale.

    With a ``limit``, numbers of magnitude 2^(limit + 1) or more become any number of the same sign and at least that
    magnitude.
    """
    top = x.promises.emax
    clips = False
    if limit is not None:
        # A number with leading zeros is smaller than its exponent indicates.
        limit += _most_leading_zeros(x, limit)
        clips = limit < x.promises.emax
        top = min(limit, x.promises.emax)
    top = max(top, quantum)
    down = (top - x.base) - x.exponent
    over: Value = NEVER
    if clips:
        over = wire(m, (down < 0) & ~x.zero, f"{name}_over")
    width = top - quantum + 1
    grid = max(width, len(x.significand))
    down = wire(m, Mux(down < 0, 0, down)[: max((top - x.promises.emin).bit_length(), 1)], f"{name}_places_down")
    at_top = Cat(Const(0, grid - len(x.significand)), x.significand)
    shifted, lost = shift_right_sticky(m, at_top, down, f"{name}_placed")
    below = NEVER if exact else wire(m, lost | shifted[: grid - width].any() | x.sticky, f"{name}_below")
    magnitude = Cat(shifted[grid - width :], over)
    wide = len(magnitude) + 1
    # The floor of a negative number with bits below is one less than the negative of its upper bits.
    integer = (Cat(magnitude, Const(0, 1)) ^ x.sign.replicate(wide)) + (x.sign & ~below)
    return FixedRaw(
        integer=wire(m, integer[:wide].as_signed(), f"{name}_integer"),
        sign=x.sign,
        sticky=below,
        nan=x.nan,
        inf=x.inf,
        quantum=quantum,
    )


def _most_leading_zeros(x: Raw, limit: int) -> int:
    """Return the maximum leading zeros of numbers with an exponent above ``limit``."""
    leading = x.promises.leading
    if leading is LeadingZeros.NONE or (leading is LeadingZeros.AT_FLOOR and limit >= x.promises.emin):
        return 0
    return 1 if leading is LeadingZeros.AT_MOST_ONE else len(x.significand) - 1


def magnitude_of(x: FixedRaw) -> Value:
    """Return the magnitude of a number, truncated."""
    width = len(x.integer)
    negative = x.integer[-1] if x.integer.shape().signed else NEVER
    return ((x.integer ^ negative.replicate(width)) + (negative & ~x.sticky))[:width]


def to_raw(m: Module, x: FixedRaw, name: str) -> Raw:
    """Convert a number to a raw number."""
    magnitude = wire(m, magnitude_of(x), f"{name}_magnitude")
    base = x.quantum + len(magnitude) - 1
    return Raw(
        sign=x.sign,
        exponent=Const(0, 0),
        significand=magnitude,
        nan=x.nan,
        inf=x.inf,
        zero=wire(m, ~magnitude.any() & ~x.sticky, f"{name}_zero"),
        sticky=x.sticky,
        base=base,
        promises=Promises(emin=base, emax=base, leading=LeadingZeros.ANY, zero_at_floor=True),
    )


@dataclass(frozen=True)
class TruncatedFixed:
    """Number truncated at the last place of a fixed-point format; ``floor`` has the format's scale.

    With ``plus_half``, all is that of the number plus half a unit in the last place.
    """

    floor: Value
    discarded: Value
    sticky: Value
    sign: Value
    nan: Value
    inf: Value
    plus_half: bool = False


def truncate(m: Module, x: FixedRaw, o: Fixed) -> TruncatedFixed:
    """Truncate a number at the last place of the result format."""
    places_down = o.quantum - x.quantum
    floor = shifted_up(x.integer, -places_down) if places_down <= 0 else _shifted_down(x.integer, places_down)
    return TruncatedFixed(
        floor=wire(m, floor, "floor"),
        discarded=extended(x.integer, places_down)[: max(places_down, 0)],
        sticky=x.sticky,
        sign=x.sign,
        nan=x.nan,
        inf=x.inf,
        plus_half=x.plus_half,
    )


def rounded(m: Module, x: TruncatedFixed, rounding: Rounding, random: Value | None) -> tuple[Value, Value]:
    """Return the rounded integer, and True if it is not the exact number.

    Half a unit that has been added makes the floor that of rounding to nearest, but for a tie at an odd floor: its
    neighbour below is even, and differs from it in the last bit only (rounding by injection: Even and Seidel, IEEE
    Transactions on Computers 49, 2000).
    """
    if not x.plus_half:
        up = goes_up(m, x, rounding, random)
        return wire(m, x.floor + up, "rounded"), x.discarded.any() | x.sticky
    # The OR starts with the lowest bit, because the lower bits of a sum of rows are ready first.
    tie = wire(m, ~reduce(or_, x.discarded, x.sticky), "is_tie")
    # Below a floor of -1 is -2, which has two bits.
    signed = x.floor.shape().signed
    even = Cat(x.floor[0] & ~tie, (extended(x.floor, 2) if signed else x.floor)[1:])
    integer = even.as_signed() if signed else even
    return wire(m, integer, "rounded"), ~is_exact(Cat(x.discarded[:-1], ~x.discarded[-1:]), x.sticky)


def goes_up(m: Module, x: TruncatedFixed, rounding: Rounding, random: Value | None) -> Value:
    """Return the rounding decision: 1 adds one to the floor."""
    negative = x.floor[-1] if x.floor.shape().signed else NEVER
    bits = RoundingBits(negative, x.floor[0], x.discarded, x.sticky, twos_complement=True)
    return wire(m, round_up(rounding, bits, random), "round_up")


def wrapped(integer: Value, o: Fixed) -> Value:
    """Encode an integer multiple of the last place, modulo 2**width."""
    code: Value = extended(integer, o.width)[: o.width]
    return code


def pack(
    m: Module, x: TruncatedFixed, o: Fixed, rounding: Rounding, saturating: Saturation, random: Value | None
) -> Value:
    """Round a number once to a code."""
    return pack_with_flags(m, x, o, rounding, saturating, random)[0]


def pack_with_flags(
    m: Module, x: TruncatedFixed, o: Fixed, rounding: Rounding, saturating: Saturation, random: Value | None
) -> tuple[Value, Flags]:
    """Round a number once to a code, and return its flags; a number beyond the range is invalid and not an overflow."""
    integer, inexact = rounded(m, x, rounding, random)
    signed = integer.shape().signed
    code = wrapped(integer, o)
    below_zero = integer[-1] if signed else NEVER
    least, most = bounds(integer)
    if o.least_integer <= least and most <= o.largest_integer:
        beyond: Value = NEVER
    elif o.signed:
        upper = integer[o.width - 1 :]
        beyond = upper.any() & ~upper.all() if signed else upper.any()
        if signed and o.least_integer > o.lowest_integer:
            beyond |= upper.all() & ~integer[: o.width - 1].any()
    else:
        beyond = integer[o.width :].any() | below_zero
    if saturating or not o.wraps:
        code = Mux(wire(m, beyond, "beyond"), _end(o, below_zero), code)
    code = Mux(x.inf, _end(o, x.sign), code)
    flags = Flags(
        inexact=inexact & ~(x.nan | x.inf | beyond),
        underflow=NEVER,
        overflow=NEVER,
        lost_nan=x.nan | (beyond & ~x.inf),
        lost_inf=x.inf & ~x.nan,
    )
    return Mux(x.nan, Const(0, o.width), code), flags


def last_discarded_place(rounding: Rounding, o: Fixed) -> int:
    """Return the exponent of the last discarded bit that is not merged into sticky."""
    return o.quantum - rounding.places


def _end(o: Fixed, negative: Value) -> Value:
    """Return the lowest or the largest code."""
    return Mux(negative, Const(o.infinity(True), o.width), Const(o.infinity(False), o.width))


def _with_one_below(integer: Value) -> Value:
    extended = Cat(Const(1, 1), integer)
    return extended.as_signed() if integer.shape().signed else extended


def _shifted_down(integer: Value, places_down: int) -> Value:
    """Return the floor of ``integer * 2^-places_down``."""
    if integer.shape().signed:
        return integer[min(places_down, len(integer) - 1) :].as_signed()
    return integer[places_down:] if places_down < len(integer) else Const(0, 1)
