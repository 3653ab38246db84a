"""Rounding and packing on tensors: the one way from raw numbers back to codes."""

import torch
from torch import Tensor

from halfulp.hdl.formats import Float, Rounding

from .raw import Raw, int64


def places(rounding: Rounding) -> int:
    """Discarded bits that a rounding looks at one by one; below them a sticky bit is enough."""
    return {"rn": 1, "ra": 1, "sr": rounding.bits}.get(rounding.mode, 0)


def round_up(
    rounding: Rounding, *, negative: Tensor, last: Tensor, seen: Tensor, sticky: Tensor, random: Tensor | None
) -> Tensor:
    """Whether the magnitude goes up by one unit in the last place, as 0 or 1: the rounding decision.

    Parameters
    ----------
    negative : Tensor of bool
        Sign of the number.
    last : Tensor of int64
        Last bit kept.
    seen : Tensor of int64
        The first ``places(rounding)`` bits below it.
    sticky : Tensor of bool
        Whether anything is left below those.
    random : Tensor of int64, optional
        Random word of a stochastic rounding.
    """
    match rounding.mode:
        case "rn":
            return seen & (last | sticky)
        case "ra":
            return seen
        case "ru":
            return (sticky & ~negative).to(torch.int64)
        case "rd":
            return (sticky & negative).to(torch.int64)
        case "ro":
            # Up from an even magnitude is what setting the last bit does.
            return sticky & (last ^ 1)
        case "sr":
            assert random is not None
            return (seen + random) >> rounding.bits
        case _:
            return torch.zeros_like(last)


def round_and_pack(x: Raw, o: Float, rounding: Rounding, saturate: bool, random: Tensor | None) -> Tensor:
    """Codes of numbers, rounded once."""
    field, kept, seen, sticky = _normalise_to(x, o, rounding)
    rounded = kept + round_up(rounding, negative=x.sign, last=kept & 1, seen=seen, sticky=sticky, random=random)
    # Rounding up to the next power of two moves the exponent.
    carry = rounded >> o.precision
    field, rounded = field + carry, rounded >> carry

    top = o.emax - o.emin
    largest_significand = (o.max_code & ((1 << o.man) - 1)) | (1 << o.man)
    overflow = ((field > top) | ((field == top) & (rounded > largest_significand))) & ~x.zero
    # The hidden bit adds the one that a normal number's exponent field has more than a subnormal's.
    magnitude = (field.clamp(0, top) << o.man) + rounded
    tiny = x.zero if o.subnormals else x.zero | (field < 0)
    magnitude = torch.where(tiny, 0, magnitude)

    positive_stays, negative_stays = (saturate or stays for stays in rounding.overflows_to_largest)
    stays = torch.where(x.sign, negative_stays, positive_stays)
    magnitude = torch.where(overflow, o.max_code, magnitude)
    infinite = x.inf | (overflow & ~stays)
    nan = x.nan
    if o.specials in ("fn", "fnuz"):
        nan = nan | infinite
    else:
        magnitude = torch.where(infinite, o.infinity(negative=False), magnitude)
    sign = x.sign if o.has_negative_zero else x.sign & (magnitude != 0)
    codes = magnitude | (sign.to(torch.int64) * int64(o.sign_code))
    return torch.where(nan, int64(o.nan_code), codes)


def _normalise_to(x: Raw, o: Float, rounding: Rounding) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Cut numbers at the last place of the result format.

    Returns the exponent above ``o.emin`` (0 for subnormal results), the ``o.precision`` bits kept, the bits below that
    the rounding looks at, and whether anything is left.
    """
    wanted = o.precision + places(rounding)
    significand = x.significand.pad(max(wanted - x.significand.width, 0))
    leading_zeros = x.significand.width - x.significand.bit_length()
    # Places that the number may move up before it is subnormal in o; below zero it has to move down.
    room = x.exponent - o.emin
    field = room - leading_zeros
    sticky = torch.zeros_like(x.zero) if x.sticky is None else x.sticky
    if o.subnormals:
        significand = significand.shift_left(torch.minimum(leading_zeros, room.clamp(min=0)))
        significand, lost = significand.shift_right((-room).clamp(min=0))
        field, sticky = field.clamp(min=0), sticky | lost
    else:
        # Rounded as if the exponent were unbounded; what is then too small is flushed.
        significand = significand.shift_left(leading_zeros)
    width = significand.width
    kept = significand.bits(width - o.precision, o.precision)
    seen = significand.bits(width - wanted, wanted - o.precision)
    return field, kept, seen, sticky | significand.any_below(width - wanted)
