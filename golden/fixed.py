"""Unpacking and packing of fixed-point codes on tensors."""

import torch
from torch import Tensor

from halfulp.hdl.formats import Fixed, Rounding, Saturation

from .raw import ZERO_EXPONENT, Raw, in_units, int64, mask
from .round import Flags, Truncated, round_up
from .wide import Wide


def unpack(codes: Tensor, fmt: Fixed) -> Raw:
    """Unpack codes to raw numbers."""
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


def _units(x: Raw, o: Fixed, places: int) -> tuple[Wide, Tensor, Tensor]:
    """Split magnitudes into integers in units of the last place, the first discarded bits, and a sticky bit."""
    # Numbers with a larger shift are out of range.
    units, lost = in_units(x, o.quantum - places, o.width + places)
    return units.truncated(places), units.bits(0, places), lost if x.sticky is None else lost | x.sticky


def _beyond(x: Raw, magnitude: Wide, o: Fixed) -> Tensor:
    """Return True where a magnitude exceeds the largest one of its sign."""
    width = max(magnitude.width, o.width + 1)
    low, high = (Wide.constant(end, width, magnitude.low) for end in (-o.least_integer, o.largest_integer))
    wide = magnitude.resized(width)
    return torch.where(x.sign, low < wide, high < wide)


def truncate(x: Raw, o: Fixed, places: int) -> Truncated:
    """Truncate magnitudes at the last place of the result format."""
    integer, seen, sticky = _units(x, o, places)
    return Truncated(integer.low64(), integer.low & 1, seen, sticky, _beyond(x, integer, o), places)


def _rounded(x: Raw, o: Fixed, rounding: Rounding, random: Tensor | None) -> tuple[Wide, Tensor]:
    """Return magnitudes in units of the last place, rounded once, and True where a number is none of these."""
    seen_places = rounding.places
    integer, below, sticky = _units(x, o, seen_places)
    # The floor of a negative number is below its truncation; the discarded part is measured from the floor.
    rest = torch.where(x.sign, -(below + sticky), below) & ((1 << seen_places) - 1)
    inexact_below = (below != 0) | sticky
    last = (integer.low ^ (x.sign & inexact_below)) & 1
    up_one = round_up(
        rounding, negative=x.sign, last=last, seen=rest, sticky=sticky, random=random, twos_complement=True
    )
    # The magnitude of a negative floor exceeds the truncated one by 1; rounding up reverses that.
    step = torch.where(x.sign, inexact_below.to(torch.int64) - up_one, up_one)
    return integer + Wide.of(step, integer.width), inexact_below


def flags(x: Raw, o: Fixed, rounding: Rounding, random: Tensor | None, tininess: str) -> Flags:
    """Return the flags of rounding numbers once; a number beyond the range is invalid, and nothing is tiny."""
    magnitude, inexact = _rounded(x, o, rounding, random)
    lost = x.nan | (_beyond(x, magnitude, o) & ~x.zero & ~x.inf)
    never = torch.zeros_like(x.zero)
    return Flags(
        inexact=inexact & ~(lost | x.inf | x.zero),
        underflow=never,
        overflow=never,
        lost_nan=lost,
        lost_inf=x.inf & ~x.nan,
    )


def pack(x: Raw, o: Fixed, rounding: Rounding, saturate: Saturation, random: Tensor | None) -> Tensor:
    """Round numbers once and encode them."""
    magnitude, _ = _rounded(x, o, rounding, random)
    negated = torch.where(x.sign, -magnitude.low64(), magnitude.low64())
    codes = negated & mask(o.width)

    beyond = _beyond(x, magnitude, o) if saturate or not o.wraps else torch.zeros_like(x.sign)
    codes = torch.where((beyond | x.inf) & x.sign, int64(o.infinity(True)), codes)
    codes = torch.where((beyond | x.inf) & ~x.sign, int64(o.infinity(False)), codes)
    return torch.where(x.nan, 0, codes)
