"""The rounding decision on tensors, and the bits that it depends on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halfulp.hdl.formats import Format, Rounding
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs import ValueRange

from .raw import ZERO_EXPONENT, Raw, int64, mask
from .wide import Wide


@dataclass(frozen=True)
class Truncated:
    """Magnitudes truncated to a format, and the bits that were dropped.

    Attributes
    ----------
    code : Tensor of int64
        Place of the truncated magnitude among those of its sign, counted from zero; without an upper end where a
        result is rounded as if there were none. Below the smallest number of a format that flushes, a place among
        the subnormal ones that it does not have.
    last : Tensor of int64
        Last bit of the integer that is rounded.
    seen : Tensor of int64
        The first ``places`` bits below it.
    sticky : Tensor of bool
        There are ones below these.
    beyond : Tensor of bool
        The truncated magnitude exceeds the largest one of its sign.
    places : int
    """

    code: Tensor
    last: Tensor
    seen: Tensor
    sticky: Tensor
    beyond: Tensor
    places: int


def looked_at(o: Format, rounding: Rounding, results: ValueRange) -> int:
    """Leading bits of numbers of ``results`` that their rounding to ``o`` depends on one by one."""
    if o.spacing == "uniform":
        top = floor_log2(results.magnitude) if results.magnitude else o.quantum
        if not o.wraps:
            # Larger results give the end of the range.
            top = min(top, o.quantum + o.width)
        return max(top - o.quantum + 1, 0) + rounding.places
    return o.window + rounding.places


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
    """Rounding decision: 1 where a truncated number goes up by one unit in the last place, else 0.

    The number is a magnitude, or with ``twos_complement`` a floor, for which up is toward plus infinity. ``last`` is
    its last bit; ``seen`` the first ``rounding.places`` bits below, and ``sticky`` is set if there are ones below
    these. ``random`` is the random word of a stochastic rounding.
    """
    match rounding.mode:
        case "rn":
            return seen & (last | sticky)
        case "ra":
            # A tie below zero stays at its floor: away from zero is down.
            return seen & (sticky | ~negative) if twos_complement else seen
        case "rh":
            return seen & (sticky | negative) if twos_complement else seen & sticky
        case "rz":
            return (sticky & negative if twos_complement else torch.zeros_like(sticky)).to(torch.int64)
        case "ru":
            return (sticky if twos_complement else sticky & ~negative).to(torch.int64)
        case "rd":
            return (torch.zeros_like(sticky) if twos_complement else sticky & negative).to(torch.int64)
        case "ro":
            # Going up from an even magnitude sets the last bit.
            return sticky & (last ^ 1)
        case "sr":
            assert random is not None
            return (seen + random) >> rounding.bits
        case "exact":
            return torch.zeros_like(last)
    raise ValueError(f"the golden model has no rounding {rounding}")


def unpack_string(codes: Tensor, fmt: Any, decode: Callable[[Tensor, Any], tuple[Tensor, Tensor]]) -> Raw:
    """Raw numbers of two's-complement codes; ``decode`` gives exponents and significands of magnitudes."""
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


def round_string(z: Truncated, x: Raw, o: Format, rounding: Rounding, random: Tensor | None) -> Tensor:
    """Codes of numbers whose two's-complement codes are rounded as strings, never to zero or to NaN."""
    up = round_up(rounding, negative=x.sign, last=z.last, seen=z.seen, sticky=z.sticky, random=random)
    magnitude = torch.where(z.code == o.max_code, o.max_code, (z.code + up).clamp(min=1))
    magnitude = torch.where(x.zero, 0, magnitude)
    codes = torch.where(x.sign, -magnitude, magnitude) & mask(o.width)
    return torch.where(x.nan | x.inf, int64(o.nan_code), codes)
