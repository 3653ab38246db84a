"""Unpacking and rounding of floating-point codes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from amaranth.hdl import Cat, Const, Module, Mux, Value

from .formats import SATFINITE, Float, Rounding, Saturation
from .raw import Anticipated, LeadingZeros, Promises, Raw, leading_zeros_of
from .round import ChosenRounding, Flags, RoundingBits, is_exact, round_up, to_largest
from .wire import (
    LONGEST_CARRY_IN_TABLES,
    NEVER,
    bounds,
    incremented,
    narrowed,
    reaches,
    shift_left,
    shift_left_sticky,
    shift_right_sticky,
    wire,
)


def unpack(m: Module, bits: Value, fmt: Float, name: str) -> Raw:
    """Unpack a code to a raw number."""
    mantissa, field, sign = bits[: fmt.man], bits[fmt.man : -1], bits[-1]
    hidden = wire(m, field.any(), f"{name}_hidden")
    if fmt.subnormals:
        significand = Cat(mantissa, hidden)
    else:
        significand = Cat(mantissa & hidden.replicate(fmt.man), hidden)
    nan, inf = _is_special(fmt, bits)
    return Raw(
        sign=sign,
        exponent=wire(m, field | ~hidden, f"{name}_exponent"),
        significand=wire(m, significand, f"{name}_significand"),
        nan=wire(m, nan, f"{name}_nan"),
        inf=wire(m, inf, f"{name}_inf"),
        zero=wire(m, ~significand.any(), f"{name}_zero"),
        base=-fmt.bias,
        promises=Promises(
            emin=fmt.emin,
            emax=fmt.emax,
            leading=LeadingZeros.AT_FLOOR if fmt.subnormals and fmt.man else LeadingZeros.NONE,
            zero_at_floor=True,
        ),
        anticipated=Anticipated(magnitude=(fmt, bits[:-1])),
    )


def is_signalling(bits: Value, fmt: Float) -> Value:
    """Return True for the code of a signalling NaN: its first mantissa bit is 0, and there are other NaNs."""
    if fmt.specials != "ieee" or fmt.man < 2:
        return NEVER
    return bits[fmt.man : -1].all() & ~bits[fmt.man - 1] & bits[: fmt.man - 1].any()


def _is_special(fmt: Float, bits: Value) -> tuple[Value, Value]:
    """Return the conditions for codes of NaN and of infinity."""
    magnitude = bits[:-1]
    if fmt.specials == "fnuz":
        return bits == fmt.sign_code, NEVER
    if fmt.specials == "fn":
        return magnitude == fmt.nan_code, NEVER
    if fmt.specials == "finite":
        return NEVER, NEVER
    if fmt.specials == "uz":
        return bits == fmt.sign_code, magnitude == fmt.inf_code
    all_ones, fraction = magnitude[fmt.man :].all(), magnitude[: fmt.man].any()
    return all_ones & fraction, all_ones & ~fraction


@dataclass(frozen=True)
class TruncatedFloat:
    """Number truncated at the last place of a floating-point format.

    The code of its truncated magnitude is ``(field << man) + kept``. The hidden bit of ``kept`` adds the difference of
    one between the exponent fields of normal and subnormal numbers. With ``anticipated`` leading zeros, it can be zero
    in normal numbers, whose field is then that of the code. ``last`` is the last bit of the truncated significand.
    With ``complement``, ``discarded`` and ``sticky`` are bits of the two's complement of the magnitude, and ``kept`` is
    the inverse of its upper bits; if all of the lower ones are zero, the truncated magnitude is one more.
    If the field of a zero is not 0, ``zero_has_code`` is false. ``normal_field``, if present, is one less than the
    exponent field of a normal number; its last bit is true for other numbers that cannot overflow.
    """

    sign: Value
    field: Value
    kept: Value
    last: Value
    discarded: Value
    sticky: Value
    nan: Value
    inf: Value
    zero: Value
    highest: int
    up: Value | None
    normal_field: Value | None = None
    zero_has_code: bool = True
    anticipated: bool = False
    complement: Value | None = None
    selects_carry: bool = False

    @classmethod
    def of(cls, x: Raw, **parts: Any) -> Self:
        """Return a truncated number with the sign and the properties of a raw number."""
        return cls(
            sign=x.sign,
            nan=x.nan,
            inf=x.inf,
            zero=x.zero,
            highest=x.promises.emax,
            zero_has_code=x.promises.zero_emax is None,
            up=x.anticipated.up,
            complement=x.anticipated.complement,
            selects_carry=x.anticipated.selects_carry,
            **parts,
        )

    def exponent_reaches(self, code: int) -> Value:
        """Return True if the exponent field of the code is at least ``code``."""
        carry = self.kept[-1]
        if self.anticipated:
            return Mux(carry, reaches(self.field, code - 1), reaches(self.field, code))
        # Beside the shift and the addition before, a carry chain is shorter after place and route.
        return carry & (self.field >= code - 1)

    def exponent_is(self, code: int) -> Value:
        """Return True if the exponent field of the code is ``code``."""
        carry = self.kept[-1]
        if self.anticipated:
            return Mux(carry, self.field == code - 1, self.field == code)
        return carry & (self.field == code - 1)


def truncate(m: Module, x: Raw, o: Float, rounding: Rounding) -> TruncatedFloat:
    """Normalise a number, or shift it to the last place of subnormals, and truncate it.

    Without subnormals every number is normalised: rounding assumes an unbounded exponent, and tiny results are flushed.
    """
    if x.anticipated.zeros is not None:
        return _truncate_anticipated(m, x, o, rounding)
    can_be_subnormal = _can_be_subnormal(x, o)
    if can_be_subnormal and x.promises.leading is LeadingZeros.AT_MOST_ONE:
        return _truncate_from_second_bit(m, x, o, rounding)
    # Places that the number can shift up before it is subnormal in o; if negative, it must shift down.
    room = _room(m, x, o.emin)
    up, field = _shift_and_field(m, x, o, room)
    field = _code_field(x, o, field)
    shifted, sticky = _shift_up(m, x, up, o.precision + _places(x, rounding))
    complement = x.anticipated.complement
    if can_be_subnormal:
        down = wire(m, _places_down(room, o.emin - x.promises.emin, len(shifted)), "places_down")
        fill = NEVER if complement is None else complement
        shifted, lost = shift_right_sticky(m, shifted, down, "shifted_down", fill=fill)
        sticky = sticky | lost
    discarded = len(shifted) - o.precision
    field, kept = wire(m, field, "field"), shifted[discarded:]
    if complement is not None:
        kept = kept ^ complement.replicate(len(kept))
    kept = wire(m, kept, "kept")
    return TruncatedFloat.of(
        x,
        field=field,
        kept=kept,
        last=kept[0],
        discarded=wire(m, shifted[:discarded], "discarded"),
        sticky=wire(m, sticky, "sticky"),
    )


def _can_be_subnormal(x: Raw, o: Float) -> bool:
    """Return True if a number can have an exponent below that of subnormal numbers of a format."""
    return o.subnormals and x.promises.emin < o.emin


def _places(x: Raw, rounding: Rounding) -> int:
    """Return the number of discarded bits that rounding tells from others; none if it is already decided."""
    return rounding.places if x.anticipated.up is None else 0


def _code_field(x: Raw, o: Float, field: Value) -> Value:
    """Return the exponent field in the bits of a code with subnormals.

    A zero can have any exponent, but its code has the field 0.
    """
    if not o.subnormals:
        return field
    if x.promises.zero_emax is None:
        field = Mux(x.zero, 0, field)
    return field[: max((x.promises.emax - o.emin).bit_length(), 1)]


def _shift_and_field(m: Module, x: Raw, o: Float, room: Value) -> tuple[Value, Value]:
    """Return the places by which a number is shifted up, and its exponent field."""
    leading, can_be_subnormal = x.promises.leading, _can_be_subnormal(x, o)
    are_subnormal = o.subnormals and leading is LeadingZeros.AT_FLOOR and x.promises.emin <= o.emin
    if leading is LeadingZeros.NONE or are_subnormal:
        # All leading zeros are in the subnormal range of o.
        return Const(0, 0), Mux(room < 0, 0, room) if can_be_subnormal else room
    count = leading_zeros_of(m, x, "leading_zeros")
    field = _normal_field(m, room, count, x, o)
    if not o.subnormals or x.quantum >= o.emin:
        return count, field
    subnormal = wire(m, field < 0, "subnormal")
    room_up = Mux(room < 0, 0, room) if can_be_subnormal else room
    up = wire(m, Mux(subnormal, room_up, count)[: len(count)], "shift_up")
    return up, Mux(subnormal, 0, field)


def _shift_up(m: Module, x: Raw, up: Value, width: int) -> tuple[Value, Value]:
    """Return the significand shifted up, in at least ``width`` bits that rounding needs, and the sticky bit."""
    # Zeros fill missing low bits; the shift down needs them.
    missing = max(width - len(x.significand), 0)
    filled = Cat(Const(0, missing), x.significand)
    if not len(up):
        return filled, x.sticky
    if x.promises.tail + missing:
        return shift_left(m, filled, up, "shifted_up", x.promises.tail + missing), x.sticky
    # Bits below the discarded ones that rounding needs are merged into sticky.
    shifted, below = shift_left_sticky(m, filled, up, "shifted_up", width)
    return shifted, x.sticky | below


def _truncate_from_second_bit(m: Module, x: Raw, o: Float, rounding: Rounding) -> TruncatedFloat:
    """Truncate a number with a possible leading zero that can be subnormal: it is only shifted down.

    Normal numbers whose first bit is one have two hidden bits before they are shifted by one place.
    """
    zero_emax = x.promises.zero_emax
    # Places of the second bit above the exponent of subnormals.
    room = _room(m, x, o.emin + 1)
    field = _code_field(x, o, Mux(room < 0, 0, room))
    missing = max(o.precision + _places(x, rounding) - len(x.significand) + 1, 0)
    # With `zero_emax`, the code of a zero does not depend on its rounding.
    zero = x.zero if zero_emax is None else NEVER
    filled = Cat(Const(0, missing), x.significand)
    shifted, lost = _shift_down(m, filled, room, o.emin - x.promises.emin + 1, zero)
    discarded = len(shifted) - o.precision - 1
    field, kept = wire(m, field, "field"), shifted[discarded:]
    last = kept[0]
    # A carry adds one to the field of a normal number, as two hidden bits.
    first = x.significand[-1]
    carry = wire(m, first & ~room[-1], "carry")
    kept = Cat(kept[: o.man], kept[o.man] & ~carry, carry)
    is_below = room[-1]
    if zero_emax is not None and zero_emax >= o.emax:
        is_below = is_below | x.zero
    normal_field = wire(m, Cat((room[:-1] + first)[: len(room) - 1], is_below), "normal_field")
    kept = wire(m, kept, "kept")
    return TruncatedFloat.of(
        x,
        field=field,
        kept=kept,
        # Without mantissa bits it is the hidden bit, also of a number with two of them.
        last=kept[0] if o.man else last,
        discarded=wire(m, shifted[:discarded], "discarded"),
        sticky=wire(m, x.sticky | lost, "sticky"),
        normal_field=normal_field,
    )


def _truncate_anticipated(m: Module, x: Raw, o: Float, rounding: Rounding) -> TruncatedFloat:
    """Truncate a number with anticipated leading zeros: one shifter normalises it or shifts it to the last place.

    The shift may be one place short; then the first bit is zero, and the second one takes its place. The first bit
    before this correction is the difference of one between ``field`` and the exponent field of the code.
    """
    assert x.anticipated.zeros is not None
    # Numbers of an exponent that is not above o.emin are subnormal with any leading zero.
    exclusive = o.subnormals and x.promises.emin <= o.emin
    count = wire(m, _total(x.anticipated.zeros, exclusive=exclusive), "anticipated_zeros")
    keep = o.precision + _places(x, rounding) + 1
    # The number starts at the lowest place that rounding tells from others, and all shifts are up.
    down = min(o.emin - x.promises.emin, keep) if _can_be_subnormal(x, o) else 0
    room = _room(m, x, o.emin)
    normal_field = _normal_field(m, room, count, x, o)
    up, field, more = count + down, normal_field, Const(1, 1)
    if x.anticipated.limited:
        more = room != count
    elif o.subnormals and x.quantum < o.emin:
        subnormal = normal_field[-1]
        room_up = wire(m, room + down, "room_up")
        room_up = room_up & ~room_up[-1].replicate(len(room_up)) if down < o.emin - x.promises.emin else room_up
        up = Mux(subnormal, room_up, up)
        field = Mux(subnormal, 0, normal_field)
        more = ~subnormal & normal_field.any()
    up = wire(m, up[: (down + (1 << len(count)) - 1).bit_length()], "shift_up")
    field = _code_field(x, o, field)
    missing = max(keep - len(x.significand) - down, 0)
    shifted, below = shift_left_sticky(m, Cat(Const(0, missing), x.significand, Const(0, down)), up, "shifted_up", keep)
    correct = wire(m, ~shifted[-1] & more, "shift_up_by_one")
    corrected = wire(m, Mux(correct, Cat(Const(0, 1), shifted[:-1]), shifted), "corrected")
    discarded = keep - o.precision
    return TruncatedFloat.of(
        x,
        field=wire(m, field, "field"),
        kept=wire(m, Cat(corrected[discarded:-1], shifted[-1]), "kept"),
        last=corrected[discarded],
        discarded=wire(m, corrected[:discarded], "discarded"),
        sticky=wire(m, x.sticky | below, "sticky"),
        anticipated=True,
    )


def _room(m: Module, x: Raw, emin: int) -> Value:
    """Return the number of places above ``emin`` of a number's exponent; negative below it."""
    more = x.base - emin
    low, high = bounds(x.exponent)
    return wire(m, narrowed(x.exponent + more, low + more, high + more), "room")


def _normal_field(m: Module, room: Value, count: Value, x: Raw, o: Float) -> Value:
    """Return the exponent field of a normalised number, from the places above ``o.emin`` and its leading zeros."""
    low, high = (bound + x.base - o.emin for bound in bounds(x.exponent))
    return wire(m, narrowed(room - count, low - bounds(count)[1], high), "normal_field")


def _total(counts: Sequence[Value], *, exclusive: bool) -> Value:
    """Return the sum of counts, or a number that is zero only with the sum if all but one must be zero."""
    total: Value = Const(0, 0)
    for count in counts:
        total = total | count if exclusive else total + count if len(total) else count
    return total


def _shift_down(m: Module, value: Value, room: Value, most: int, zero: Value) -> tuple[Value, Value]:
    """Return a value shifted down by ``-room`` places if that is positive, and the OR of the bits shifted out.

    Other values are shifted by one place if their first bit is one. ``most`` is the maximum of -room. The inverse of
    ``room`` is one place less, and the same multiplexer adds it and normalises other values. A value that is zero
    without ``zero`` may lose ones.
    """
    negative = room[-1]
    bits = min(most - 1, len(value) - 1).bit_length()
    places = wire(m, ~room[:bits] & negative.replicate(bits), "places_down")
    steps = [(wire(m, negative | value[-1], "down_once"), 1), *((places[level], 1 << level) for level in range(bits))]
    lost: Value = NEVER
    for select, step in steps:
        lost = lost | (select & value[:step].any())
        value = wire(m, Mux(select, value[step:], value), f"shifted_down_by_{step}")
    if (most - 1) >> bits:
        far = wire(m, negative & ~room[bits:-1].all(), "far_down")
        value, lost = value & (~far).replicate(len(value)), lost | (far & ~zero)
    return value, wire(m, lost, "shifted_down_lost")


def _places_down(room: Value, most: int, width: int) -> Value:
    """Return -room if it is positive, else zero, in the fewest bits that can shift out ``width`` places.

    ``most`` is the maximum of -room. Values that need more bits become all ones.
    """
    bits = min(most, width).bit_length()
    places = (-room[:bits])[:bits]
    if most >> bits:
        # If the low bits of room are zero, -room is at least 2^bits.
        far = ~room[bits:-1].all() | ~room[:bits].any()
        places = places | far.replicate(bits)
    return places & room[-1].replicate(bits)


def pack(
    m: Module, x: TruncatedFloat, o: Float, rounding: Rounding, saturating: Saturation, random: Value | None
) -> Value:
    """Round a number once to a code."""
    return pack_with_flags(m, x, o, rounding, saturating, random)[0]


def pack_with_flags(
    m: Module, x: TruncatedFloat, o: Float, rounding: Rounding, saturating: Saturation, random: Value | None
) -> tuple[Value, Flags]:
    """Round a number once to a code, and return its flags; with the rounding's guard bit, tiny after rounding.

    Special results (infinity, NaN, overflow, flushed numbers) replace the truncated number before the rounding adder,
    so that no multiplexer follows it. If one carry chain adds the random word and rounds, the chain is longer than the
    path of their conditions, and they replace its sum.
    """
    up, is_one_chain = x.up, _is_one_chain(x, o, rounding)
    if up is None and not is_one_chain:
        bits = RoundingBits(x.sign, x.last, x.discarded, x.sticky, complement=x.complement)
        up = wire(m, round_up(rounding, bits, random), "round_up")
    end = _range_end(m, x, o, rounding, saturating, up)
    tiny = _flushed(x, o, up)
    nan, infinite, largest = x.nan, end.infinite, end.largest
    if saturating == SATFINITE:
        infinite, largest = NEVER, largest | infinite
    if o.specials in ("fn", "fnuz"):
        nan, infinite = nan | infinite, NEVER
    if is_one_chain:
        largest = largest | end.stays
    given = wire(m, nan | infinite | largest | tiny, "given")
    code = _given_code(o, nan, infinite, largest)
    # A carry out of the mantissa increments the exponent, also from subnormal to normal.
    if is_one_chain:
        assert random is not None
        up, rounded = _rounded_by_random(m, x, o, rounding, random)
        magnitude = Mux(given, code, rounded)
    else:
        assert up is not None
        field = Mux(given, code[o.man :], x.field)[: o.exp]
        kept = Mux(given, code[: o.man], x.kept)
        magnitude = _rounded(m, x, o, field, kept, up & ~given & ~end.stays)
    magnitude = wire(m, magnitude[: o.width - 1], "magnitude")
    sign: Value = Mux(nan | end.becomes_nan, o.nan_code >> (o.width - 1), x.sign)
    if not o.has_negative_zero:
        sign = sign & (nan | magnitude.any())
    exceeds = end.over | (end.at_largest & up)
    return Cat(magnitude, sign[:1]), _flags(x, o, rounding, random, exceeds, tiny, up)


class RangeEnd(NamedTuple):
    """Conditions of a number at the upper end of the range of its format.

    Attributes
    ----------
    over : Value
        The number is larger than the largest one, before its rounding or in spite of it.
    at_largest : Value
        The truncated number is the largest one.
    infinite : Value
        The result is an infinity, or the code that the format has for it.
    largest : Value
        The result is the largest number.
    stays : Value
        The largest number is not rounded up.
    becomes_nan : Value
        The largest number is rounded up to the code of NaN.
    """

    over: Value
    at_largest: Value
    infinite: Value
    largest: Value
    stays: Value
    becomes_nan: Value


def _range_end(
    m: Module, x: TruncatedFloat, o: Float, rounding: Rounding, saturating: Saturation, up: Value | None
) -> RangeEnd:
    """Return the conditions at the upper end of the range; ``up`` is the rounding decision."""
    if x.highest < o.emax:
        return RangeEnd(NEVER, NEVER, x.inf, NEVER, NEVER, NEVER)
    stays, becomes_nan = NEVER, NEVER
    over = _reaches(x, o, o.max_code + 1)
    at_largest = _reaches(x, o, o.max_code) & ~over
    if x.complement is not None:
        # The number after the largest one, before its negation carries.
        beyond = at_largest & x.complement & is_exact(x.discarded, x.sticky)
        over, at_largest = over | beyond, at_largest & ~beyond
    stays_finite = to_largest(rounding, x.sign, saturating)
    if o.specials == "finite" or saturating or rounding.mode == "ro":
        stays = at_largest
    else:
        if isinstance(rounding, ChosenRounding) and not o.max_code & 1:
            # Rounding to odd would leave the largest number, whose code is even.
            stays = at_largest & rounding.is_mode("ro")
        if o.specials == "fnuz":
            # In other formats the code after the largest number is the code of an infinite result.
            over = over | (at_largest & up)
        elif o.specials == "fn":
            becomes_nan = at_largest & up
            if isinstance(rounding, ChosenRounding):
                becomes_nan = becomes_nan & ~stays
    over = wire(m, over, "overflow")
    return RangeEnd(over, at_largest, x.inf | (over & ~stays_finite), over & stays_finite, stays, becomes_nan)


def _flushed(x: TruncatedFloat, o: Float, up: Value | None) -> Value:
    """Return True if the result is zero although its truncated number may not be."""
    if o.subnormals:
        return NEVER if x.zero_has_code else x.zero
    # In a format without subnormals the field is negative below the smallest normal number.
    below = _is_below(x)
    just_below = x.exponent_is(0) & x.kept[:-1].all() if x.anticipated else (x.field == -1) & x.kept.all()
    rounds_to_smallest = just_below & up
    return x.zero | (below & ~rounds_to_smallest)


def _given_code(o: Float, nan: Value, infinite: Value, largest: Value) -> Value:
    """Return the magnitude of the code of a special result, or of zero."""
    magnitudes = [code & (o.sign_code - 1) for code in (o.nan_code, o.infinity(negative=False), o.max_code, 0)]
    code: Value = Const(magnitudes[-1], o.width - 1)
    for condition, magnitude in zip((largest, infinite, nan), magnitudes[2::-1], strict=True):
        code = Mux(condition, Const(magnitude, o.width - 1), code)
    return code


def _rounded(m: Module, x: TruncatedFloat, o: Float, field: Value, kept: Value, carry: Value) -> Value:
    """Return a rounded magnitude from its exponent field and significand, in the place of those of ``x``."""
    if not x.selects_carry:
        return Cat(Const(0, o.man), field) + kept + carry
    upper = wire(m, (field + kept[o.man :])[: o.exp], "exponent_field")
    return incremented(m, Cat(kept[: o.man], upper), carry, "rounded")


def _rounded_by_random(
    m: Module, x: TruncatedFloat, o: Float, rounding: Rounding, random: Value
) -> tuple[Value, Value]:
    """Return the rounding decision and the rounded magnitude, by one carry chain that adds the random word."""
    seen = min(rounding.bits, len(x.discarded))
    number = Cat(x.discarded[len(x.discarded) - seen :], x.kept[: o.man], x.field[: o.exp])
    total = number + Cat(random[rounding.bits - seen :], Const(0, o.man), x.kept[o.man :])
    total = wire(m, total, "rounded")
    return total[seen] ^ x.kept[0], total[seen:]


def _is_one_chain(x: TruncatedFloat, o: Float, rounding: Rounding) -> bool:
    """Return True if one carry chain adds the random word and rounds, because nothing else depends on the decision."""
    if rounding.mode != "sr" or isinstance(rounding, ChosenRounding) or x.up is not None or x.complement is not None:
        return False
    is_chain = min(rounding.bits, len(x.discarded)) > LONGEST_CARRY_IN_TABLES
    return is_chain and x.anticipated and o.subnormals and o.specials not in ("fn", "fnuz")


def _flags(
    x: TruncatedFloat, o: Float, rounding: Rounding, random: Value | None, exceeds: Value, flushed: Value, up: Value
) -> Flags:
    """Return the flags of a rounded number.

    A result is tiny after its rounding if it is below the smallest normal number with one more bit too.
    """
    regular = ~(x.nan | x.inf | x.zero)
    inexact = x.discarded.any() | x.sticky | exceeds
    tiny = ~x.exponent_reaches(1) if x.anticipated else ~x.kept[o.man :].any()
    if not o.subnormals:
        inexact = inexact | flushed
        # A number that rounds to the smallest normal one is not tiny after its rounding.
        tiny = flushed if rounding.guard else flushed | _is_below(x)
    elif rounding.guard:
        last = x.discarded[-1] if x.complement is None else x.discarded[-1] ^ x.complement
        bits = RoundingBits(x.sign, last, x.discarded[:-1], x.sticky, complement=x.complement)
        rounds_up = round_up(rounding, bits, random)
        tiny = tiny & ~(x.kept[: o.man].all() & last & rounds_up)
    no_nan, no_inf = (NEVER if has else flag for has, flag in ((o.has_nan, x.nan), (o.has_inf, x.inf & ~x.nan)))
    return Flags(
        inexact=regular & inexact,
        underflow=regular & inexact & tiny,
        overflow=regular & exceeds,
        lost_nan=no_nan,
        lost_inf=no_inf,
    )


def _is_below(x: TruncatedFloat) -> Value:
    """Return True if a truncated number is below the smallest normal one, in a format without subnormals."""
    if x.anticipated:
        return ~x.exponent_reaches(1)
    # The field is unsigned if no number is below the smallest one.
    return x.field < 0 if x.field.shape().signed else NEVER


def _reaches(x: TruncatedFloat, o: Float, code: int) -> Value:
    """Return True if the code of the truncated number is at least ``code``.

    The exponent field of the code is ``x.field`` plus the first bit of ``x.kept``, or one more than ``x.normal_field``.
    """
    field, rest = divmod(code, 1 << o.man)
    hidden, mantissa = x.kept[o.man :].any(), x.kept[: o.man]
    if field == 0:
        return hidden | (x.field > 0) | reaches(mantissa, rest)
    reached = reaches(mantissa, rest) if rest else Const(1, 1)
    if x.normal_field is not None:
        normal = x.normal_field[:-1]
        above = reaches(normal, field) | ((normal == field - 1) & reached) if rest else reaches(normal, field - 1)
        return ~x.normal_field[-1] & above
    return x.exponent_reaches(field + 1) | (x.exponent_is(field) & reached)
