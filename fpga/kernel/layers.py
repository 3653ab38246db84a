"""Matrix products of `golden.nn` layers on arrays in kernels, and ``device=rtl``: a Verilated kernel.

Importing this module registers ``device=rtl`` for policies; it suits small products.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halfulp import golden
from halfulp.golden.check import broadcast_shape, product_shape
from halfulp.golden.entries import Operand, elements_of, matrices_of
from halfulp.golden.nn import register_device
from halfulp.golden.nn.operands import ones_in_blocks
from halfulp.golden.quantize import BlockTensor
from halfulp.hdl.formats import Block, Format
from halfulp.hdl.specs import BlockMacSpec, MacSpec, Tiling
from halfulp.units.systolic import Chain

from .host import Tile
from .kernel import Kernel
from .verilated import Verilated

DEVICE = "rtl"
TILING = Tiling(2, 2, 8)
"""Tiling of the array in the Verilated kernel; small, because compiling its model dominates the time."""

LARGEST = 1 << 24
"""Maximum number of array steps of a layer's product; this many take a few minutes."""

BEGINNINGS = 1 << 10
"""Number of offsets in the random sequence at which a product may begin; its key selects one."""


@dataclass(frozen=True)
class Arrays:
    """Arrays that compute the products of layers.

    Parameters
    ----------
    device : str
        Name of the device in policies.
    tile : Tile
        Description of the kernels.
    multiply : callable
        Function of batches of matrices, as `Card.product`.
    """

    device: str
    tile: Tile
    multiply: Callable[..., Tensor]

    def product(self, a: Operand, b: Operand, start: Tensor | None, key: int) -> Tensor:
        """Multiply matrices of codes, or of blocks along the sums, with the bits of `expected`.

        With random words, products of zeros first advance the sources of all cores to the start of the sequence.
        ValueError if a start value is not representable as an operand, or stochastic rounding has no source.
        """
        a, b, result = self.operands(a, b, start)
        if result.numel() == 0 or elements_of(a).shape[-1] == 0:
            return result
        mac, begin = self.tile.spec, self._begin(key)
        if begin:
            zeros = _zeros(mac.a, begin).mT, _zeros(mac.b, begin)
            self.multiply(*(_expanded(operand, [self.tile.cores]) for operand in zeros), go_on=False)
        return self.multiply(a, b, go_on=begin > 0).to(result.device)

    def expected(self, a: Operand, b: Operand, start: Tensor | None, key: int) -> Tensor:
        """Compute the same product by `golden.gemm`, with the tiling of the arrays for random words.

        Sums of an array start from +0, so start values become a first row of b that is multiplied by ones. This step
        takes a random word as other steps do, but is exact.
        """
        a, b, result = self.operands(a, b, start)
        if result.numel() == 0:
            return result
        return self.tile.expected(a, b, [self.tile.spec.steps(self._begin(key))] * self.tile.cores).to(result.device)

    def _begin(self, key: int) -> int:
        """Return the length of the sums that advance the sources to the beginning of a key."""
        mac = self.tile.spec
        return 0 if not mac.words else key % BEGINNINGS * (mac.a.length if isinstance(mac, BlockMacSpec) else 1)

    def operands(self, a: Operand, b: Operand, start: Tensor | None) -> tuple[Operand, Operand, Tensor]:
        """Return both operands, with start values as first products of the sums, and a result of zeros."""
        mac = self.tile.spec
        if mac.words and mac.random is None:
            raise ValueError(
                f"{mac.expression} has stochastic rounding without a random source; device {self.device} needs one, "
                f"such as {mac.expression}@lfsr16"
            )
        x, y = elements_of(a), elements_of(b)
        shape = product_shape(x, y)
        if start is not None and 0 not in shape:
            a, b = self._with_start(a, b, start.expand(shape))
        return a, b, torch.zeros(shape, dtype=torch.int64, device=x.device)

    def _with_start(self, a: Operand, b: Operand, start: Tensor) -> tuple[Operand, Operand]:
        """Return operands whose first products are ones times the start values, with a block of both for blocks."""
        mac = self.tile.spec
        first = golden.decode(start[..., :1, :], mac.o)
        ones: Operand
        row: Operand
        if isinstance(mac, BlockMacSpec):
            ones = ones_in_blocks(mac.a, start[..., :1].expand(*start.shape[:-1], mac.a.length).mT).mT
            row, fits = _in_a_block(first, mac.b), "e8m3"
        else:
            ones = torch.full((*start.shape[:-1], 1), mac.a.encode(1, "rz"), dtype=torch.int64, device=start.device)
            row, fits = golden.encode(first, mac.b), str(mac.b)
        words: dict[str, Any] = {"tiling": self.tile.tiling} if mac.words else {}
        # Sums begin with +0, so a start value of -0 becomes +0.
        if not torch.equal(golden.decode(golden.gemm(ones, row, mac, **words), mac.o), golden.decode(start, mac.o)):
            raise ValueError(
                f"device {self.device} adds biases as products with 1, and not every bias is representable in an "
                f"operand of {mac.expression}; round biases with bias={fits}.rn, or use a layer without bias"
            )
        return _joined(ones, a, start.shape[:-2], -1), _joined(row, b, start.shape[:-2], -2)


def product(a: Operand, b: Operand, mac: MacSpec | BlockMacSpec, start: Tensor | None, key: int) -> Tensor:
    """Multiply matrices on a Verilated kernel; see `Arrays.product`.

    The products of a batch run one after the other. ValueError if the product is too large.
    """
    x, y = elements_of(a).shape, elements_of(b).shape
    n, k, m = x[-2], x[-1], y[-1]
    products = math.prod(broadcast_shape(x[:-2], y[:-2]))
    steps = products * mac.steps(k) * -(-n // TILING.n) * -(-m // TILING.m)
    if steps > LARGEST:
        raise ValueError(
            f"{products} products of {n} x {k} x {m} are {steps:,} steps of an array of {TILING.n} x {TILING.m}; "
            f"device {DEVICE} allows {LARGEST:,} for a layer; use smaller layers or fewer images at once"
        )
    return _simulated(mac).product(a, b, start, key)


def expected(a: Operand, b: Operand, mac: MacSpec | BlockMacSpec, start: Tensor | None, key: int) -> Tensor:
    """Compute the same product by `golden.gemm`; see `Arrays.expected`."""
    return _simulated(mac).expected(a, b, start, key)


def _simulated(mac: Any) -> Arrays:
    """Return the array of a Verilated kernel, whose model is made at the first product."""
    return Arrays(DEVICE, Tile("simulated", 1, str(mac), TILING), functools.partial(_multiply, mac))


def _multiply(mac: Any, a: Operand, b: Operand, *, go_on: bool) -> Tensor:
    """Multiply the matrices of a batch one after the other."""
    x, y, kernel = elements_of(a).shape, elements_of(b).shape, _verilated(mac)
    batch, results = broadcast_shape(x[:-2], y[:-2]), []
    for pair in zip(*(matrices_of(operand, batch) for operand in (a, b)), strict=True):
        results.append(kernel.product(*pair, go_on=go_on))
        go_on = bool(mac.words)
    return torch.stack(results).reshape(*batch, x[-2], y[-1])


def _zeros(fmt: Format | Block, count: int) -> Operand:
    """Return a column of zeros."""
    if fmt.shares_scale:
        return golden.quantize_blocks(torch.zeros(count, 1), fmt, dim=-2)
    return torch.zeros(count, 1, dtype=torch.int64)


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
    return torch.cat([first, _expanded(second, batch)], dim)


def _expanded(operand: Any, batch: Sequence[int]) -> Any:
    """Expand an operand to a batch."""
    if isinstance(operand, BlockTensor):
        return BlockTensor(_expanded(operand.elements, batch), _expanded(operand.scale, batch), operand.tensor)
    return operand.expand(*batch, *operand.shape[-2:])


@functools.cache
def _verilated(mac: Any) -> Verilated:
    return Verilated(Kernel(array=Chain(mac=mac, n=TILING.n, m=TILING.m, depth=TILING.depth)))


register_device(DEVICE, product)
