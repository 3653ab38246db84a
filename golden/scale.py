"""Unpacking and packing of codes of unsigned powers of two on tensors."""

import torch
from torch import Tensor

from halfulp.hdl.formats import SATFINITE, Rounding, Saturation, Scale

from .raw import Raw
from .round import Truncated, round_up
from .wide import Wide


def unpack(codes: Tensor, fmt: Scale) -> Raw:
    """Unpack codes to raw numbers."""
    never = torch.zeros_like(codes, dtype=torch.bool)
    return Raw(
        sign=never,
        exponent=codes - fmt.bias,
        significand=Wide.of(torch.ones_like(codes), 1),
        nan=codes == fmt.nan_code,
        inf=never,
        zero=never,
    )


def truncate(x: Raw, o: Scale, places: int) -> Truncated:
    """Truncate numbers to their leading bit."""
    wanted = 1 + places
    significand = x.significand.pad(max(wanted - x.significand.width, 0)).shift_left(x.leading_zeros)
    code = x.exponent - x.leading_zeros - o.emin
    sticky = significand.any_below(significand.width - wanted)
    return Truncated(
        code=code.clamp(-2, o.max_code + 1),
        last=torch.ones_like(code),
        seen=significand.bits(significand.width - wanted, places),
        sticky=sticky if x.sticky is None else sticky | x.sticky,
        beyond=code > o.max_code,
        places=places,
    )


def pack(x: Raw, o: Scale, rounding: Rounding, saturate: Saturation, random: Tensor | None) -> Tensor:
    """Round numbers once and encode them."""
    z = truncate(x, o, rounding.places)
    code = z.code + round_up(rounding, negative=x.sign, last=z.last, seen=z.seen, sticky=z.sticky, random=random)
    over = o.max_code if saturate or rounding.overflows_to_largest[False] else o.nan_code
    code = torch.where(code > o.max_code, over, code.clamp(min=0))
    not_number = x.nan | x.inf | x.zero
    if saturate == SATFINITE:
        code, not_number = torch.where(x.inf, o.max_code, code), x.nan | (x.zero & ~x.inf)
    return torch.where(not_number | x.sign, o.nan_code, code)
