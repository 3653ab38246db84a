"""Rounding and packing: the one way from a raw number back to a code."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Value

from .formats import Float, Rounding
from .raw import Raw
from .wire import leading_zeros, saturate, shift_left, shift_right_sticky, wire


def places(rounding: Rounding) -> int:
    """Discarded bits that a rounding looks at one by one; below them a sticky bit is enough."""
    return {"rn": 1, "ra": 1, "sr": rounding.bits}.get(rounding.mode, 0)


def round_up(
    rounding: Rounding, *, negative: Value, last: Value, discarded: Value, sticky: Value, random: Value | None
) -> Value:
    """Whether the magnitude goes up by one unit in the last place: the rounding decision of every unit.

    Parameters
    ----------
    negative : Value
        Sign of the number.
    last : Value
        Last bit kept.
    discarded : Value
        Bits below it, the first one on top. Missing places are zeros.
    sticky : Value
        Whether anything is left below ``discarded``.
    random : Value, optional
        Random word of a stochastic rounding.
    """
    if rounding.mode == "sr":
        assert random is not None
        seen = min(rounding.bits, len(discarded))
        # Only the upper bits of the word can carry where fewer bits than it has are discarded.
        if seen == 0:
            return Const(0, 1)
        return (discarded[len(discarded) - seen :] + random[rounding.bits - seen :])[seen]
    inexact = discarded.any() | sticky
    first = discarded[-1] if len(discarded) else Const(0, 1)
    below_first = discarded[:-1].any() | sticky if len(discarded) else sticky
    return {
        "rn": first & (below_first | last),
        "ra": first,
        "rz": Const(0, 1),
        "ru": inexact & ~negative,
        "rd": inexact & negative,
        # Up from an even magnitude is what setting the last bit does.
        "ro": inexact & ~last,
        "exact": Const(0, 1),
    }[rounding.mode]


@dataclass(frozen=True)
class Normalised:
    """A number cut at the last place of the result format.

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


def normalise_to(m: Module, x: Raw, o: Float, rounding: Rounding) -> Normalised:
    """Shift a number so that its first bit comes first, or its last place is the smallest that ``o`` has.

    Without subnormals only the former: rounding is as if the exponent were unbounded, and what is then too small is
    flushed.
    """
    count = Const(0, 1) if x.leading == "one" else leading_zeros(m, x.significand, "leading_zeros")
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
    missing = max(o.precision + places(rounding) - len(x.significand), 0)
    shifted, sticky = Cat(Const(0, missing), x.significand), x.sticky
    if x.leading != "one":
        shifted = shift_left(m, shifted, up, "shifted_up")
    if o.subnormals and x.emin < o.emin:
        down = wire(m, Mux(room < 0, -room, 0)[: (o.emin - x.base).bit_length()], "places_down")
        down = wire(m, saturate(down, len(shifted).bit_length()), "shift_down")
        shifted, lost = shift_right_sticky(m, shifted, down, "shifted_down")
        sticky = sticky | lost
    cut = len(shifted) - o.precision
    return Normalised(
        sign=x.sign,
        field=wire(m, field, "field"),
        kept=wire(m, shifted[cut:], "kept"),
        discarded=wire(m, shifted[:cut], "discarded"),
        sticky=wire(m, sticky, "sticky"),
        nan=x.nan,
        inf=x.inf,
        zero=x.zero,
        highest=x.emax,
    )


def round_and_pack(
    m: Module, x: Normalised, o: Float, rounding: Rounding, saturating: bool, random: Value | None
) -> Value:
    """Code of a number, rounded once."""
    up = round_up(rounding, negative=x.sign, last=x.kept[0], discarded=x.discarded, sticky=x.sticky, random=random)
    up = wire(m, up, "round_up")
    # A carry out of the mantissa is the step to the next exponent, from subnormal to normal too. Below the smallest
    # normal number of a format without subnormals the field is negative.
    truncated = Cat(Const(0, o.man), x.field)
    rounded = (truncated if o.subnormals else truncated.as_signed()) + x.kept + up
    rounded = wire(m, rounded[: len(x.field) + o.man + 1] if o.subnormals else rounded, "rounded")
    largest = Const(o.max_code, o.exp + o.man)
    magnitude = rounded[: o.exp + o.man]
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
    return Mux(nan, Const(o.nan_code, o.width), Cat(magnitude[: o.exp + o.man], sign))
