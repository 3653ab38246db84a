"""Matrix products of `golden.nn` layers on a Verilated kernel.

Importing this module registers ``device=rtl`` for policies; it suits small products.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from halfulp import golden
from halfulp.golden.entries import Operand, elements_of, matrices_of
from halfulp.golden.nn import register_device
from halfulp.golden.nn.operands import ones_in_blocks
from halfulp.golden.quantize import BlockTensor
from halfulp.hdl.formats import Block, Format
from halfulp.hdl.specs import BlockMacSpec, MacSpec, Tiling
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


def product(a: Operand, b: Operand, mac: MacSpec | BlockMacSpec, start: Tensor | None, key: int) -> Tensor:
    """Multiply matrices of codes, or of blocks along the sums, on a kernel, with the bits of `expected`.

    The products of a batch run one after the other. With random words, a product of zeros first advances the sources
    to the start of the sequence. ValueError if the product is too large, a start value is not representable as an
    operand, or stochastic rounding has no source.
    """
    a, b, shape = _operands(a, b, mac, start)
    result, codes = torch.zeros(shape, dtype=torch.int64), elements_of(a)
    if result.numel() == 0 or codes.shape[-1] == 0:
        return result.to(codes.device)
    kernel = _verilated(mac)
    begin = _begin(mac, key)
    if begin:
        kernel.product(_zeros(mac.a, begin).mT, _zeros(mac.b, begin))
    go_on = begin > 0
    pairs = zip(*(matrices_of(operand, shape[:-2]) for operand in (a, b)), strict=True)
    for (x, y), z in zip(pairs, result.reshape(-1, *shape[-2:]), strict=True):
        z[:] = kernel.product(x, y, go_on=go_on)
        go_on = bool(mac.words)
    return result.to(codes.device)


def expected(a: Operand, b: Operand, mac: MacSpec | BlockMacSpec, start: Tensor | None, key: int) -> Tensor:
    """Compute the same product by `golden.gemm`, with the array's tiling for random words.

    Sums of an array start from +0, so start values become a first row of b that is multiplied by ones. This step takes
    a random word as other steps do, but is exact.
    """
    a, b, _ = _operands(a, b, mac, start)
    dealt: dict[str, Any] = {"tiling": TILING, "first_step": mac.steps(_begin(mac, key))} if mac.words else {}
    return golden.gemm(a, b, mac, **dealt)


def _begin(mac: Any, key: int) -> int:
    """Return the length of the sums that advance the sources to the beginning of a key."""
    return 0 if not mac.words else key % BEGINNINGS * (mac.a.length if isinstance(mac, BlockMacSpec) else 1)


def _zeros(fmt: Format | Block, count: int) -> Operand:
    """Return a column of zeros."""
    if fmt.shares_scale:
        return golden.quantize_blocks(torch.zeros(count, 1), fmt, dim=-2)
    return torch.zeros(count, 1, dtype=torch.int64)


def _operands(
    a: Operand, b: Operand, mac: MacSpec | BlockMacSpec, start: Tensor | None
) -> tuple[Operand, Operand, tuple[int, ...]]:
    """Return both operands, with start values as first products of the sums, and the shape of the result."""
    if mac.words and mac.random is None:
        raise ValueError(
            f"{mac.expression} has stochastic rounding without a random source; device {DEVICE} needs one, such as "
            f"{mac.expression}@lfsr16"
        )
    x, y = elements_of(a).shape, elements_of(b).shape
    *batch, n, m = shape = (*torch.broadcast_shapes(x[:-2], y[:-2]), x[-2], y[-1])
    if start is not None and 0 not in shape:
        a, b = _with_start(a, b, mac, start.expand(shape))
    k = elements_of(a).shape[-1]
    products = torch.Size(batch).numel()
    steps = products * mac.steps(k) * -(-n // TILING.n) * -(-m // TILING.m)
    if steps > LARGEST:
        raise ValueError(
            f"{products} products of {n} x {k} x {m} are {steps:,} steps of an array of {TILING.n} x {TILING.m}; "
            f"device {DEVICE} allows {LARGEST:,} for a layer; use smaller layers or fewer images at once"
        )
    return a, b, shape


def _with_start(a: Operand, b: Operand, mac: Any, start: Tensor) -> tuple[Operand, Operand]:
    """Return operands whose first products are ones times the start values, with a block of both for blocks."""
    first = golden.decode(start[..., :1, :], mac.o)
    ones: Operand
    row: Operand
    if isinstance(mac, BlockMacSpec):
        ones = ones_in_blocks(mac.a, start[..., :1].expand(*start.shape[:-1], mac.a.length).mT).mT
        row, fits = _in_a_block(first, mac.b), "e8m3"
    else:
        ones = torch.full((*start.shape[:-1], 1), mac.a.encode(1, "rz"), dtype=torch.int64, device=start.device)
        row, fits = golden.encode(first, mac.b), str(mac.b)
    words: dict[str, Any] = {"tiling": TILING} if mac.words else {}
    # Sums begin with +0, so a start value of -0 becomes +0.
    if not torch.equal(golden.decode(golden.gemm(ones, row, mac, **words), mac.o), golden.decode(start, mac.o)):
        raise ValueError(
            f"device {DEVICE} adds biases as products with 1, and not every bias is representable in an operand of "
            f"{mac.expression}; round biases with bias={fits}.rn, or use a layer without bias"
        )
    return _joined(ones, a, start.shape[:-2], -1), _joined(row, b, start.shape[:-2], -2)


def _in_a_block(numbers: Tensor, block: Block) -> BlockTensor:
    """Split each number of a row into the elements of a block, whose sum it is if they hold all of its bits."""
    # A power of two divides numbers without an error. With this one, half of the elements can be the largest number.
    exponent = torch.frexp(numbers).exponent - block.emax - max(block.length.bit_length() - 1, 1)
    power = torch.ldexp(torch.ones_like(numbers), exponent)
    scale = golden.encode(power.clamp(min=float(block.scale.smallest)), block.scale, saturate=True)
    rest, parts = numbers / golden.decode(scale, block.scale), []
    for _ in range(block.length):
        parts.append(golden.encode(rest, block.element, "rz", saturate=True))
        rest = rest - golden.decode(parts[-1], block.element)
    return BlockTensor(torch.cat(parts, -2), scale)


def _joined(first: Any, second: Any, batch: Sequence[int], dim: int) -> Any:
    """Join two operands along the sums, the second one expanded to a batch."""
    if isinstance(first, BlockTensor):
        elements = _joined(first.elements, second.elements, batch, dim)
        return BlockTensor(elements, _joined(first.scale, second.scale, batch, dim))
    return torch.cat([first, second.expand(*batch, *second.shape[-2:])], dim)


@functools.cache
def _verilated(mac: Any) -> Verilated:
    return Verilated(Kernel(array=Chain(mac=mac, n=TILING.n, m=TILING.m, depth=TILING.depth)))


register_device(DEVICE, product)
