"""Tensors in blocks whose scales are those of tiles, and scales with the smaller error."""

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from halfulp.hdl.formats import RN, Block, Rounding, parse
from halfulp.hdl.formats.block import MAX_LENGTH

from .check import check_bool, check_int
from .dtypes import Array
from .quantize import (
    BlockTensor,
    check_dim,
    dequantize_blocks,
    in_blocks,
    quantize_blocks,
    reals_of,
    tensor_scale,
    words_like,
)
from .uncompiled import uncompiled


@uncompiled
def quantize_tiles(  # noqa: PLR0913 - options of `quantize_blocks`, by name
    x: "Tensor | Array",
    block: Block | str,
    rounding: Rounding | str = RN,
    *,
    rows: int = 1,
    four_over_six: bool = False,
    dim: int = -1,
    tensor: float | Tensor | str | None = None,
    random: Tensor | None = None,
) -> BlockTensor:
    """Convert real numbers to blocks whose scale is that of a tile: ``rows`` neighbouring blocks of a matrix.

    Each block of a tile stores the scale of the tile, so the result is a tensor in blocks as any other. A tile of
    ``rows = length`` has the same codes for a matrix and its transpose.

    Parameters
    ----------
    x : Tensor or array
        Numbers of a floating-point dtype, with two dimensions or more. The last tiles of a matrix may be smaller.
    rows : int
        Blocks in a tile, along the other one of the last two dimensions: 16 for tiles of 16 x 16 in ``nvfp4``, 128 for
        tiles of 128 x 128 in ``block(e4m3fn,128,fp32,nearest)``.
    four_over_six : bool
        Scale each tile so that its largest magnitude becomes 6 or 4, whichever has the smaller squared error; 6 if both
        are equal (Cook et al., Four Over Six, arXiv 2512.02010). For elements e2m1fn and the rule ``nearest``.
        Errors are sums in binary64, in the order of the elements of a block, and then of the blocks of a tile.
    dim : int
        Dimension along which blocks run, one of the last two.
    block, rounding, tensor, random
        As for `quantize_blocks`. With ``tensor="max"`` the largest tile has the largest scale, and no other for 4.

    Raises
    ------
    TypeError, ValueError
        As for `quantize_blocks`; also if ``dim`` is not one of the last two, the block has 1024 elements, or
        ``four_over_six`` is requested for another kind of block, or for numbers of float64.
    """
    block, rounding = Block.parse(block), Rounding.parse(rounding)
    check_int("rows", rows, 1)
    check_bool("four_over_six", four_over_six)
    x = reals_of(x)
    dim = check_dim(dim, x)
    if x.dim() < 2 or dim < x.dim() - 2:
        raise ValueError(
            f"blocks of tiles run along one of the last two dimensions of a matrix, not {dim} of {x.dim()}"
        )
    if block.length == MAX_LENGTH:
        raise ValueError(f"blocks of tiles have up to {MAX_LENGTH - 1} elements, not {block.length}")
    if four_over_six:
        check_four_over_six(block)
        if x.dtype == torch.float64:
            raise ValueError(
                "four_over_six takes numbers of up to 32 bits, not float64: 1.5 times one may need 54 bits"
            )
    words = words_like(random, rounding, x)
    factor = None if tensor is None else tensor_scale(tensor, x, block)
    if dim == x.dim() - 2:
        turned = None if words is None else words.mT
        made = _quantized(x.mT, block, rounding, rows, four_over_six, factor, turned)
        return made.mT
    return _quantized(x, block, rounding, rows, four_over_six, factor, words)


def _quantized(
    x: Tensor,
    block: Block,
    rounding: Rounding,
    rows: int,
    four_over_six: bool,
    factor: Tensor | None,
    words: Tensor | None,
) -> BlockTensor:
    """Quantize tiles of blocks along the last dimension."""
    x = x.to(torch.float64)
    blocks = in_blocks(x, -1, block.length)
    largest = _by_tile(blocks.abs().amax(-1), rows).amax(-2).repeat_interleave(rows, -2)[..., : x.shape[-2], :]
    # One more element, the largest magnitude of the tile, gives each block the scale of the tile.
    wide = replace(block, length=block.length + 1)
    more = None if words is None else F.pad(in_blocks(words, -1, block.length), (0, 1)).flatten(-2)
    made = []
    for share in (1.0, 1.5)[: 1 + four_over_six]:
        widened = torch.cat([blocks, (largest * share).unsqueeze(-1)], -1)
        codes = quantize_blocks(widened.flatten(-2), wide, rounding, tensor=factor, random=more)
        made.append(codes)
    elements, scale = [codes.elements.unflatten(-1, (-1, wide.length))[..., :-1] for codes in made], made
    chosen, scales = elements[0], scale[0].scale
    if four_over_six:
        errors = [_errors(blocks, codes, wide, rows) for codes in made]
        fours = (errors[1] < errors[0]).repeat_interleave(rows, -2)[..., : x.shape[-2], :]
        chosen = torch.where(fours.unsqueeze(-1), elements[1], chosen)
        scales = torch.where(fours, made[1].scale, scales)
    return BlockTensor(chosen.flatten(-2)[..., : x.shape[-1]].contiguous(), scales.contiguous(), factor)


def _by_tile(values: Tensor, rows: int) -> Tensor:
    """Split the values of blocks, of shape (..., rows, blocks), into tiles of shape (..., tiles, rows, blocks)."""
    return F.pad(values, (0, 0, 0, -values.shape[-2] % rows)).unflatten(-2, (-1, rows))


def _errors(blocks: Tensor, codes: BlockTensor, wide: Block, rows: int) -> Tensor:
    """Return the sums of squared errors of tiles."""
    numbers = dequantize_blocks(codes, wide, dtype=torch.float64).unflatten(-1, (-1, wide.length))[..., :-1]
    squares = (numbers - blocks).square()
    return _in_order(_by_tile(_in_order(squares.unbind(-1)), rows).unbind(-2))


def _in_order(parts: Sequence[Tensor]) -> Tensor:
    """Add tensors in ascending order: the order of a sum of torch is undefined."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def check_four_over_six(block: Block) -> None:
    """Raise ValueError unless the scales of a block can map the largest magnitude to 4 or 6."""
    if block.element != parse("e2m1fn") or block.rule != "nearest":
        raise ValueError(f"four_over_six needs elements e2m1fn and the rule nearest, as nvfp4 has, not {block}")


__all__ = ["quantize_tiles"]
