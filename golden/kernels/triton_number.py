"""Stages of numbers in Triton: unpack, multiply, add, round once and pack, on integers of 32 or 64 bits.

The stages are those of number.h and takum.h. A number is a tuple: sign, exponent of the last place, significand, flags
of NaN and infinity. ``F`` and ``R`` are the constants of a format and of a rounding, for which Triton compiles a stage.
Codes are signed integers: a code of 32 bits is negative in a 32-bit integer if its first bit is set.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from halfulp.hdl.formats import SATFINITE, Fixed, Float, Format, Posit, Rounding, Saturation, Takum
from halfulp.hdl.specs import ValueRange
from halfulp.hdl.specs.ranges import window_of

PREFIX = tl.constexpr(12)
"""Largest number of bits before the fraction in the bit string of a posit or takum, after the regime of a posit."""


class FloatConstants(NamedTuple):
    """Constants of a float, as in number.h."""

    family: str
    width: int
    max_code: int
    nan_code: int
    sign_code: int
    man: int
    bias: int
    specials: str
    subnormals: bool


class FixedConstants(NamedTuple):
    """Constants of a fixed-point format; codes and magnitudes of its ends."""

    family: str
    width: int
    ones: int
    quantum: int
    signed: bool
    wraps: bool
    lowest_code: int
    largest_code: int
    lowest: int


class StringConstants(NamedTuple):
    """Constants of a posit or takum; ``least`` and ``most`` are the exponents between which numbers are rounded."""

    family: str
    width: int
    ones: int
    max_code: int
    nan_code: int
    fraction_bits: int
    least: int
    most: int
    es: int = 0


class RoundingConstants(NamedTuple):
    """Constants of a rounding.

    Positive or negative numbers that overflow become the largest number if they stay, infinities if all are ``finite``.
    """

    mode: str
    bits: int
    places: int
    saturate: bool
    finite: bool
    positive_stays: bool
    negative_stays: bool


FormatConstants = FloatConstants | FixedConstants | StringConstants


def format_constants(fmt: Format, bits: int) -> FormatConstants | None:
    """Return the constants of a format whose codes are integers of ``bits`` bits; None without stages in Triton."""

    def signed(code: int) -> int:
        return code - (1 << bits) if code >> (bits - 1) else code

    head, codes = (type(fmt).__name__, fmt.width), (fmt.max_code, signed(fmt.nan_code))
    ones = (1 << fmt.width) - 1
    match fmt:
        case Float():
            return FloatConstants(*head, *codes, signed(fmt.sign_code), fmt.man, fmt.bias, fmt.specials, fmt.subnormals)
        case Fixed():
            ends = fmt.infinity(True), fmt.infinity(False)
            return FixedConstants(*head, ones, fmt.quantum, fmt.signed, fmt.wraps, *ends, -fmt.least_integer)
        case Posit():
            ends = -fmt.max_scale, fmt.max_scale - 1
            return StringConstants(*head, ones, *codes, fmt.fraction_bits, *ends, fmt.es)
        case Takum():
            return StringConstants(*head, ones, *codes, fmt.fraction_bits, -255, 254)
    return None


def fits(fmt: Format, rounding: Rounding, results: ValueRange, bits: int) -> bool:
    """Return True if integers hold the codes of a format, its numbers, and the leading bits that its rounding needs."""
    room, window = bits - 6, window_of(fmt, rounding, results.magnitude)
    if isinstance(format_constants(fmt, bits), FloatConstants):
        return fmt.width <= bits and max(window, fmt.precision) <= room
    room -= PREFIX.value if fmt.spacing == "tapered" else 0
    return fmt.width + rounding.places <= bits - 2 and max(window, fmt.precision) <= room


def rounding_constants(rounding: Rounding, saturate: Saturation) -> RoundingConstants:
    """Return the constants of a rounding."""
    stays = (bool(saturate) or largest for largest in rounding.overflows_to_largest)
    return RoundingConstants(
        rounding.mode, rounding.bits, rounding.places, bool(saturate), saturate == SATFINITE, *stays
    )


@triton.jit
def top(x):
    """Return the bit of the leading one of positive numbers."""
    # Without adjacent ones, the conversion does not round up to a power of two.
    return ((x & ~(x >> 1)).to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127


@triton.jit
def truncate(x, shift, sticky, PLACES: tl.constexpr):
    """Remove the lowest ``shift`` bits: return the rest, the first removed bits, and the sticky bit of the others."""
    MOST: tl.constexpr = x.dtype.primitive_bitwidth - 2
    # Append zeros, so that at least PLACES bits are removed.
    up = tl.minimum(tl.maximum(PLACES - shift, 0), MOST)
    wide = x << up
    below = tl.minimum(shift + up - PLACES, MOST)
    kept = wide >> below
    return kept >> PLACES, kept & ((1 << PLACES) - 1), sticky | ((kept << below) != wide)


@triton.jit
def round_up(sign, last, seen, sticky, word, R: tl.constexpr, FLOOR: tl.constexpr):
    """Decide the rounding as ``round_up`` in golden/round.py: return 1 where truncated numbers are incremented."""
    MODE: tl.constexpr = R.mode
    more, minus, none = sticky.to(seen.dtype), sign.to(seen.dtype), seen * 0
    if MODE == "rn":
        return seen & (last | more)
    elif MODE == "ra":
        return seen & (more | (minus ^ 1)) if FLOOR else seen
    elif MODE == "rh":
        return seen & (more | minus) if FLOOR else seen & more
    elif MODE == "rhu":
        return seen if FLOOR else seen & (more | (minus ^ 1))
    elif MODE == "rhd":
        return seen & more if FLOOR else seen & (more | minus)
    elif MODE == "ru":
        return more if FLOOR else more & (minus ^ 1)
    elif MODE == "rd":
        return none if FLOOR else more & minus
    elif MODE == "rz":
        return more & minus if FLOOR else none
    elif MODE == "ro":
        return more & (last ^ 1)
    elif MODE == "sr":
        return (seen + word) >> R.bits
    else:
        tl.static_assert(MODE == "exact")
        return none


@triton.jit
def unpack(code, F: tl.constexpr):
    """Unpack codes to numbers."""
    if F.family == "Float":
        return _unpack_float(code, F)
    elif F.family == "Fixed":
        return _unpack_fixed(code, F)
    else:
        return _unpack_string(code, F)


@triton.jit
def pack(x, sticky, word, R: tl.constexpr, F: tl.constexpr):
    """Round numbers once and encode them."""
    if F.family == "Float":
        return _pack_float(x, sticky, word, R, F)
    elif F.family == "Fixed":
        return _pack_fixed(x, sticky, word, R, F)
    else:
        return _pack_string(x, sticky, word, R, F)


@triton.jit
def multiply(x, y):
    """Multiply exactly."""
    s0, e0, f0, nan0, inf0 = x
    s1, e1, f1, nan1, inf1 = y
    return s0 ^ s1, e0 + e1, f0 * f1, nan0 | nan1 | (inf0 & (f1 == 0)) | (inf1 & (f0 == 0)), inf0 | inf1


@triton.jit
def add(x, y, R: tl.constexpr, UP: tl.constexpr):
    """Add; return the sum truncated to about the width of integers, and a sticky bit.

    With ``UP``, terms are integers with these two left shifts, and their sum is exact.
    """
    s2, e2, f2, nan2, inf2 = x
    s3, e3, f3, nan3, inf3 = y
    if UP is not None:
        exact = (tl.where(s2, -f2, f2) << UP[0]) + (tl.where(s3, -f3, f3) << UP[1])
        never = exact != exact
        return (exact < 0, tl.minimum(e2, e3), tl.abs(exact), never, never), never
    else:
        # Both leading ones at bit PLACE: room above for a carry; the exponent of zero is below all others.
        PLACE: tl.constexpr = f2.dtype.primitive_bitwidth - 4
        zero2, zero3 = f2 == 0, f3 == 0
        up2, up3 = PLACE - top(f2 | zero2.to(f2.dtype)), PLACE - top(f3 | zero3.to(f3.dtype))
        f2, e2 = f2 << up2, tl.where(zero2, -(1 << 20), e2 - up2)
        f3, e3 = f3 << up3, tl.where(zero3, -(1 << 20), e3 - up3)
        less = (e2 < e3) | ((e2 == e3) & (f2 < f3))
        big, small = tl.where(less, f3, f2), tl.where(less, f2, f3)
        distance = tl.minimum(tl.abs(e2 - e3), PLACE + 2)
        moved = small >> distance
        sticky = (moved << distance) != small
        subtract = s2 ^ s3
        total = tl.where(subtract, big - moved - sticky.to(big.dtype), big + moved)
        # An exactly cancelled sum is -0 if it is rounded down.
        cancelled = s2 & s3
        if R.mode == "rd":
            cancelled = cancelled | subtract
        sign = tl.where(total == 0, cancelled, tl.where(less, s3, s2))
        inf = inf2 | inf3
        sign = tl.where(inf, tl.where(inf2, s2, s3), sign)
        return (sign, tl.maximum(e2, e3), total, nan2 | nan3 | (inf2 & inf3 & subtract), inf), sticky


@triton.jit
def _unpack_float(code, F: tl.constexpr):
    MAX: tl.constexpr = F.max_code
    MAN: tl.constexpr = F.man
    SPECIALS: tl.constexpr = F.specials
    magnitude = code & ~F.sign_code
    field = magnitude >> MAN
    significand = magnitude & ((1 << MAN) - 1)
    significand = tl.where(field > 0, significand | (1 << MAN), significand if F.subnormals else 0)
    nan, inf = magnitude < 0, magnitude < 0
    if SPECIALS == "ieee":
        nan, inf = magnitude > MAX + 1, magnitude == MAX + 1
    elif SPECIALS != "finite":
        nan = (magnitude if SPECIALS == "fn" else code) == F.nan_code
        if SPECIALS == "uz":
            inf = magnitude == MAX + 1
    return (code & F.sign_code) != 0, (tl.maximum(field, 1) - F.bias - MAN).to(tl.int32), significand, nan, inf


@triton.jit
def _pack_float(x, sticky, word, R: tl.constexpr, F: tl.constexpr):
    sign, exponent, significand, nan, inf = x
    MAX: tl.constexpr = F.max_code
    MAN: tl.constexpr = F.man
    SPECIALS: tl.constexpr = F.specials
    LEAST: tl.constexpr = 1 - F.bias - MAN
    LARGEST: tl.constexpr = (MAX & ((1 << MAN) - 1)) | (1 << MAN)
    TOP: tl.constexpr = (MAX >> MAN) - 1
    zero = significand == 0
    last_place = exponent + top(significand | zero.to(significand.dtype)) - MAN
    if F.subnormals:
        last_place = tl.maximum(last_place, LEAST)
    truncated, seen, sticky = truncate(significand, last_place - exponent, sticky, R.places)
    truncated += round_up(sign, truncated & 1, seen, sticky, word, R, False)
    carry = truncated >> (MAN + 1)
    field = last_place - LEAST + carry
    truncated = truncated >> carry
    over = ((field > TOP) | ((field == TOP) & (truncated > LARGEST))) & (zero == 0)
    magnitude = (tl.minimum(tl.maximum(field, 0), TOP).to(truncated.dtype) << MAN) + truncated
    tiny = zero if F.subnormals else zero | (field < 0)
    magnitude = tl.where(over, MAX, tl.where(tiny, 0, magnitude))
    infinite = inf | (over & (tl.where(sign, R.negative_stays, R.positive_stays) == 0))
    if R.finite or SPECIALS == "finite":
        magnitude = tl.where(infinite, MAX, magnitude)
    elif (SPECIALS == "ieee") | (SPECIALS == "uz"):
        magnitude = tl.where(infinite, MAX + 1, magnitude)
    else:
        nan = nan | infinite
    if (SPECIALS == "fnuz") | (SPECIALS == "uz"):
        sign = sign & (magnitude != 0)
    return tl.where(nan, F.nan_code, tl.where(sign, magnitude | F.sign_code, magnitude))


@triton.jit
def _unpack_fixed(code, F: tl.constexpr):
    never = code != code
    sign = never
    if F.signed:
        sign = (code >> (F.width - 1)) & 1 != 0
    return sign, tl.zeros(code.shape, tl.int32) + F.quantum, tl.where(sign, -code & F.ones, code), never, never


@triton.jit
def _pack_fixed(x, sticky, word, R: tl.constexpr, F: tl.constexpr):
    sign, exponent, significand, nan, inf = x
    shift = F.quantum - exponent
    integer, seen, sticky = truncate(significand, shift, sticky, R.places)
    inexact = ((seen != 0) | sticky).to(integer.dtype)
    # The floor of a negative number is below its truncation; the discarded part is measured from the floor.
    minus = sign.to(integer.dtype)
    rest = tl.where(sign, -(seen + sticky.to(seen.dtype)), seen) & ((1 << R.places) - 1)
    up = round_up(sign, (integer ^ (minus & inexact)) & 1, rest, sticky, word, R, True)
    integer += tl.where(sign, inexact - up, up)
    code = tl.where(sign, -integer, integer) & F.ones
    beyond = inf
    if R.saturate or not F.wraps:
        far = (significand != 0) & (top(significand) - shift > F.width)
        beyond = inf | far | (integer > tl.where(sign, F.lowest, F.largest_code))
    code = tl.where(beyond, tl.where(sign, F.lowest_code, F.largest_code), code)
    return tl.where(nan, 0, code)


@triton.jit
def _unpack_string(code, F: tl.constexpr):
    """Unpack posits or takums, whose negative codes are two's complements."""
    WIDTH: tl.constexpr = F.width
    FRACTION: tl.constexpr = F.fraction_bits
    sign = (code >> (WIDTH - 1)) & 1 != 0
    magnitude = tl.where(sign, -code, code) & (F.ones >> 1)
    if F.family == "Posit":
        ONES: tl.constexpr = (1 << (WIDTH - 1)) - 1
        SHORT: tl.constexpr = F.es + 3 - WIDTH if F.es + 3 > WIDTH else 0
        up = (magnitude >> (WIDTH - 2)) & 1 != 0
        run = WIDTH - 1 - top(2 * tl.where(up, ~magnitude & ONES, magnitude) + 1)
        # The bits after the regime, shifted left to their place after the shortest regime, which has two bits.
        tail = ((magnitude << run << 1) & ONES) >> 2
        exponent = (tl.where(up, run - 1, -run) << F.es) + ((tail << SHORT) >> FRACTION).to(tl.int32)
        fraction = tail & ((1 << FRACTION) - 1)
    else:
        # Zeros extend a code of less than 12 bits.
        FULL: tl.constexpr = WIDTH if WIDTH > 12 else 12
        TAIL: tl.constexpr = FULL - 5
        magnitude = magnitude << (FULL - WIDTH)
        up = (magnitude >> (TAIL + 3)) & 1 != 0
        regime = ((magnitude >> TAIL) & 7).to(tl.int32)
        bits = tl.where(up, regime, 7 - regime)
        characteristic = ((magnitude >> (TAIL - bits)) & ((1 << bits) - 1)).to(tl.int32)
        exponent = tl.where(up, (1 << bits) - 1, 1 - (2 << bits)) + characteristic
        fraction = ((magnitude << bits) & ((1 << TAIL) - 1)) >> (TAIL - FRACTION)
    never = code != code
    significand = tl.where(code == 0, 0, fraction | (1 << FRACTION))
    return sign, exponent - FRACTION, significand, code == F.nan_code, never


@triton.jit
def _pack_string(x, sticky, word, R: tl.constexpr, F: tl.constexpr):
    """Round posits or takums on their bit strings, never to zero or NaN."""
    sign, exponent, significand, nan, inf = x
    WIDTH: tl.constexpr = F.width
    MOST: tl.constexpr = significand.dtype.primitive_bitwidth - 2 - PREFIX
    zero = significand == 0
    fraction = top(significand | zero.to(significand.dtype))
    scale = exponent + fraction
    # Room above the fraction for the bits before it.
    over = tl.maximum(fraction - MOST, 0)
    significand, _, sticky = truncate(significand, over, sticky, 0)
    fraction = fraction - over
    above, below = scale > F.most, scale < F.least
    scale = tl.minimum(tl.maximum(scale, F.least), F.most)
    if F.family == "Posit":
        ES: tl.constexpr = F.es
        k = scale >> ES
        prefix = scale & ((1 << ES) - 1)
        room = WIDTH - 1 - ES - tl.where(k >= 0, k + 2, 1 - k)
        unit = (significand * 0) + 1
        ones = (1 << (WIDTH - 1)) - (unit << (WIDTH - 2 - tl.maximum(k, 0)))
        regime = tl.where(k >= 0, ones, unit << (WIDTH - 2 + tl.minimum(k, 0)))
    else:
        up = scale >= 0
        bits = top(tl.where(up, scale + 1, -scale))
        characteristic = scale + tl.where(up, 1 - (1 << bits), (2 << bits) - 1)
        prefix = (tl.where(up, 8 | bits, 7 - bits) << bits) | characteristic
        room = WIDTH - 5 - bits
        regime = significand * 0
    string = (prefix.to(significand.dtype) << fraction) | (significand ^ ((significand * 0 + 1) << fraction))
    truncated, seen, sticky = truncate(string, fraction - room, sticky, R.places)
    magnitude = regime + truncated
    rounded = magnitude + round_up(sign, magnitude & 1, seen, sticky, word, R, False)
    magnitude = tl.where(above | (magnitude == F.max_code), F.max_code, tl.maximum(rounded, 1))
    magnitude = tl.where(zero, 0, tl.where(below, 1, magnitude))
    if R.finite:
        magnitude = tl.where(inf, F.max_code, magnitude)
    else:
        nan = nan | inf
    code = tl.where(sign, -magnitude, magnitude) & F.ones
    return tl.where(nan, F.nan_code, code)
