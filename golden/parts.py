"""Codes of compound numbers and of their parts, and products by parts."""

from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from halfulp.hdl.formats import Compound, Format
from halfulp.hdl.specs import MacSpec

from .kernels import Matrices, Patches

Either = TypeVar("Either", Tensor, Matrices)


def parts_of(codes: Tensor, fmt: Format) -> Tensor:
    """Return the codes of the parts in a new last dimension, the largest part first; other codes are their own part."""
    if not isinstance(fmt, Compound):
        return codes.unsqueeze(-1)
    places = torch.arange(fmt.parts - 1, -1, -1, device=codes.device) * fmt.part.width
    return codes.unsqueeze(-1) >> places & (1 << fmt.part.width) - 1


def code_of(parts: Tensor, fmt: Compound) -> Tensor:
    """Return the codes of numbers from those of their parts, the inverse of `parts_of`."""
    places = torch.arange(fmt.parts - 1, -1, -1, device=parts.device) * fmt.part.width
    return (parts << places).sum(-1)


def by_parts(spec: MacSpec, a: Either, b: Either) -> tuple[MacSpec, Either, Either]:
    """Return an equal product of matrices of parts: each k becomes as many as a product has steps."""
    if len(spec.pairs) == 1:
        return spec, a, b
    of_a, of_b = (list(places) for places in zip(*spec.pairs, strict=True))
    return spec.of_parts, _steps(a, spec.a, of_a), _steps(b.mT, spec.b, of_b).mT


def _steps(x: Either, fmt: Format, places: list[int]) -> Either:
    """Return matrices with the parts ``places`` of each number in consecutive columns."""
    if isinstance(x, Patches):
        # The parts of all elements are one after the other in memory.
        data = parts_of(x.data, fmt).movedim(-1, 0).contiguous()
        columns = x.columns.unsqueeze(-1) + torch.tensor(places, device=x.device) * x.data.numel()
        return replace(x, data=data, columns=columns.flatten())
    return parts_of(x, fmt)[..., places].flatten(-2)
