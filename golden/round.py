"""The rounding decision on tensors, and the bits on which it depends."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halfulp.hdl.formats import SATFINITE, Format, Rounding, Saturation

from .raw import ZERO_EXPONENT, Raw, int64, mask
from .wide import Wide


@dataclass(frozen=True)
class Truncated:
    """Magnitudes truncated to a format, and the discarded bits.

    Attributes
    ----------
    code : Tensor of int64
        Index of the truncated magnitude among the magnitudes of its sign, counted from zero. Floats count as if the
        exponent had no upper limit, and as if a format that flushes had subnormal numbers.
    last : Tensor of int64
        Last bit of the truncated magnitude.
    seen : Tensor of int64
        The first ``places`` discarded bits.
    sticky : Tensor of bool
        Other discarded bits are not zero.
    beyond : Tensor of bool
        The truncated magnitude exceeds the largest one of its sign.
    places : int
        Number of discarded bits in ``seen``.
    """

    code: Tensor
    last: Tensor
    seen: Tensor
    sticky: Tensor
    beyond: Tensor
    places: int


@dataclass(frozen=True)
class Flags:
    """Exception flags of roundings, tensors of bool.

    Attributes
    ----------
    inexact, underflow, overflow : Tensor
    lost_nan, lost_inf : Tensor
        The number is NaN or infinite, and the format has no code for it; or it is beyond an integer's range.
    """

    inexact: Tensor
    underflow: Tensor
    overflow: Tensor
    lost_nan: Tensor
    lost_inf: Tensor


def round_up(
    rounding: Rounding,
    *,
    negative: Tensor,
    last: Tensor,
    seen: Tensor,
    sticky: Tensor,
    random: Tensor | None,
    twos_complement: bool = False,
) -> Tensor:
    """Decide the rounding: return 1 where a truncated number is incremented by one unit in the last place, else 0.

    The truncated number is a magnitude, or a floor if ``twos_complement``. ``last`` is its last bit, ``seen`` the first
    ``rounding.places`` discarded bits, and ``sticky`` is set if other discarded bits are not zero. ``random`` is the
    random word of stochastic rounding.
    """
    match rounding.mode:
        case "rn":
            return seen & (last | sticky)
        case "ra":
            # A negative tie stays at its floor, which is away from zero.
            return seen & (sticky | ~negative) if twos_complement else seen
        case "rh":
            return seen & (sticky | negative) if twos_complement else seen & sticky
        case "rhu":
            return seen if twos_complement else seen & (sticky | ~negative)
        case "rhd":
            return seen & sticky if twos_complement else seen & (sticky | negative)
        case "rz":
            return (sticky & negative if twos_complement else torch.zeros_like(sticky)).to(torch.int64)
        case "ru":
            return (sticky if twos_complement else sticky & ~negative).to(torch.int64)
        case "rd":
            return (torch.zeros_like(sticky) if twos_complement else sticky & negative).to(torch.int64)
        case "ro":
            # Incrementing an even number sets its last bit.
            return sticky & (last ^ 1)
        case "sr":
            assert random is not None
            return (seen + random) >> rounding.bits
        case "exact":
            return torch.zeros_like(last)
    raise ValueError(f"the golden model has no rounding {rounding}")


def unpack_string(codes: Tensor, fmt: Any, decode: Callable[[Tensor, Any], tuple[Tensor, Tensor]]) -> Raw:
    """Unpack two's-complement codes; ``decode`` maps magnitudes to exponents and significands."""
    sign = (codes >> (fmt.width - 1)) & 1 != 0
    nan, zero = codes == int64(fmt.nan_code), codes == 0
    exponent, significand = decode(torch.where(sign, -codes, codes) & mask(fmt.width - 1), fmt)
    return Raw(
        sign=sign,
        exponent=torch.where(zero, ZERO_EXPONENT, exponent),
        significand=Wide.of(torch.where(zero, 0, significand), fmt.precision),
        nan=nan,
        inf=torch.zeros_like(nan),
        zero=zero,
    )


def round_string(
    z: Truncated, x: Raw, o: Format, rounding: Rounding, saturate: Saturation, random: Tensor | None
) -> Tensor:
    """Round numbers on the bit strings of their two's-complement codes, never to zero or NaN, and encode them."""
    up = round_up(rounding, negative=x.sign, last=z.last, seen=z.seen, sticky=z.sticky, random=random)
    magnitude = torch.where(z.code == o.max_code, o.max_code, (z.code + up).clamp(min=1))
    magnitude = torch.where(x.zero, 0, magnitude)
    nan = x.nan | x.inf
    if saturate == SATFINITE:
        magnitude, nan = torch.where(x.inf, o.max_code, magnitude), x.nan
    codes = torch.where(x.sign, -magnitude, magnitude) & mask(o.width)
    return torch.where(nan, int64(o.nan_code), codes)
