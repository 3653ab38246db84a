"""Layers of `golden.nn` on hardware: a Verilated kernel computes their matrix products.

The import of this module lets policies say ``device=rtl``, for few and small products.
"""

import functools
from typing import Any

import torch
from torch import Tensor

from halfulp import golden
from halfulp.golden.nn.product import register
from halfulp.hdl.specs import MacSpec, Tiling
from halfulp.units.systolic import Chain

from .kernel import Kernel
from .verilated import Verilated

DEVICE = "rtl"
TILING = Tiling(2, 2, 8)
"""Tiling of the array in the kernel: small, because the build of its model takes longest."""

LARGEST = 1 << 24
"""Most steps of the array for a layer's product: a few minutes."""

BEGINNINGS = 1 << 10
"""Number of steps of the sources at which random words of a product may begin, by its key."""


def product(a: Tensor, b: Tensor, mac: MacSpec, start: Tensor | None, key: int) -> Tensor:
    """Matrix product of codes on a kernel, to the bits of `expected`.

    Products of a batch follow each other. For random words, a product of zeros first advances the sources to their
    beginning. ValueError if the product is too large, a start value is no product with 1, or stochastic rounding has no
    source.
    """
    a, b, shape = _operands(a, b, mac, start)
    result = torch.zeros(shape, dtype=torch.int64)
    if result.numel() == 0 or a.shape[-1] == 0:
        return result.to(a.device)
    kernel = _verilated(mac)
    begin = key % BEGINNINGS if mac.words else 0
    if begin:
        zeros = torch.zeros(1, begin, dtype=torch.int64)
        kernel.product(zeros, zeros.mT)
    go_on = begin > 0
    flat = zip(*(codes.reshape(-1, *codes.shape[-2:]) for codes in (a.cpu(), b.cpu(), result)), strict=True)
    for x, y, z in flat:
        z[:] = kernel.product(x, y, go_on=go_on)
        go_on = bool(mac.words)
    return result.to(a.device)


def expected(a: Tensor, b: Tensor, mac: MacSpec, start: Tensor | None, key: int) -> Tensor:
    """The same by the golden model: `golden.gemm`, with the array's tiling for random words.

    Sums of an array start from +0. Start values are a first row of b, which is multiplied by ones; this step takes a
    random word as other steps do, but is exact.
    """
    a, b, _ = _operands(a, b, mac, start)
    dealt: dict[str, Any] = {"tiling": TILING, "step": key % BEGINNINGS} if mac.words else {}
    return golden.gemm(a, b, mac, **dealt)


def _operands(a: Tensor, b: Tensor, mac: MacSpec, start: Tensor | None) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Operands of the array, the batches of both alike, and the shape of the result."""
    if mac.words and mac.random is None:
        raise ValueError(
            f"{mac.formula} has stochastic rounding without a source; on device {DEVICE} it needs one, such as "
            f"{mac.formula}@lfsr16"
        )
    *batch, n, m = shape = (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    if start is not None and 0 not in shape:
        a, b = _with_start(a, b, mac, start.expand(shape))
    k = a.shape[-1]
    products = torch.Size(batch).numel()
    steps = products * k * -(-n // TILING.n) * -(-m // TILING.m)
    if steps > LARGEST:
        raise ValueError(
            f"{products} products of {n} x {k} x {m} are {steps:,} steps of an array of {TILING.n} x {TILING.m}; "
            f"layers on device {DEVICE} have up to {LARGEST:,}, take smaller ones or fewer images at once"
        )
    return a.expand(*batch, n, k), b.expand(*batch, k, m), shape


def _with_start(a: Tensor, b: Tensor, mac: MacSpec, start: Tensor) -> tuple[Tensor, Tensor]:
    one, first = mac.a.encode(1, "rz"), start[..., :1, :]
    row = golden.encode(golden.decode(first, mac.o), mac.b)
    ones = torch.full((*start.shape[:-1], 1), one, dtype=torch.int64, device=a.device)
    words: dict[str, Any] = {"tiling": TILING} if mac.words else {}
    if not torch.equal(golden.gemm(ones, row, mac, **words), start):
        raise ValueError(
            f"sums on device {DEVICE} start from products with 1, and not all biases are such in {mac}; round them to "
            f"its operands, as bias={mac.b}.rn does, or take a layer without bias"
        )
    return (
        torch.cat([ones, a.expand(*start.shape[:-2], *a.shape[-2:])], -1),
        torch.cat([row, b.expand(*start.shape[:-2], *b.shape[-2:])], -2),
    )


@functools.cache
def _verilated(mac: MacSpec) -> Verilated:
    return Verilated(Kernel(array=Chain(mac=mac, n=TILING.n, m=TILING.m, depth=TILING.depth)))


register(DEVICE, product)
