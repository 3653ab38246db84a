"""Products of compound numbers as products of their parts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from halfulp.golden.kernels import Matrices, Patches
from halfulp.golden.parts import parts_of
from halfulp.hdl.formats import Format
from halfulp.hdl.specs import MacSpec

Either = TypeVar("Either", Tensor, Matrices)


def by_parts(spec: MacSpec, a: Either, b: Either) -> tuple[MacSpec, Either, Either]:
    """Return an equal product of matrices of parts: each k becomes as many as a product has steps."""
    of_a, of_b = zip(*spec.pairs, strict=True)
    return spec.of_parts, _steps(a, spec.a, of_a), _steps(b.mT, spec.b, of_b).mT


def _steps(x: Either, fmt: Format, places: Sequence[int]) -> Either:
    """Return matrices with the parts ``places`` of each number in consecutive columns."""
    if isinstance(x, Patches):
        # The parts of all elements are one after the other in memory.
        data = parts_of(x.data, fmt).movedim(-1, 0).contiguous()
        columns = x.columns.unsqueeze(-1) + torch.tensor(places, device=x.device) * x.data.numel()
        return replace(x, data=data, columns=columns.flatten())
    return parts_of(x, fmt, places).flatten(-2)
