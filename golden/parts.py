"""Codes of compound numbers and of their parts, and products by parts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from halfulp.hdl.formats import Format
from halfulp.hdl.specs import MacSpec

from .kernels import Matrices, Patches

Either = TypeVar("Either", Tensor, Matrices)


def parts_of(codes: Tensor, fmt: Format, places: Sequence[int] | None = None) -> Tensor:
    """Return the codes of parts in a new last dimension; default: all of them, part 0 first.

    Part 0 is the largest. A code of another format is its own part 0.
    """
    if fmt.parts == 1:
        return codes.unsqueeze(-1).expand(*codes.shape, 1 if places is None else len(places))
    return codes.unsqueeze(-1) >> _shifts(fmt, places, codes.device) & (1 << fmt.part_format.width) - 1


def code_of(parts: Tensor, fmt: Format) -> Tensor:
    """Return the codes of numbers from those of all their parts."""
    return (parts << _shifts(fmt, None, parts.device)).sum(-1)


def _shifts(fmt: Format, places: Sequence[int] | None, device: torch.device) -> Tensor:
    """Return the positions of parts in a code."""
    wanted = range(fmt.parts) if places is None else places
    return torch.tensor([(fmt.parts - 1 - place) * fmt.part_format.width for place in wanted], device=device)


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
