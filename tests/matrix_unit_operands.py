"""Random operands of matrix units, of kinds that are hard for sums of products."""

import torch
from torch import Tensor

from halfulp import golden
from halfulp.golden.values import decoded

KINDS = ("normal", "wide", "subnormal", "zeros", "empty", "cancelling", "overflow", "special")
"""Kinds of operands; ``empty``: all products are zero."""


def codes_of(fmt, shape, kind, generator):
    """Return random codes of a kind."""
    codes = torch.randint(0, 1 << min(fmt.width, 32), shape, generator=generator)
    if fmt.width > 32:
        codes = codes << 32 | torch.randint(0, 1 << 32, shape, generator=generator)
    sign = torch.randint(0, 2, shape, generator=generator) * fmt.has_negative_zero << fmt.width - 1
    if kind == "normal":
        return golden.encode(torch.randn(shape, generator=generator), fmt)
    if kind == "zeros":
        codes = torch.where(torch.rand(shape, generator=generator) < 0.7, sign, codes)
    if kind == "empty":
        codes = torch.where(torch.rand(shape, generator=generator) < 0.5, sign, codes)
    if kind == "subnormal":
        codes = codes & ((1 << fmt.man + 1) - 1) | sign
    if kind == "overflow":
        # Mostly of one sign, as opposite ones hide an overflow.
        sign = torch.where(torch.rand(shape, generator=generator) < 0.9, 0, sign)
        codes = fmt.max_code - (codes & ((1 << fmt.man + 1) - 1)) | sign
    if kind == "special":
        return codes
    return torch.where(decoded(codes, fmt, torch.float64).isfinite(), codes, 0)


def pairs_of(formats, shape, kind, generator):
    """Return codes of both operands of steps, which are along the last dimension."""
    x, y = (codes_of(fmt, shape, kind, generator) for fmt in formats)
    if kind == "empty":
        signs = [torch.randint(0, 2, shape, generator=generator) << fmt.width - 1 for fmt in formats]
        first = torch.rand(shape, generator=generator) < 0.5
        x = torch.where(first, signs[0] * formats[0].has_negative_zero, x)
        y = torch.where(first, y, signs[1] * formats[1].has_negative_zero)
    if kind == "cancelling" and shape[-1] > 1:
        # Pairs of opposite products, and one that is left over.
        negative = x[..., 0::2] ^ torch.ones((), dtype=torch.int64) << formats[0].width - 1
        finite = decoded(negative, formats[0], torch.float64).isfinite()
        count = shape[-1] // 2
        x[..., 1::2], y[..., 1::2] = torch.where(finite, negative, 0)[..., :count], y[..., 0::2][..., :count]
        x[..., 0] = 1
    return x, y


def scales_of(block, shape, kind, generator) -> Tensor:
    """Return codes of random scales."""
    if str(block.scale) != "e8m0fnu":
        codes = torch.randint(0, 256, shape, generator=generator)
        return codes if kind == "special" else torch.where(codes & 127 == 127, 0, codes)
    low, high = {"special": (0, 256), "wide": (0, 255), "cancelling": (0, 255), "overflow": (220, 255)}.get(
        kind, (110, 140)
    )
    return torch.randint(low, high, shape, generator=generator)
