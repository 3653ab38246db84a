"""Matrix products of `golden.nn` layers on a Verilated kernel.

Importing this module registers ``device=rtl`` for policies; it suits small products.
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
"""Tiling of the array in the kernel; small, because compiling its model dominates the time."""

LARGEST = 1 << 24
"""Maximum number of array steps of a layer's product; this many take a few minutes."""

BEGINNINGS = 1 << 10
"""Number of offsets in the random sequence at which a product may begin; its key selects one."""


def product(a: Tensor, b: Tensor, mac: MacSpec, start: Tensor | None, key: int) -> Tensor:
    """Multiply matrices of codes on a kernel, with the bits of `expected`.

    The products of a batch run one after the other. With random words, a product of zeros first advances the sources
    to the start of the sequence. ValueError if the product is too large, a start value is not representable as an
    operand, or stochastic rounding has no source.
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
    """Compute the same product by `golden.gemm`, with the array's tiling for random words.

    Sums of an array start from +0, so start values become a first row of b that is multiplied by ones. This step takes
    a random word as other steps do, but is exact.
    """
    a, b, _ = _operands(a, b, mac, start)
    dealt: dict[str, Any] = {"tiling": TILING, "step": key % BEGINNINGS} if mac.words else {}
    return golden.gemm(a, b, mac, **dealt)


def _operands(a: Tensor, b: Tensor, mac: MacSpec, start: Tensor | None) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Expand both operands to a common batch; return them and the shape of the result."""
    if mac.words and mac.random is None:
        raise ValueError(
            f"{mac.formula} has stochastic rounding without a random source; device {DEVICE} needs one, such as "
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
            f"device {DEVICE} allows {LARGEST:,} for a layer; use smaller layers or fewer images at once"
        )
    return a.expand(*batch, n, k), b.expand(*batch, k, m), shape


def _with_start(a: Tensor, b: Tensor, mac: MacSpec, start: Tensor) -> tuple[Tensor, Tensor]:
    one, first = mac.a.encode(1, "rz"), start[..., :1, :]
    row = golden.encode(golden.decode(first, mac.o), mac.b)
    ones = torch.full((*start.shape[:-1], 1), one, dtype=torch.int64, device=a.device)
    words: dict[str, Any] = {"tiling": TILING} if mac.words else {}
    if not torch.equal(golden.gemm(ones, row, mac, **words), start):
        raise ValueError(
            f"device {DEVICE} adds biases as products with 1, and not every bias is an operand of {mac}; round biases "
            f"to its operand format with bias={mac.b}.rn, or use a layer without bias"
        )
    return (
        torch.cat([ones, a.expand(*start.shape[:-2], *a.shape[-2:])], -1),
        torch.cat([row, b.expand(*start.shape[:-2], *b.shape[-2:])], -2),
    )


@functools.cache
def _verilated(mac: MacSpec) -> Verilated:
    return Verilated(Kernel(array=Chain(mac=mac, n=TILING.n, m=TILING.m, depth=TILING.depth)))


register(DEVICE, product)
