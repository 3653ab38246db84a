"""Unpacking and packing of compound codes, the unevaluated sums of floats, on tensors."""

from dataclasses import replace

import torch
from torch import Tensor

from halfulp.hdl.formats import RN, SATFINITE, Compound, Rounding, Saturation

from . import floating
from .parts import code_of, parts_of
from .raw import Raw, add, align, normalised
from .round import Truncated
from .wide import Wide


def unpack(codes: Tensor, fmt: Compound) -> Raw:
    """Unpack codes to the exact sums of their parts."""
    *larger, total = (floating.unpack(part, fmt.part) for part in parts_of(codes, fmt).unbind(-1))
    for part in reversed(larger):
        total = _plus(part, total, RN, fmt.precision)
    return total


def truncate(x: Raw, o: Compound, places: int) -> Truncated:
    """Refuse: a number has as many truncations as parts, each after the rounding of the part before."""
    raise TypeError(f"{o} has no truncated code; each of its parts is truncated and rounded")


def pack(x: Raw, o: Compound, rounding: Rounding, saturate: Saturation, random: Tensor | None) -> Tensor:
    """Round numbers to a part, and what it leaves to the next one; the parts after infinities and NaN are +0."""
    rest, ended, codes = _with_sticky(x), torch.zeros_like(x.nan), list[Tensor]()
    for place in range(o.parts):
        last = place == o.parts - 1
        mode = rounding if last else o.leading(rounding)
        code = floating.pack(rest, o.part, mode, saturate, random if last else None)
        codes.append(torch.where(ended, 0, code))
        if not last:
            taken = floating.unpack(code, o.part)
            ends = rest.nan if saturate == SATFINITE else rest.nan | rest.inf
            ended = ended | ends | taken.nan | taken.inf
            rest = _plus(rest, replace(taken, sign=~taken.sign), rounding)
    return code_of(torch.stack(torch.broadcast_tensors(*codes), -1), o)


def _with_sticky(x: Raw) -> Raw:
    """Return numbers with the sticky bit as their last bit, which no rounding to a format tells from the bits below.

    The window of a format ends below every bit that its rounding tells from others.
    """
    if x.sticky is None:
        return normalised(x)
    wider = x.significand.pad(1)
    low = wider.low | x.sticky.to(torch.int64)
    return normalised(replace(x, significand=Wide((low, *wider.limbs[1:]), wider.width), sticky=None))


def _plus(x: Raw, y: Raw, rounding: Rounding, window: int = 0) -> Raw:
    """Return exact sums without leading zeros; the rounding decides the sign of one that cancels."""
    return replace(normalised(add(align(x, y, window), rounding)), sticky=None)
