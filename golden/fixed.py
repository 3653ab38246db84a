"""Fixed-point codes on tensors: to raw numbers, and back."""

import torch
from torch import Tensor

from halfulp.hdl.formats import Fixed, Rounding

from .raw import ZERO_EXPONENT, Raw, int64, mask
from .round import round_up
from .wide import Wide


def unpack(codes: Tensor, fmt: Fixed) -> Raw:
    """Raw numbers of codes."""
    sign = (codes >> (fmt.width - 1)) & 1 != 0 if fmt.signed else torch.zeros_like(codes, dtype=torch.bool)
    magnitude = torch.where(sign, -codes & mask(fmt.width), codes)
    significand = Wide.of(magnitude, fmt.width)
    length = significand.bit_length()
    zero = magnitude == 0
    never = torch.zeros_like(zero)
    return Raw(
        sign=sign,
        exponent=torch.where(zero, ZERO_EXPONENT, length - 1 + fmt.quantum),
        significand=significand.shift_left(torch.where(zero, 0, fmt.width - length)),
        nan=never,
        inf=never,
        zero=zero,
    )


def pack(x: Raw, o: Fixed, rounding: Rounding, saturate: bool, random: Tensor | None) -> Tensor:
    """Codes of numbers, rounded once."""
    seen_places = rounding.places
    # The number in units of the last place that rounding looks at; what is shifted up further is beyond the range.
    most = o.width + seen_places
    up = x.exponent - (x.significand.width - 1) - (o.quantum - seen_places)
    units = x.significand.resized(x.significand.width + most + 1).shift_left(up.clamp(0, most))
    units, lost = units.shift_right((-up).clamp(min=0))
    sticky = lost if x.sticky is None else lost | x.sticky

    # Of a negative number the floor lies below what truncation keeps, and the rest is what it has more than the floor.
    below = units.bits(0, seen_places)
    rest = torch.where(x.sign, -(below + sticky), below) & ((1 << seen_places) - 1)
    inexact_below = (below != 0) | sticky
    integer = units.truncated(seen_places)
    last = (integer.low ^ (x.sign & inexact_below)) & 1
    up_one = round_up(
        rounding,
        negative=x.sign,
        last=last,
        seen=rest,
        sticky=sticky,
        random=random,
        twos_complement=True,
    )
    # A magnitude again: of a negative number the floor is one more, and up is one less.
    step = torch.where(x.sign, inexact_below.to(torch.int64) - up_one, up_one)
    magnitude = integer + Wide.of(step, integer.width)
    negated = torch.where(x.sign, -magnitude.low64(), magnitude.low64())
    codes = negated & mask(o.width)

    if saturate or o.overflow == "saturate":
        width = max(magnitude.width, o.width + 1)
        wide = magnitude.resized(width)
        too_low = x.sign & (Wide.constant(-o.lowest_integer, width, codes) < wide)
        too_high = ~x.sign & (Wide.constant(o.largest_integer, width, codes) < wide)
    else:
        too_low = too_high = torch.zeros_like(x.sign)
    codes = torch.where(too_low | (x.inf & x.sign), int64(o.infinity(True)), codes)
    codes = torch.where(too_high | (x.inf & ~x.sign), int64(o.infinity(False)), codes)
    return torch.where(x.nan, 0, codes)
