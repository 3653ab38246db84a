"""Matrix products of blocks: steps of a block multiply-accumulate for each element of the result."""

import functools
from typing import Any

import torch
from torch import Tensor

from halfulp.hdl.formats import RN, Block, Format, Rounding
from halfulp.hdl.formats.catalogue import is_block_text
from halfulp.hdl.specs import BlockMacSpec, SparseMacSpec

from .block import step_term
from .check import codes_of
from .codec import round_and_pack, unpack
from .kernels import fold
from .quantize import BlockTensor, check_blocks, in_blocks, quantize_blocks, raw_of
from .raw import Raw, multiply
from .values import decoded

SPECIAL = 1 << 14
"""Exponent of places of zeros, infinities and NaN, which bound nothing."""


def is_block_mac(mac: object) -> bool:
    """Return True for a `BlockMacSpec`, or for a text of one."""
    if isinstance(mac, str):
        return is_block_text(mac.strip().removeprefix("blockmac").strip().split("*")[0].strip())
    return isinstance(mac, BlockMacSpec)


def operand(name: str, x: Any, block: Block, dim: int, rounding: Rounding, saturate: bool) -> BlockTensor:
    """Return an operand in blocks with checked codes in int64; real numbers are quantized."""
    if isinstance(x, Tensor) and x.dtype.is_floating_point:
        if saturate:
            raise ValueError("operand_saturate has no effect on blocks, whose elements saturate in any case")
        x = quantize_blocks(x, block, rounding, dim=dim)
    elif rounding != RN or saturate:
        raise ValueError("operand_rounding and operand_saturate have no effect on codes; give real numbers as a and b")
    x = check_blocks(name, x, block, dim)
    return BlockTensor(
        codes_of(f"elements of {name}", x.elements, block.element.width),
        codes_of(f"scale of {name}", x.scale, block.scale.width),
        x.tensor,
    )


class Steps:
    """Elements and scales of both operands by step."""

    def __init__(self, spec: BlockMacSpec, a: BlockTensor, b: BlockTensor) -> None:
        self.spec = spec
        (self.x, self.x_scale), (self.y, self.y_scale) = self._of(a, spec.a, -1), self._of(b, spec.b, -2)

    def _of(self, x: BlockTensor, block: Block, dim: int) -> tuple[Tensor, Tensor]:
        """Return codes of shape (..., row or column, step, place) and of scales (..., row or column, step)."""
        codes = in_blocks(x.elements, dim, block.length, block.element.encode(0)).flatten(-2)
        repeated = x.scale.movedim(dim, -1).repeat_interleave(block.length // self.spec.k, -1)
        return codes.unflatten(-1, (-1, self.spec.k)), repeated

    def term(self, step: int) -> Raw:
        """Return the terms of all sums in a step."""
        x, x_scale = self.x[..., step, :].unsqueeze(-2), self.x_scale[..., step].unsqueeze(-1)
        y, y_scale = self.y[..., step, :].unsqueeze(-3), self.y_scale[..., step].unsqueeze(-2)
        x, y = torch.broadcast_tensors(x, y)
        return step_term(self.spec, x, y, x_scale, y_scale)


def sides(spec: BlockMacSpec, a: BlockTensor, b: BlockTensor) -> tuple[fold.Side | None, fold.Side | None]:
    """Decode the operands of the compiled kernel; None if a scale is infinite."""
    return _side(a, spec.a, -1, spec), _side(b, spec.b, -2, spec)


def places_of_batches(shape: tuple[int, ...], *operands: Tensor) -> tuple[Tensor, ...]:
    """Return the batch of each operand for each batch of the result, both in row-major order."""
    batches = [x.shape[:-2] for x in operands]
    counts = [torch.arange(own.numel()).reshape(own).expand(shape[:-2]).reshape(-1) for own in batches]
    return tuple(count.clone() for count in counts)


def _side(x: BlockTensor, block: Block, dim: int, spec: BlockMacSpec) -> fold.Side | None:
    """Decode an operand; None if a scale is infinite."""
    elements, scale = (one.reshape(-1, *one.shape[-2:]) for one in (x.elements, x.scale))
    step = spec.k
    codes = in_blocks(elements, dim, block.length, block.element.encode(0)).flatten(-2).unflatten(-1, (-1, step))
    factor = decoded(scale, block.scale, torch.float64).movedim(dim, -1)
    factor = factor.repeat_interleave(block.length // step, -1)
    found, lowest, highest = numbers_of(spec, block.element, codes)
    if block.scale.has_zero:
        if bool(factor.isinf().any()):
            return None
        # A zero scale makes zeros of all elements, a negative one exchanges their signs.
        sign = torch.where(factor == 0, torch.copysign(torch.zeros_like(factor), factor), torch.sign(factor))
        usual = torch.where(factor.isnan(), 1.0, sign).to(found.dtype)
        if bool((usual != 1).any()):
            found = found * usual.unsqueeze(-1)
        factor = torch.where(factor == 0, 1.0, factor.abs())
    exponent = torch.where(factor.isnan(), 1, torch.frexp(factor)[1]).to(torch.int32)
    return fold.Side(found, factor, lowest + exponent - block.scale.precision, highest + exponent)


def numbers_of(spec: BlockMacSpec | SparseMacSpec, fmt: Format, codes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the elements of steps as real numbers, and exponents that bound those of each step; see `fold.Side`."""
    numbers, low, top = _tables(fmt, torch.float32 if is_single(spec) else torch.float64)
    if is_exact(spec):
        # No check of single elements is necessary.
        lowest, highest = (torch.full(codes.shape[:-1], int(end), dtype=torch.int32) for end in (low.min(), top.max()))
    else:
        lowest, highest = low[codes].amin(-1).clamp(max=0), top[codes].amax(-1).clamp(min=0)
    return numbers[codes], lowest, highest


@functools.lru_cache(maxsize=64)
def _tables(fmt: Format, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return the numbers of all codes, and exponents: numbers are multiples of 2^low and below 2^top."""
    codes = torch.arange(1 << fmt.width)
    numbers = decoded(codes, fmt, torch.float64)
    fraction, exponent = torch.frexp(numbers.abs())
    integer = (fraction * 2.0**53).nan_to_num(0, 0, 0).to(torch.int64)
    trailing = torch.where(integer == 0, 1, integer & -integer).double().log2().to(torch.int32)
    bounds = (integer != 0) & numbers.isfinite()
    low = torch.where(bounds, exponent - 53 + trailing, SPECIAL).to(torch.int32)
    top = torch.where(bounds, exponent, -SPECIAL).to(torch.int32)
    return numbers.to(dtype), low, top


@functools.lru_cache(maxsize=256)
def _span(spec: BlockMacSpec | SparseMacSpec) -> int:
    """Return the bits of the exact dot products of a step."""
    (_, low_a, top_a), (_, low_b, top_b) = (_tables(fmt, torch.float64) for fmt in fold.elements_of(spec))
    return int(top_a.max() + top_b.max() - low_a.min() - low_b.min()) + (spec.k - 1).bit_length()


def is_single(spec: BlockMacSpec | SparseMacSpec) -> bool:
    """Return True if binary32 holds every dot product of a step, and all elements."""
    return _span(spec) <= 24


def is_exact(spec: BlockMacSpec | SparseMacSpec) -> bool:
    """Return True if binary64 holds every dot product of a step times the scales."""
    scales = spec.a.scale.precision + spec.b.scale.precision if isinstance(spec, BlockMacSpec) else 0
    return _span(spec) + scales <= 53


def with_tensor_scales(codes: Tensor, spec: BlockMacSpec, a: BlockTensor, b: BlockTensor) -> Tensor:
    """Multiply finished sums by the scales of both tensors and round once, to nearest, ties to even."""
    scales = [raw_of(one.tensor) for one in (a, b) if one.tensor is not None]
    if not scales:
        return codes
    product = functools.reduce(multiply, scales, unpack(codes, spec.o))
    return round_and_pack(product, spec.o, RN, spec.saturate, None)


__all__ = ["Steps", "is_block_mac", "operand", "sides", "with_tensor_scales"]
