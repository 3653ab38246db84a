"""Convolutions in the arithmetic of a policy, forward and backward, as matrix products of windows (im2col).

They raise TypeError or ValueError if tensors have wrong types or shapes, or if their dtype does not hold the results.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from halfulp.golden.kernels import Patches

from .cast import check_real
from .matmul import gradients_of_operands, with_gradients
from .operands import Call, Codes, Use


def _offsets(sizes: Sequence[int], strides: Sequence[int]) -> Tensor:
    """Return the offsets in memory of the elements of a tensor, in row-major order."""
    offsets = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(sizes, strides, strict=True):
        offsets = offsets.unsqueeze(-1) + torch.arange(size) * stride
    return offsets.flatten()


def _windows(
    x: Tensor, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], groups: int
) -> tuple[Patches, list[int]]:
    """Return the windows of a convolution, of shape (groups, N * output, C / groups * kernel), and the output's size.

    Rows are in the order of (image, place in the output), columns in that of (channel, place in the kernel).
    """
    x = x.contiguous()
    n, c, *size = x.shape
    of_image, of_channel, *of_place = x.stride()
    output = _output(size, kernel, stride, dilation)
    of_output, of_kernel = (
        [place * by for place, by in zip(of_place, step, strict=True)] for step in (stride, dilation)
    )
    return Patches(
        x,
        _offsets([groups], [c // groups * of_channel]),
        _offsets([n, *output], [of_image, *of_output]),
        _offsets([c // groups, *kernel], [of_channel, *of_kernel]),
    ), output


def _output(size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """Return the size of the result of a convolution."""
    return [
        (length - step * (reach - 1) - 1) // hop + 1
        for length, reach, hop, step in zip(size, kernel, stride, dilation, strict=True)
    ]


def _images(x: Tensor, groups: int) -> Patches:
    """Return the matrices of shape (groups, N * points, C / groups) of the points of images (N, C, *size)."""
    n, c, *size = x.shape
    points = math.prod(size)
    each = c // groups
    return Patches(
        x, _offsets([groups], [each * points]), _offsets([n, points], [c * points, 1]), _offsets([each], [points])
    )


def spread(x: Tensor, stride: Sequence[int], before: Sequence[int], size: Sequence[int]) -> Tensor:
    """Insert zeros between the pixels of images (stride - 1) and around them, up to a size."""
    # Code 0 is zero in every format.
    wide = x.new_zeros((*x.shape[:2], *size))
    wide[spread_places(stride, before, x.shape[2:])] = x
    return wide


def spread_places(stride: Sequence[int], before: Sequence[int], count: Sequence[int]) -> tuple[Any, ...]:
    """Return the places of the points in a result of `spread`."""
    places = zip(before, stride, count, strict=True)
    return (..., *(slice(first, first + step * number, step) for first, step, number in places))


def _convolution(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    key: Tensor | None,
    amax: Tensor | None,
    history: Tensor | None,
    policy: str,
    layer: str,
    geometry: list[int],
) -> Tensor:
    """Convolve padded images; ``history`` is for the gradient."""
    return convolved(Call.of(policy, key, amax, layer), x, w, bias, geometry)[0]


def convolved(call: Call, x: Tensor, w: Tensor, bias: Tensor | None, geometry: list[int]) -> tuple[Tensor, int]:
    """Convolve padded images, and return the number of pruned elements too."""
    stride, dilation, groups = _geometry(geometry)
    m, rest = w.shape[0], _rest(x, 0)
    codes = call.operand("x", x).codes("forward", "a", (1,), rest, groups=groups)
    windows, output = _windows(codes.tensor, w.shape[2:], stride, dilation, groups)
    kernels = call.operand("w", w).codes("forward", "b", (1,), rest, lambda factors: factors.transpose(0, 1))
    rows = kernels.laid_out(lambda elements: elements.reshape(groups, m // groups, math.prod(w.shape[1:])))
    start = call.start(bias)
    if start is not None:
        start = start.reshape(groups, 1, m // groups)
    images = _images(x.new_empty((x.shape[0], m, *output)), groups)
    sums = call.product("forward", codes.laid_out(lambda _: windows), rows.mT, x.dtype, start, images)
    return sums, codes.pruned + kernels.pruned


def _geometry(geometry: list[int]) -> tuple[list[int], list[int], int]:
    """Split the geometry of a convolution into stride, dilation and groups."""
    dims = len(geometry) // 2
    return geometry[:dims], geometry[dims : 2 * dims], geometry[-1]


def _convolution_shape(x: Tensor, w: Tensor, *parts: Any) -> Tensor:
    stride, dilation, _ = _geometry(parts[-1])
    return x.new_empty((x.shape[0], w.shape[0], *_output(x.shape[2:], w.shape[2:], stride, dilation)))


def _rest(x: Tensor, dim: int) -> tuple[int, ...]:
    """Return all dimensions but one."""
    return tuple(axis for axis in range(x.dim()) if axis != dim)


def _convolution_gradients(
    gradient: Tensor,
    x: Tensor,
    w: Tensor,
    key: Tensor | None,
    amax: Tensor | None,
    policy: str,
    layer: str,
    geometry: list[int],
    needs: list[bool],
) -> list[Tensor]:
    return gradients_of_convolution(Call.of(policy, key, amax, layer), gradient, x, w, geometry, needs)[0]


def gradients_of_convolution(
    call: Call, gradient: Tensor, x: Tensor, w: Tensor, geometry: list[int], needs: list[bool]
) -> tuple[list[Tensor], int]:
    """Return the gradients as `gradients_of_operands` does."""
    stride, dilation, groups = _geometry(geometry)
    behind = call.operand("gradient", gradient)
    m, c, *kernel = w.shape
    n, _, *size = x.shape

    def of_input() -> tuple[Tensor, int]:
        """Convolve the spread gradient with the flipped kernels; each element is one sum."""
        reach = [step * (length - 1) for step, length in zip(dilation, kernel, strict=True)]
        wide = [length + more for length, more in zip(size, reach, strict=True)]

        def windows(codes: Tensor) -> Patches:
            return _windows(spread(codes, stride, reach, wide), kernel, [1] * len(kernel), dilation, groups)[0]

        def by_channel(factors: Tensor) -> Tensor:
            return factors.reshape(1, groups * c, *[1] * len(kernel))

        left = behind.codes("input_gradient", "a", (1,), _rest(x, 0), groups=groups)
        parts = call.operand("w", w.reshape(groups, m // groups, c, *kernel))
        right = parts.codes("input_gradient", "b", (2,), (1, *range(3, 3 + len(kernel))), by_channel)
        kernels = right.laid_out(lambda elements: turned_kernels(elements).flatten(2))
        images = _images(x.new_empty((n, groups * c, *size)), groups)
        sums = call.product("input_gradient", left.laid_out(windows), kernels.mT, x.dtype, None, images)
        return sums, left.pruned + right.pruned

    def rows(rotate: bool = True) -> Codes:
        along = _rest(x, 1)
        codes = behind.codes(
            "weight_gradient", "a", along, along, lambda factors: factors.reshape(groups, -1, 1), rotate=rotate
        )
        return codes.laid_out(lambda elements: _images(elements.contiguous(), groups)).mT

    def columns() -> Codes:
        def by_channel(factors: Tensor) -> Tensor:
            return factors.reshape(groups, 1, -1).repeat_interleave(math.prod(kernel), 2)

        codes = call.operand("x", x).codes("weight_gradient", "b", (1,), _rest(x, 1), by_channel, groups)
        return codes.laid_out(lambda elements: _windows(elements, kernel, stride, dilation, groups)[0])

    return gradients_of_operands(call, x, w, needs, of_input, rows, columns)


def turned_kernels(kernels: Tensor) -> Tensor:
    """Exchange inputs and outputs of kernels of shape (groups, M / groups, C / groups, *kernel), and flip them."""
    return kernels.transpose(1, 2).flip(*range(3, kernels.dim()))


_CONVOLUTION, _GRADIENTS_OF_CONVOLUTION = with_gradients(_convolution, _convolution_shape, _convolution_gradients)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    use: Use,
    *,
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
) -> Tensor:
    """Convolve without padding, for shapes (N, C, H, W) or (C, H, W), (M, C / groups, kh, kw) and (M,).

    Each element is one sum in ascending index order. The sum of a result runs over (channel, row, column) of the kernel
    and starts from the bias; that of an input gradient runs over (kernel, row, column) of the flipped kernels; that of
    a weight gradient runs over (image, row, column). Sums have products with the zeros of a padding, and those of input
    gradients with zeros at the edges and for a stride above 1; with infinity or NaN in a kernel they are NaN.
    """
    dtype = check_real(x, "the input")
    images = x if x.dim() == 4 else x.unsqueeze(0)
    channels = weight.shape[1] * groups
    if images.dim() != 4 or images.shape[1] != channels:
        raise ValueError(
            f"the input has shape {tuple(x.shape)}; a convolution of {channels} channels needs (N, {channels}, H, W)"
        )
    reach = [dilation[place] * (weight.shape[2 + place] - 1) + 1 for place in (0, 1)]
    if any(images.shape[2 + place] < reach[place] for place in (0, 1)):
        raise ValueError(
            f"the input has {images.shape[2]} x {images.shape[3]} pixels with its padding; the kernel needs "
            f"{reach[0]} x {reach[1]}"
        )
    given = None if bias is None else bias.to(dtype)
    geometry = [*stride, *dilation, groups]
    w = weight.to(dtype)
    result: Tensor = _CONVOLUTION(images, w, given, use.key, *use.amax(images, w), use.policy, use.layer, geometry)
    return result if x.dim() == 4 else result.squeeze(0)


def padded(x: Tensor, padding: Sequence[int], mode: str) -> Tensor:
    """Pad images left, right, above and below, as `torch.nn.Conv2d` does."""
    if not any(padding):
        return x
    return F.pad(x, list(padding), mode="constant" if mode == "zeros" else mode)
