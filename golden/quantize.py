"""Tensors in blocks with shared scales."""

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from halfulp.hdl.formats import BF16, FP16, FP32, FP64, OFF, RN, Block, Format, Rounding
from halfulp.tools import html

from .block import quantized
from .check import broadcast, check_dense, check_devices, codes_of, one_mode, random_of
from .codec import round_and_pack, unpack
from .dtypes import Array, tensor_of
from .kernels import quantize
from .raw import Raw, multiply
from .uncompiled import uncompiled

DTYPES = {torch.float64: FP64, torch.float32: FP32, torch.float16: FP16, torch.bfloat16: BF16}
"""Formats of torch's floating-point dtypes."""

MAX = "max"
"""Text for a tensor scale that is computed from the largest magnitude of a tensor."""


class BlockTensor(NamedTuple):
    """Tensor in blocks along one dimension: number i is ``elements[i] * scale[i // length] * tensor``.

    Attributes
    ----------
    elements : Tensor
        Codes of the elements.
    scale : Tensor
        Codes of the scales; the dimension of the blocks has one for each block.
    tensor : Tensor, optional
        Scale of all numbers in float32, without dimensions; None: 1.
    """

    elements: Tensor
    scale: Tensor
    tensor: Tensor | None = None

    @property
    def mT(self) -> "BlockTensor":
        """Tensor with exchanged last dimensions."""
        return BlockTensor(self.elements.mT, self.scale.mT, self.tensor)

    def _repr_html_(self) -> str:
        """Return types and shapes of the parts as a table for notebooks."""
        parts = [(name, part) for name, part in self._asdict().items() if part is not None]
        rows = [(name, part.dtype, str(tuple(part.shape))) for name, part in parts]
        return html.table("Tensor in blocks", rows, ("part", "type", "shape"))


@uncompiled
def quantize_blocks(
    x: "Tensor | Array",
    block: Block | str,
    rounding: Rounding | str = RN,
    *,
    dim: int = -1,
    tensor: float | Tensor | str | None = None,
    random: Tensor | None = None,
) -> BlockTensor:
    """Convert real numbers to blocks along a dimension; elements and scales are those of `blockquantize`.

    Parameters
    ----------
    x : Tensor or array
        Numbers of a floating-point dtype. The last block of a line is padded with zeros, which are not stored.
    block : Block or str
        Block, such as ``mxfp8_e4m3``.
    rounding : Rounding or str
        Rounding of the elements, which saturate.
    dim : int
        Dimension along which blocks run.
    tensor : float, Tensor or str, optional
        Scale of all numbers, positive and in binary32: numbers are divided by it and the scale of their block, and
        rounded once. ``max`` computes it from the largest magnitude, so that the largest block has the largest scale:
        ``max(abs(x)) / (largest element * largest scale)``, rounded to nearest, to a normal number; 1 if ``x`` has
        zeros only, NaN or infinities. Default: 1.
    random : Tensor, optional
        Random words of stochastic rounding, of a shape that broadcasts to that of ``x``.

    Returns
    -------
    BlockTensor
        Codes in the narrowest integer types that hold them: uint8 for up to 8 bits.

    Raises
    ------
    TypeError, ValueError
        If ``x`` holds no real numbers, or a parameter is invalid; otherwise as for `blockquantize`.

    Notes
    -----
    On the CPU a compiled kernel (`halfulp.golden.kernels`) computes elements of up to 8 bits that are floats with
    subnormals or fixed point; torch operations compute all others.
    """
    block, rounding = Block.parse(block), one_mode(rounding, "quantize_blocks")
    x = reals_of(x)
    dim = check_dim(dim, x)
    words = words_like(random, rounding, x)
    # float32 holds all narrower dtypes.
    x = x if x.dtype in (torch.float32, torch.float64) else x.to(torch.float32)
    factor = None if tensor is None else tensor_scale(tensor, x, block)
    if words is None and x.dim() >= 2 and not x.is_contiguous() and x.mT.is_contiguous():
        turned = {x.dim() - 1: x.dim() - 2, x.dim() - 2: x.dim() - 1}.get(dim, dim)
        return quantize_blocks(x.mT, block, rounding, dim=turned, tensor=factor).mT
    x = x.contiguous()
    blocks = quantize.quantize(x, dim, block, rounding, words, 1.0 if factor is None else float(factor))
    if blocks is None:
        blocks = _in_torch(x, dim, block, rounding, words, factor)
    return BlockTensor(*blocks, factor)


def _in_torch(
    x: Tensor, dim: int, block: Block, rounding: Rounding, random: Tensor | None, factor: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Quantize with torch operations: the reference of the kernels, and the fallback."""
    size = x.shape[dim]
    words = None if random is None else in_blocks(random, dim, block.length)
    raw = unpack(in_blocks(x, dim, block.length).to(torch.float64).view(torch.int64), FP64)
    elements, scale = quantized(raw, block, rounding, words, factor)
    elements = elements.flatten(-2).narrow(-1, 0, size).movedim(-1, dim)
    return (
        elements.contiguous().to(quantize.dtype_of(block.element)),
        scale.movedim(-1, dim).contiguous().to(quantize.dtype_of(block.scale)),
    )


def in_blocks(x: Tensor, dim: int, length: int, pad: int = 0) -> Tensor:
    """Move a dimension to the end, pad it, and split it into blocks of shape (..., blocks, length)."""
    x = x.movedim(dim, -1)
    return F.pad(x, (0, -x.shape[-1] % length), value=pad).unflatten(-1, (-1, length))


def check_blocks(name: str, x: object, block: Block, dim: int) -> BlockTensor:
    """Check the types and shapes of a tensor in blocks along a dimension; TypeError or ValueError otherwise."""
    if not isinstance(x, BlockTensor):
        raise TypeError(f"{name} must be a BlockTensor, as quantize_blocks() returns, not {type(x).__name__}")
    elements, scale = x.elements, x.scale
    for part, codes in (("elements", elements), ("scale", scale)):
        if not isinstance(codes, Tensor):
            raise TypeError(f"{part} of {name} must be a tensor of codes, not {type(codes).__name__}")
        check_dense(f"{name}.{part}", codes)
    dim = check_dim(dim, elements)
    wanted = (*elements.shape[:dim], -(-elements.shape[dim] // block.length), *elements.shape[dim + 1 :])
    if scale.shape != wanted:
        raise ValueError(
            f"scales of {name} have shape {tuple(scale.shape)}; elements of shape {tuple(elements.shape)} in blocks of "
            f"{block.length} along dimension {dim} need {wanted}"
        )
    check_devices(elements=elements, scale=scale, tensor=x.tensor)
    return x


@uncompiled
def dequantize_blocks(
    x: BlockTensor, block: Block | str, *, dim: int = -1, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Multiply the elements of a tensor by the scale of their block and by that of the tensor, and round once.

    Parameters
    ----------
    x : BlockTensor
        Codes in blocks along ``dim``, as `quantize_blocks` returns them.
    block : Block or str
        Block of the codes.
    dim : int
        Dimension along which blocks run.
    dtype : torch.dtype
        Floating-point type of the result. Numbers that it does not hold are rounded to nearest, ties to even.

    Raises
    ------
    TypeError, ValueError
        If ``x`` has other types or shapes, holds values that are no codes, or ``dtype`` is not floating point.
    """
    block = Block.parse(block)
    if dtype not in DTYPES:
        raise TypeError(f"dtype must be a floating-point type, not {dtype}")
    x = check_blocks("x", x, block, dim)
    dim = check_dim(dim, x.elements)
    elements = codes_of("elements of x", x.elements, block.element)
    scale = codes_of("scale of x", x.scale, block.scale)
    numbers = unpack(in_blocks(elements, dim, block.length), block.element)
    product = multiply(numbers, unpack(scale.movedim(dim, -1).unsqueeze(-1), block.scale))
    if x.tensor is not None:
        product = multiply(product, raw_of(x.tensor))
    fmt = DTYPES[dtype]
    codes = round_and_pack(product, fmt, RN, OFF, None)
    codes = codes.flatten(-2).narrow(-1, 0, x.elements.shape[dim]).movedim(-1, dim).contiguous()
    return _reals(codes, fmt, dtype)


def _reals(codes: Tensor, fmt: Format, dtype: torch.dtype) -> Tensor:
    words = {16: torch.int16, 32: torch.int32, 64: torch.int64}[fmt.width]
    return codes.to(words).view(dtype)


def raw_of(x: Tensor) -> Raw:
    """Return numbers of float32 as raw numbers."""
    return unpack(x.view(torch.int32).to(torch.int64) & 0xFFFFFFFF, FP32)


def reals_of(x: object) -> Tensor:
    """Return numbers of a tensor or an array of a floating-point dtype as a tensor; TypeError for others."""
    x = tensor_of(x) if isinstance(x, (Tensor, np.ndarray)) else x
    if not isinstance(x, Tensor) or x.dtype not in DTYPES:
        given = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"x must be a tensor of real numbers, not {given}")
    return x


def words_like(random: Tensor | None, rounding: Rounding, x: Tensor) -> Tensor | None:
    """Return the random words of the elements of a tensor; TypeError or ValueError if they do not fit."""
    check_devices(x=x, random=random)
    words = random_of("random", random, rounding)
    return None if words is None else broadcast("random", words, tuple(x.shape)).contiguous()


def check_dim(dim: int, x: Tensor) -> int:
    """Return a dimension of a tensor, counted from 0; TypeError or ValueError if the tensor does not have it."""
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise TypeError(f"dim must be an int, not {type(dim).__name__}")
    if not -x.dim() <= dim < x.dim():
        raise ValueError(f"dim is {dim}, but the tensor has {x.dim()} dimensions")
    return dim % x.dim()


def tensor_scale(
    tensor: float | Tensor | str, x: Tensor, block: Block, largest_scale: Fraction | None = None
) -> Tensor:
    """Return the scale of all numbers of a tensor in float32.

    For the text ``max``, ``largest_scale`` is the scale of the block with the largest number; default: the largest one.
    """
    if isinstance(tensor, str):
        if tensor != MAX:
            raise ValueError(f"unknown tensor scale {tensor!r}: expected a positive number or {MAX}")
        least, most = torch.aminmax(x) if x.numel() else (x.new_zeros(()), x.new_zeros(()))
        largest = torch.maximum(-least, most).to(torch.float64)
        scale = (largest / float(block.element.largest * (largest_scale or block.scale.largest))).to(torch.float32)
        scale = scale.clamp(torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max)
        return torch.where((largest > 0) & largest.isfinite(), scale, 1.0)
    made = torch.as_tensor(tensor, dtype=torch.float64, device=x.device)
    if made.dim():
        raise ValueError(f"tensor has shape {tuple(made.shape)}; it is one number for all of x")
    if not (made > 0 and made.isfinite() and made == made.to(torch.float32)):
        raise ValueError(f"tensor is {float(made)}; it must be a positive, finite number of float32")
    return made.to(torch.float32)


__all__ = ["BlockTensor", "dequantize_blocks", "quantize_blocks"]
