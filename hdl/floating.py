"""Floating-point codes: to raw numbers, and back with one rounding."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Value

from .formats import Float, Rounding
from .raw import Raw, leading_zeros_of
from .round import places, round_up
from .shape import is_special
from .wire import shift_left, shift_right_sticky, wire


def unpack(m: Module, bits: Value, fmt: Float, name: str) -> Raw:
    """Raw number of a code."""
    mantissa, field, sign = bits[: fmt.man], bits[fmt.man : -1], bits[-1]
    hidden = wire(m, field.any(), f"{name}_hidden")
    if fmt.subnormals:
        significand = Cat(mantissa, hidden)
    else:
        significand = Cat(mantissa & hidden.replicate(fmt.man), hidden)
    nan, inf = is_special(fmt, bits)
    return Raw(
        sign=sign,
        exponent=wire(m, field | ~hidden, f"{name}_exponent"),
        significand=wire(m, significand, f"{name}_significand"),
        nan=wire(m, nan, f"{name}_nan"),
        inf=wire(m, inf, f"{name}_inf"),
        zero=wire(m, ~significand.any(), f"{name}_zero"),
        sticky=Const(0, 1),
        base=-fmt.bias,
        emin=fmt.emin,
        emax=fmt.emax,
        leading="floor" if fmt.subnormals and fmt.man else "one",
        zero_at_floor=True,
    )


@dataclass(frozen=True)
class Cut:
    """A number cut at the last place of a floating-point format.

    The code of its magnitude, truncated, is ``(field << man) + kept``: the hidden bit of ``kept`` adds the one that a
    normal number's exponent field has more than a subnormal's.
    """

    sign: Value
    field: Value
    kept: Value
    discarded: Value
    sticky: Value
    nan: Value
    inf: Value
    zero: Value
    highest: int
    up: Value | None


def cut(m: Module, x: Raw, o: Float, rounding: Rounding) -> Cut:
    """Shift a number so that its first bit comes first, or its last place is the smallest that ``o`` has.

    Without subnormals only the former: rounding is as if the exponent were unbounded, and what is then too small is
    flushed.
    """
    count = leading_zeros_of(m, x, "leading_zeros")
    # Places that the number may move up before it is subnormal in o; below zero it has to move down.
    room = wire(m, x.exponent + (x.base - o.emin), "room")
    up, field = count, wire(m, room - count, "normal_field")
    smallest = x.emin if x.leading == "one" else x.quantum
    if o.subnormals and smallest < o.emin:
        subnormal = wire(m, field < 0, "subnormal")
        room_up = Mux(room < 0, 0, room) if x.emin < o.emin else room
        up = wire(m, Mux(subnormal, room_up, count)[: len(count)], "shift_up")
        field = Mux(subnormal, 0, field)
    if o.subnormals:
        # Zero has some exponent; its code has none.
        field = Mux(x.zero, 0, field)[: max((x.emax - o.emin).bit_length(), 1)]

    # Missing places below are zeros, and the shift down needs them.
    seen = places(rounding) if x.up is None else 0
    missing = max(o.precision + seen - len(x.significand), 0)
    shifted, sticky = Cat(Const(0, missing), x.significand), x.sticky
    if x.leading != "one":
        shifted = shift_left(m, shifted, up, "shifted_up", x.tail + missing)
    if o.subnormals and x.emin < o.emin:
        down = wire(m, Mux(room < 0, -room, 0)[: (o.emin - x.base).bit_length()], "places_down")
        shifted, lost = shift_right_sticky(m, shifted, down, "shifted_down")
        sticky = sticky | lost
    discarded = len(shifted) - o.precision
    return Cut(
        sign=x.sign,
        field=wire(m, field, "field"),
        kept=wire(m, shifted[discarded:], "kept"),
        discarded=wire(m, shifted[:discarded], "discarded"),
        sticky=wire(m, sticky, "sticky"),
        nan=x.nan,
        inf=x.inf,
        zero=x.zero,
        highest=x.emax,
        up=x.up,
    )


def pack(m: Module, x: Cut, o: Float, rounding: Rounding, saturating: bool, random: Value | None) -> Value:
    """Code of a number, rounded once."""
    up = x.up
    if up is None:
        up = round_up(rounding, negative=x.sign, last=x.kept[0], discarded=x.discarded, sticky=x.sticky, random=random)
        up = wire(m, up, "round_up")
    # A carry out of the mantissa is the step to the next exponent, from subnormal to normal too. Below the smallest
    # normal number of a format without subnormals the field is negative.
    truncated = Cat(Const(0, o.man), x.field)
    rounded = (truncated if o.subnormals else truncated.as_signed()) + x.kept + up
    rounded = wire(m, rounded[: len(x.field) + o.man + 1] if o.subnormals else rounded, "rounded")
    largest = Const(o.max_code, o.exp + o.man)
    # Numbers that never grow large may leave the upper bits of the field out.
    magnitude = Cat(rounded, Const(0, o.exp + o.man))[: o.exp + o.man]
    if not o.subnormals:
        tiny = wire(m, (rounded < (1 << o.man)) | x.zero, "tiny")
        magnitude = magnitude & ~tiny.replicate(o.exp + o.man)
    sign: Value = x.sign
    if x.highest >= o.emax:
        overflow = (rounded > o.max_code) & ~x.zero
        positive, negative = (saturating or to_largest for to_largest in rounding.overflows_to_largest)
        infinite = x.inf | (overflow & Mux(x.sign, int(not negative), int(not positive)))
        magnitude = Mux(overflow, largest, magnitude)
    else:
        infinite = x.inf
    nan = x.nan
    if o.specials in ("fn", "fnuz"):
        nan = nan | infinite
    else:
        magnitude = Mux(infinite, o.infinity(negative=False), magnitude)
    magnitude = wire(m, magnitude, "magnitude")
    if not o.has_negative_zero:
        sign = sign & magnitude.any()
    return Mux(nan, Const(o.nan_code, o.width), Cat(magnitude, sign))
