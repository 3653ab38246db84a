"""Error of rounding once per layer or per chunk, as some emulators do, against rounding after each operation."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from halfulp.hdl.formats import FP16
from halfulp.tools.threads import threads

if TYPE_CHECKING:
    from torch import Tensor

LENGTHS = (16, 64, 256, 1024, 4096)
"""Products in each sum."""

SIZE, CHUNK = 64, 64
"""Rows and columns of the results, and products in a chunk."""

STEPS, SUMS, CHUNKS, ONCE = "each operation", "each sum", f"each chunk of {CHUNK}", "once"
"""Places of rounding to bf16: products and sums, sums of exact products, sums of chunks, and results."""

PUBLISHED_SIZE, PUBLISHED_RANGE = 128, (1e-6, 1e-2)
"""Matrices in fp16 of Arbitor's check."""

CHANNELS, IMAGE = 64, 16
"""Channels and pixels on a side of images that are convolved with 3 x 3 kernels."""


@threads(1)
def errors(seed: int = 0) -> dict[str, list[float]]:
    """Return relative errors of products of matrices of bf16, for each place of rounding and each length.

    The reference is the product in binary64 of the same operands; errors and reference are Frobenius norms.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    errors_by_way: dict[str, list[float]] = {name: [] for name in _WAYS}
    for length in LENGTHS:
        a, b = (torch.randn(shape, generator=generator).bfloat16() for shape in ((SIZE, length), (length, SIZE)))
        exact = a.double() @ b.double()
        for name, way in _WAYS.items():
            errors_by_way[name].append(float((way(a, b).double() - exact).norm() / exact.norm()))
    return errors_by_way


def _gemm(mac: str) -> "Callable[[Tensor, Tensor], Tensor]":
    def multiply(a: "Tensor", b: "Tensor") -> "Tensor":
        from halfulp import golden
        from halfulp.hdl.specs import MacSpec

        return golden.decode(golden.gemm(a.float(), b.float(), mac), MacSpec.parse(mac).o)

    return multiply


def _chunked(a: "Tensor", b: "Tensor") -> "Tensor":
    """Sum chunks in FP32, and round after each chunk."""
    total = (a[:, :0].float() @ b[:0].float()).bfloat16()
    for left, right in zip(a.split(CHUNK, 1), b.split(CHUNK), strict=True):
        total = (total.float() + left.float() @ right.float()).bfloat16()
    return total


_WAYS: "dict[str, Callable[[Tensor, Tensor], Tensor]]" = {
    STEPS: _gemm("bf16*bf16=bf16.rn+bf16.rn"),
    SUMS: _gemm("bf16*bf16+bf16.rn"),
    CHUNKS: _chunked,
    ONCE: lambda a, b: (a.float() @ b.float()).bfloat16(),
}


@threads(1)
def check(seed: int = 0) -> dict[str, dict[str, float]]:
    """Compare sums of products in fp16 with steps of `numpy.float16`: results that differ, and the largest error.

    Products and sums are rounded in each step, or the result once. The operands are matrices, or images and kernels of
    a convolution, in the published range, whose numbers or logarithms are uniform.
    """
    import numpy as np
    import torch

    from halfulp import golden

    draw = np.random.default_rng(seed)
    low, high = PUBLISHED_RANGE
    differences: dict[str, Any] = {}
    for law, numbers in (
        ("uniform", lambda shape: draw.uniform(low, high, shape)),
        ("log-uniform", lambda shape: np.exp(draw.uniform(np.log(low), np.log(high), shape))),
    ):
        for operation, pair in (("product", _matrices(numbers)), ("convolution", _convolution(numbers))):
            a, b = (matrix.astype(np.float16) for matrix in pair)
            steps = np.zeros((len(a), b.shape[1]), np.float16)
            for place in range(len(b)):
                steps = steps + a[:, place, None] * b[place]
            x, y = (torch.from_numpy(matrix.astype(np.float32)) for matrix in (a, b))
            ways = {
                STEPS: golden.decode(golden.gemm(x, y, "fp16*fp16=fp16.rn+fp16.rn"), FP16).numpy(),
                ONCE: (x @ y).half().numpy(),
            }
            for name, result in ways.items():
                off = np.abs(result.astype(np.float64) - steps) / steps
                figures = {"results that differ": int((off > 0).sum()), "largest difference": float(off.max())}
                differences[f"{operation}, {law}, {name}"] = figures
    return differences


def _matrices(numbers: Callable[[tuple[int, ...]], Any]) -> tuple[Any, Any]:
    """Draw two matrices."""
    return numbers((PUBLISHED_SIZE, PUBLISHED_SIZE)), numbers((PUBLISHED_SIZE, PUBLISHED_SIZE))


def _convolution(numbers: Callable[[tuple[int, ...]], Any]) -> tuple[Any, Any]:
    """Draw an image and kernels of a convolution; return the matrices whose product it is."""
    from numpy.lib.stride_tricks import sliding_window_view

    patches = sliding_window_view(numbers((CHANNELS, IMAGE, IMAGE)), (3, 3), (1, 2))
    return patches.transpose(1, 2, 0, 3, 4).reshape(-1, 9 * CHANNELS), numbers((9 * CHANNELS, CHANNELS))
