"""Unpacking and packing of takum codes on tensors."""

import torch
from torch import Tensor

from halfulp.hdl.formats import Rounding, Saturation
from halfulp.hdl.formats.takum import FULL_WIDTH, HEAD, Takum

from .raw import Raw, mask
from .round import Truncated, round_string, unpack_string
from .wide import bit_length

LARGEST, LEAST = 254, -255
"""Largest and smallest exponent of takums."""


def unpack(codes: Tensor, fmt: Takum) -> Raw:
    """Unpack codes to raw numbers."""
    return unpack_string(codes, fmt, _decode)


def _decode(magnitude: Tensor, fmt: Takum) -> tuple[Tensor, Tensor]:
    """Decode magnitudes to exponents and significands."""
    magnitude = magnitude << max(FULL_WIDTH - fmt.width, 0)
    tail_width = max(fmt.width, FULL_WIDTH) - HEAD
    up = (magnitude >> (tail_width + 3)) & 1 != 0
    regime = (magnitude >> tail_width) & 7
    bits = torch.where(up, regime, 7 - regime)
    fraction_bits = tail_width - bits
    characteristic = (magnitude >> fraction_bits) & ((1 << bits) - 1)
    exponent = torch.where(up, (1 << bits) - 1, 1 - (2 << bits)) + characteristic
    # All significands have the width of the longest fraction.
    fraction = (magnitude << bits) & mask(tail_width)
    return exponent, (fraction >> (tail_width - fmt.fraction_bits)) | (1 << fmt.fraction_bits)


def truncate(x: Raw, o: Takum, places: int) -> Truncated:
    """Truncate the unbounded bit string of each number to the width of the format."""
    leading_zeros = x.leading_zeros
    scale = x.exponent - leading_zeros
    significand = x.significand.shift_left(leading_zeros.clamp(max=x.significand.width - 1))
    above, below = scale > LARGEST, scale < LEAST
    scale = scale.clamp(LEAST, LARGEST)
    up = scale >= 0
    bits = bit_length(torch.where(up, scale + 1, -scale), 9) - 1
    characteristic = scale + torch.where(up, 1 - (1 << bits), (2 << bits) - 1)
    head = torch.where(up, 8 | bits, 7 - bits)

    # Direction, regime and characteristic before the fraction; appended zeros make every shift a right shift.
    string = significand.with_first((head << bits) | characteristic, 12)
    fraction_width = significand.width - 1
    missing = max(o.width - HEAD + places - fraction_width, 0)
    string, lost = string.pad(missing).shift_right(fraction_width + missing - (o.width - HEAD - bits) - places)
    code, seen = string.truncated(places).low64(), string.bits(0, places)
    sticky = lost if x.sticky is None else lost | x.sticky
    beyond = above | ((code == o.max_code) & ((seen != 0) | sticky))
    code = torch.where(above, o.max_code, torch.where(below, 0, code))
    # Below the smallest and above the largest number the result does not depend on the discarded bits.
    ends = (code == 0) | (code == o.max_code)
    return Truncated(
        code=code,
        last=code & 1,
        seen=torch.where(ends, 0, seen),
        sticky=torch.where(ends, (code == 0) | beyond, sticky),
        beyond=beyond,
        places=places,
    )


def pack(x: Raw, o: Takum, rounding: Rounding, saturate: Saturation, random: Tensor | None) -> Tensor:
    """Round numbers once, on their bit strings, and encode them; takums always saturate."""
    return round_string(truncate(x, o, rounding.places), x, o, rounding, saturate, random)
