"""The rounding decision on tensors, and how far down it looks."""

from dataclasses import dataclass

import torch
from torch import Tensor

from halfulp.hdl.formats import Format, Rounding
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs import ValueRange

from .raw import Raw, int64, mask


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
        A one is left below these.
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
    """Bits, from the first one of a number of ``results`` on, that rounding it to ``o`` looks at one by one."""
    if o.spacing == "uniform":
        top = floor_log2(results.magnitude) if results.magnitude else o.quantum
        if not o.wraps:
            # What is larger is the end of the range, whatever it is exactly.
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
    """Whether a truncated number goes up by one unit in the last place, as 0 or 1: the rounding decision.

    The number is a magnitude, or the floor of a two's-complement number.

    Parameters
    ----------
    negative : Tensor of bool
        Sign of the number.
    last : Tensor of int64
        Last bit kept.
    seen : Tensor of int64
        The first ``rounding.places`` bits below it.
    sticky : Tensor of bool
        Whether anything is left below those.
    random : Tensor of int64, optional
        Random word of a stochastic rounding.
    twos_complement : bool
        Whether it is a floor: then up is toward plus infinity.
    """
    match rounding.mode:
        case "rn":
            return seen & (last | sticky)
        case "ra":
            # Of the floor of a negative number a tie stays, for away from zero is down.
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
            # Up from an even magnitude is what setting the last bit does.
            return sticky & (last ^ 1)
        case "sr":
            assert random is not None
            return (seen + random) >> rounding.bits
        case "exact":
            return torch.zeros_like(last)
    raise ValueError(f"the golden model has no rounding {rounding}")


def round_string(z: Truncated, x: Raw, o: Format, rounding: Rounding, random: Tensor | None) -> Tensor:
    """Codes of numbers whose two's-complement codes are rounded as strings, never to zero or to NaN."""
    up = round_up(rounding, negative=x.sign, last=z.last, seen=z.seen, sticky=z.sticky, random=random)
    magnitude = torch.where(z.code == o.max_code, o.max_code, (z.code + up).clamp(min=1))
    magnitude = torch.where(x.zero, 0, magnitude)
    codes = torch.where(x.sign, -magnitude, magnitude) & mask(o.width)
    return torch.where(x.nan | x.inf, int64(o.nan_code), codes)
