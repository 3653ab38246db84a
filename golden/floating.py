"""Unpacking and packing of floating-point codes on tensors."""

from dataclasses import replace

import torch
from torch import Tensor

from halfulp.hdl.formats import SATFINITE, Float, Rounding, Saturation
from halfulp.hdl.specs.unit import AFTER

from .raw import ZERO_EXPONENT, Raw, int64
from .round import Flags, Truncated, round_up
from .wide import Wide


def unpack(codes: Tensor, fmt: Float) -> Raw:
    """Unpack codes to raw numbers."""
    magnitude = codes & (fmt.sign_code - 1)
    mantissa = magnitude & ((1 << fmt.man) - 1)
    field = magnitude >> fmt.man
    hidden = field > 0
    if not fmt.subnormals:
        mantissa = torch.where(hidden, mantissa, 0)
    significand = mantissa + (hidden.to(torch.int64) << fmt.man)
    zero = significand == 0
    # Subnormal numbers are normalised here; later stages treat them as normal ones.
    leading_zeros = fmt.precision - Wide.of(significand, fmt.precision).bit_length()
    exponent = torch.where(zero, ZERO_EXPONENT, field.clamp(min=1) - fmt.bias - leading_zeros)
    never = torch.zeros_like(zero)
    if fmt.specials == "ieee":
        inf, nan = magnitude == fmt.max_code + 1, magnitude > fmt.max_code + 1
    elif fmt.specials == "fn":
        inf, nan = never, magnitude == fmt.nan_code
    elif fmt.specials in ("fnuz", "uz"):
        inf = magnitude == fmt.max_code + 1 if fmt.has_inf else never
        nan = codes == int64(fmt.sign_code)
    else:
        inf, nan = never, never
    return Raw(
        sign=(codes >> (fmt.width - 1)) & 1 != 0,
        exponent=exponent,
        significand=Wide.of(significand << leading_zeros, fmt.precision),
        nan=nan,
        inf=inf,
        zero=zero,
    )


def is_signalling(codes: Tensor, fmt: Float) -> Tensor:
    """Return True for signalling NaNs: the first mantissa bit is 0, and the format has other NaNs."""
    magnitude = codes & (fmt.sign_code - 1)
    if fmt.specials != "ieee":
        return torch.zeros_like(codes, dtype=torch.bool)
    return (magnitude > fmt.max_code + 1) & ((magnitude >> (fmt.man - 1)) & 1 == 0)


def flags(x: Raw, o: Float, rounding: Rounding, random: Tensor | None, tininess: str) -> Flags:
    """Return the flags of rounding numbers once."""

    def rounds(fmt: Float) -> tuple[Truncated, Tensor]:
        z = truncate(x, fmt, rounding.places)
        up = round_up(rounding, negative=x.sign, last=z.last, seen=z.seen, sticky=z.sticky, random=random)
        return z, z.code + up

    z, magnitude = rounds(o)
    # As if the exponent were unbounded.
    normal, normal_magnitude = rounds(replace(o, subnormals=False))
    tiny = (normal_magnitude if tininess == AFTER else normal.code) < 1 << o.man
    flushed = magnitude < 1 << o.man if o.flushes else torch.zeros_like(x.zero)
    overflow = z.beyond | (magnitude > o.max_code)
    inexact = (z.seen != 0) | z.sticky | overflow | flushed
    regular = ~(x.nan | x.inf | x.zero)
    return Flags(
        inexact=regular & inexact,
        # A code beyond the largest one of a 64-bit format does not fit int64.
        underflow=regular & inexact & tiny & ~overflow,
        overflow=regular & overflow,
        lost_nan=x.nan & (not o.has_nan),
        lost_inf=x.inf & ~x.nan & (not o.has_inf),
    )


def pack(x: Raw, o: Float, rounding: Rounding, saturate: Saturation, random: Tensor | None) -> Tensor:
    """Round numbers once and encode them."""
    z = truncate(x, o, rounding.places)
    # Rounding up to the next power of two carries into the exponent.
    magnitude = z.code + round_up(rounding, negative=x.sign, last=z.last, seen=z.seen, sticky=z.sticky, random=random)
    overflow = (z.beyond | (magnitude > o.max_code)) & ~x.zero
    tiny = x.zero if o.subnormals else x.zero | (magnitude < 1 << o.man)
    magnitude = torch.where(tiny, 0, magnitude)

    positive_stays, negative_stays = (bool(saturate) or stays for stays in rounding.overflows_to_largest)
    stays = torch.where(x.sign, negative_stays, positive_stays)
    magnitude = torch.where(overflow, o.max_code, magnitude)
    infinite = x.inf | (overflow & ~stays)
    nan = x.nan
    if saturate == SATFINITE:
        magnitude = torch.where(infinite, o.max_code, magnitude)
    elif o.specials in ("fn", "fnuz"):
        nan = nan | infinite
    else:
        magnitude = torch.where(infinite, o.infinity(negative=False), magnitude)
    sign = x.sign if o.has_negative_zero else x.sign & (magnitude != 0)
    codes = magnitude | (sign.to(torch.int64) * int64(o.sign_code))
    return torch.where(nan, int64(o.nan_code), codes)


def truncate(x: Raw, o: Float, places: int) -> Truncated:
    """Truncate numbers at the last place of the result format."""
    wanted = o.precision + places
    significand = x.significand.pad(max(wanted - x.significand.width, 0))
    leading_zeros = x.leading_zeros
    # Places that the significand may shift left before the number is subnormal in o; negative: it must shift right.
    room = x.exponent - o.emin
    field = room - leading_zeros
    sticky = torch.zeros_like(x.zero) if x.sticky is None else x.sticky
    if o.subnormals:
        significand = significand.shift_left(torch.minimum(leading_zeros, room.clamp(min=0)))
        significand, lost = significand.shift_right((-room).clamp(min=0))
        sticky = sticky | lost
    else:
        # Rounding is as if the exponent were unbounded; pack() flushes results that are too small.
        significand = significand.shift_left(leading_zeros)
    width, top = significand.width, o.emax - o.emin
    significand_bits = significand.bits(width - o.precision, o.precision)
    # The hidden bit of a normal number adds 1 to the exponent field, which is 0 for subnormal numbers.
    code = (field.clamp(0 if o.subnormals else -2, top + 1) << o.man) + significand_bits
    return Truncated(
        code=code,
        last=significand_bits & 1,
        seen=significand.bits(width - wanted, places),
        sticky=sticky | significand.any_below(width - wanted),
        beyond=(field > top) | (code > o.max_code),
        places=places,
    )
