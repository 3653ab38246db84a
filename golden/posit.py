"""Unpacking and packing of posit codes on tensors."""

import torch
from torch import Tensor

from halfulp.hdl.formats import Posit, Rounding, Saturation

from .raw import Raw, mask
from .round import Truncated, round_string, unpack_string
from .wide import bit_length


def unpack(codes: Tensor, fmt: Posit) -> Raw:
    """Unpack codes to raw numbers."""
    return unpack_string(codes, fmt, _decode)


def _decode(magnitude: Tensor, fmt: Posit) -> tuple[Tensor, Tensor]:
    """Decode magnitudes to exponents and significands."""
    body = fmt.width - 1
    ones = (magnitude >> (body - 1)) & 1 != 0
    run = body - bit_length(torch.where(ones, ~magnitude & mask(body), magnitude), body)
    k = torch.where(ones, run - 1, -run)
    # The bits after the regime, shifted left to their place after the shortest regime, which has two bits.
    tail_width = body - 2
    tail = ((magnitude << run << 1) & mask(body)) >> 2
    short = max(fmt.es - tail_width, 0)
    exponent = (tail << short) >> fmt.fraction_bits
    significand = (tail & mask(fmt.fraction_bits)) | (1 << fmt.fraction_bits)
    return (k << fmt.es) + exponent, significand


def truncate(x: Raw, o: Posit, places: int) -> Truncated:
    """Truncate the unbounded bit string of each number (regime, exponent, fraction) to the width of the format."""
    leading_zeros = x.leading_zeros
    scale = x.exponent - leading_zeros
    significand = x.significand.shift_left(leading_zeros.clamp(max=x.significand.width - 1))
    # Out of range there is no regime; those results are set below.
    too_large, too_small = scale >= o.max_scale, scale < -o.max_scale
    above = scale > o.max_scale
    scale = scale.clamp(-o.max_scale, o.max_scale - 1)
    k = scale >> o.es
    regime_width = torch.where(k >= 0, k + 2, 1 - k)

    # Exponent and fraction after the shortest regime, then shifted right for a longer one.
    tail = significand.with_first(scale & mask(o.es), o.es)
    tail_width = o.width - 3
    tail = tail.pad(max(tail_width + places - tail.width, 0))
    tail, lost = tail.shift_right(regime_width - 2)
    below = tail.width - tail_width
    sticky = lost | tail.any_below(below - places)
    inexact_above = above | (too_large & significand.any_below(significand.width - 1))
    if x.sticky is not None:
        sticky, inexact_above = sticky | x.sticky, inexact_above | (too_large & x.sticky)

    unit = torch.ones_like(k)
    # A run of ones from the top, or a single one after a run of zeros; modulo 2^64.
    ones = (unit << (o.width - 1)) - (unit << (o.width - 2 - k.clamp(min=0)))
    regime = torch.where(k >= 0, ones, unit << (o.width - 2 + k.clamp(max=0)))
    code = regime + tail.bits(below, tail_width)
    code = torch.where(too_large, o.max_code, torch.where(too_small, 0, code))
    return Truncated(
        code=code,
        last=code & 1,
        seen=torch.where(too_large | too_small, 0, tail.bits(below - places, places)),
        sticky=torch.where(too_large, inexact_above, too_small | sticky),
        beyond=inexact_above,
        places=places,
    )


def pack(x: Raw, o: Posit, rounding: Rounding, saturate: Saturation, random: Tensor | None) -> Tensor:
    """Round numbers once, on their bit strings, and encode them; posits always saturate."""
    return round_string(truncate(x, o, rounding.places), x, o, rounding, saturate, random)
