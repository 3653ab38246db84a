"""Operands of matrix products in blocks: each step of a sum takes a part of two blocks, with their scales."""

import functools
from typing import Any

import torch
from torch import Tensor

from halfulp.golden.block import step_term
from halfulp.golden.check import codes_of
from halfulp.golden.codec import round_and_pack, unpack
from halfulp.golden.kernels import Matrices, MatrixProduct, fold, gathered
from halfulp.golden.quantize import BlockTensor, check_blocks, in_blocks, quantize_blocks, raw_of
from halfulp.golden.raw import Raw, multiply
from halfulp.golden.values import decoded
from halfulp.hdl.formats import RN, Block, Rounding, Saturation
from halfulp.hdl.formats.catalogue import is_block_text
from halfulp.hdl.specs import BlockMacSpec

from .steps import Kind, Terms, numbers_of, zeros


def is_block_mac(mac: object) -> bool:
    """Return True for a `BlockMacSpec`, or for a text of one."""
    if isinstance(mac, str):
        first, times, _ = mac.strip().removeprefix("blockmac").partition("*")
        return bool(times) and is_block_text(first.strip())
    return isinstance(mac, BlockMacSpec)


class Blocks(Kind):
    """Products of blocks; see `Kind`."""

    def checked(self, spec: BlockMacSpec, a: Any, b: Any, rounding: Rounding, saturate: Saturation) -> tuple[Any, Any]:
        return _checked("a", a, spec.a, -1, rounding, saturate), _checked("b", b, spec.b, -2, rounding, saturate)

    def terms(self, job: MatrixProduct) -> Terms:
        x, x_scales = _steps_of(job.spec, job.a.elements, job.a.scale, job.spec.a, -1)
        y, y_scales = _steps_of(job.spec, job.b.elements, job.b.scale, job.spec.b, -2)

        def term(step: int, word: Tensor | None) -> Raw:
            left, right = torch.broadcast_tensors(x[..., step, :].unsqueeze(-2), y[..., step, :].unsqueeze(-3))
            scales = x_scales[..., step].unsqueeze(-1), y_scales[..., step].unsqueeze(-2)
            return step_term(job.spec, left, right, *scales)

        return term

    def sides(self, job: MatrixProduct) -> tuple[fold.Side | None, fold.Side | None]:
        return _side(job.spec, job.a, job.spec.a, -1), _side(job.spec, job.b, job.spec.b, -2)

    def finished(self, codes: Matrices, job: MatrixProduct) -> Matrices:
        # The scales of both tensors multiply finished sums, which are rounded once more, to nearest, ties to even.
        scales = [raw_of(operand.tensor) for operand in (job.a, job.b) if operand.tensor is not None]
        if not scales:
            return codes
        product = functools.reduce(multiply, scales, unpack(gathered(codes), job.spec.o))
        return round_and_pack(product, job.spec.o, RN, job.spec.saturate, None)

    def example(self, spec: BlockMacSpec, n: int, k: int, m: int, device: str) -> tuple[Any, Any]:
        a, b = zeros(n, -(-k // spec.a.length), device), zeros(-(-k // spec.b.length), m, device)
        return BlockTensor(zeros(n, k, device), a, None), BlockTensor(zeros(k, m, device), b, None)


def _checked(name: str, x: Any, block: Block, dim: int, rounding: Rounding, saturate: Saturation) -> BlockTensor:
    """Return an operand in blocks with checked codes in int64; real numbers are quantized."""
    if isinstance(x, Tensor) and x.dtype.is_floating_point:
        if saturate:
            raise ValueError("operand_saturate has no effect on blocks, whose elements saturate in any case")
        x = quantize_blocks(x, block, rounding, dim=dim)
    elif rounding != RN or saturate:
        raise ValueError("operand_rounding and operand_saturate have no effect on codes; give real numbers as a and b")
    x = check_blocks(name, x, block, dim)
    return BlockTensor(
        codes_of(f"elements of {name}", x.elements, block.element),
        codes_of(f"scale of {name}", x.scale, block.scale),
        x.tensor,
    )


def _steps_of(spec: BlockMacSpec, elements: Tensor, scale: Tensor, block: Block, dim: int) -> tuple[Tensor, Tensor]:
    """Return codes of shape (..., row or column, step, place) and of scales (..., row or column, step)."""
    codes = in_blocks(elements, dim, block.length, block.element.encode(0)).flatten(-2)
    repeated = scale.movedim(dim, -1).repeat_interleave(block.length // spec.k, -1)
    return codes.unflatten(-1, (-1, spec.k)), repeated


def _side(spec: BlockMacSpec, x: BlockTensor, block: Block, dim: int) -> fold.Side | None:
    """Decode an operand; None if a scale is infinite."""
    elements, scale = (part.reshape(-1, *part.shape[-2:]) for part in (x.elements, x.scale))
    codes, scales = _steps_of(spec, elements, scale, block, dim)
    factor = decoded(scales, block.scale, torch.float64)
    numbers, lowest, highest = numbers_of(spec, block.element, codes)
    if block.scale.has_zero:
        if bool(factor.isinf().any()):
            return None
        # A zero scale makes zeros of all elements, a negative one exchanges their signs.
        sign = torch.where(factor == 0, torch.copysign(torch.zeros_like(factor), factor), torch.sign(factor))
        usual = torch.where(factor.isnan(), 1.0, sign).to(numbers.dtype)
        if bool((usual != 1).any()):
            numbers = numbers * usual.unsqueeze(-1)
        factor = torch.where(factor == 0, 1.0, factor.abs())
    exponent = torch.where(factor.isnan(), 1, torch.frexp(factor)[1]).to(torch.int32)
    return fold.Side(numbers, factor, lowest + exponent - block.scale.precision, highest + exponent)
