"""Compositions: operations of torch that are computed as several others, by torch's functions or by our own."""

import contextlib
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halfulp.golden.torch_internals import decompositions, memory_format_of, nearest_places, replaced_interpolation

from .averages import AVERAGES

aten = torch.ops.aten


def compositions() -> dict[Any, Any]:
    """Return the functions of all compositions by operation."""
    # torch.compile makes prims.fma, after a product or a quotient, of addcmul_ and addcdiv_.
    compiled = {torch.ops.prims.fma.default: _fma} if hasattr(torch.ops.prims, "fma") else {}
    return decompositions | AVERAGES | _OWN | compiled


def _fma(x: Tensor, y: Any, z: Tensor) -> Tensor:
    """Return z + x * y with two roundings."""
    return z + (x if not isinstance(y, Tensor) and y == 1 else x * y)


def _weight_norm_backward(gradient: Tensor, v: Tensor, g: Tensor, norm: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return the gradients of v and g for weights v * (g / norm), with the norms of v at each index of ``dim``."""
    along = (gradient * v).sum([axis for axis in range(v.dim()) if axis != dim], keepdim=True)
    return g / norm * (gradient - v * (along / (norm * norm))), along / norm


def _soft_margin_loss_backward(gradient: Tensor, x: Tensor, target: Tensor, reduction: int) -> Tensor:
    """Return the gradient of log(1 + exp(-target x)); that of torch's composition, sigmoid - 1, cancels."""
    gradients = gradient * -target * torch.sigmoid(-target * x)
    return gradients / x.numel() if reduction == 1 else gradients


def _max_unpool2d(x: Tensor, places: Tensor, sizes: Sequence[int]) -> Tensor:
    pixels: Tensor = decompositions[aten.max_unpool2d.default](x, places, list(sizes))
    return pixels.contiguous(memory_format=memory_format_of(x))


def _step(size: int, output: int, align: bool, scale: float | None) -> float:
    """Return the distance of the points of a result between the pixels of a row; ``scale`` is that of the caller."""
    if align:
        return (size - 1) / (output - 1) if output > 1 else 0.0
    return 1 / scale if scale is not None and scale > 0 else size / output


class _Grid:
    """Points of a linear interpolation: places of both neighbours in each dimension, and weights of the second one.

    Both are computed in binary32 as in torch, because the formats of a policy may be too narrow for places.
    """

    def __init__(self, x: Tensor, sizes: Sequence[int], outputs: Sequence[int], align: bool, scales: Any) -> None:
        self.places, self.weights = [], []
        given = zip(sizes, outputs, itertools.chain(scales, itertools.repeat(None)), strict=False)
        for dim, (size, output, scale) in enumerate(given):
            factor = np.float32(_step(size, output, align, scale))
            points = np.arange(output, dtype=np.float32)
            points = points * factor if align else (points + np.float32(0.5)) * factor - np.float32(0.5)
            points = points.clip(0)
            low = points.astype(np.int64)
            shape = (output, *[1] * (len(sizes) - 1 - dim))
            pair = (low, (low + 1).clip(max=size - 1))
            self.places.append([torch.tensor(indices.tolist(), device=x.device).reshape(shape) for indices in pair])
            weights = (points - low).clip(0, 1)
            self.weights.append(torch.tensor(weights.tolist(), dtype=x.dtype, device=x.device).reshape(shape))

    @property
    def corners(self) -> Iterator[list[Any]]:
        """Indices of the neighbours of each point."""
        return ([None, None, *places] for places in itertools.product(*self.places))


def _interpolated(x: Tensor, outputs: Sequence[int], align: bool, scales: Sequence[float | None]) -> Tensor:
    """Interpolate linearly between pixels, in the last dimension first."""
    grid = _Grid(x, x.shape[2:], outputs, align, scales)
    # With the alias, autograd adds the gradients of the corners to each other before those of other uses of x.
    x = aten.alias(x)
    values = [aten._unsafe_index(x, corner) for corner in grid.corners]
    for weight in reversed(grid.weights):
        values = [a + (b - a) * weight for a, b in zip(values[::2], values[1::2], strict=True)]
    return values[0].contiguous(memory_format=memory_format_of(x))


def _interpolated_backward(
    gradient: Tensor, outputs: Sequence[int], sizes: Sequence[int], align: bool, *scales: float | None
) -> Tensor:
    """Return the gradient of the pixels; operations and their order are those of autograd through `_interpolated`."""
    grid, gradients = _Grid(gradient, sizes[2:], outputs, align, scales), [gradient]
    for weight in grid.weights:
        pairs = ((whole, whole * weight) for whole in gradients)
        gradients = [part for whole, second in pairs for part in (whole + -second, second)]
    zeros = gradient.new_zeros(sizes)
    parts = [
        aten._unsafe_index_put(zeros, corner, corner_gradient, True)
        for corner, corner_gradient in zip(grid.corners, gradients, strict=True)
    ]
    return functools.reduce(torch.add, reversed(parts))


def _nearest(x: Tensor, outputs: Sequence[int], scales: Sequence[float | None], exact: bool = False) -> list[Tensor]:
    """Return the indices of the nearest pixels; torch's kernels take no scale where the size stays or doubles."""
    nearest = nearest_places(x, outputs, scales, exact)
    for place, (size, output) in enumerate(zip(x.shape[2:], outputs, strict=True)):
        if not exact and output in (size, 2 * size):
            points = torch.arange(output, device=x.device) // (output // size)
            nearest[place] = points.reshape(nearest[place].shape)
    return nearest


@contextlib.contextmanager
def in_graphs() -> Iterator[None]:
    """Let torch.compile use the interpolations of this module."""
    with replaced_interpolation(_interpolated, _nearest):
        yield


_OWN = {
    aten.addcmul.default: lambda x, y, z, *, value=1: _fma(y * z, value, x),
    aten.addcdiv.default: lambda x, y, z, *, value=1: _fma(y / z, value, x),
    aten._weight_norm_interface_backward.default: _weight_norm_backward,
    aten.soft_margin_loss_backward.default: _soft_margin_loss_backward,
    aten.max_unpool2d.default: _max_unpool2d,
    **{
        operation.default: lambda x, outputs, align, *scales: _interpolated(x, outputs, align, scales)
        for operation in (aten.upsample_linear1d, aten.upsample_bilinear2d, aten.upsample_trilinear3d)
    },
    **{
        operation.default: _interpolated_backward
        for operation in (
            aten.upsample_linear1d_backward,
            aten.upsample_bilinear2d_backward,
            aten.upsample_trilinear3d_backward,
        )
    },
}
