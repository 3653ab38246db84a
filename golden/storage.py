"""Tensors of blocks in the layouts of torch and of checkpoints: packed elements and their scales."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from halfulp.hdl.formats import Block, Format

from .check import codes_of
from .dtypes import PACKED, Array, is_of_ml_dtypes, pack_pairs, tensor_of, type_for, typed, unpack_pairs
from .quantize import BlockTensor, check_blocks
from .scaled import Scaled, real_weights


def import_blocks(
    elements: "Tensor | Array",
    scale: "Tensor | Array",
    block: Block | str,
    *,
    tensor: float | Tensor | None = None,
    dim: int = -1,
    packed: bool | None = None,
) -> BlockTensor:
    """Return elements and scales of another library as a tensor in blocks, without rounding.

    Parameters
    ----------
    elements : Tensor or array
        Elements in the type of torch or ml_dtypes for the format, such as ``torch.float8_e4m3fn``, or their codes in
        uint8, or in int8 for ``mxint8``. Elements of 4 bits are two in a byte, the first one in the low bits, as in
        ``torch.float4_e2m1fn_x2``, except in types of ml_dtypes. Elements with one dimension more than the scales have
        one for the blocks and one for the bytes of a block, as in the checkpoints of gpt-oss.
    scale : Tensor or array
        Scales in the type of torch or ml_dtypes, such as ``torch.float8_e8m0fnu``, or their codes in uint8: one for
        each block, in the order of the blocks. Scales in the tiles of a matrix unit have to be reordered before.
    block : Block or str
        Block, such as ``mxfp4`` or ``nvfp4``.
    tensor : float or Tensor, optional
        Scale of all numbers, which multiplies them; default: 1.
    dim : int
        Dimension along which blocks run and elements are packed.
    packed : bool, optional
        Elements are two in a byte; default: true for elements of 4 bits in a type of torch or numpy.

    Raises
    ------
    TypeError, ValueError
        If the types or shapes do not fit the block, or a tensor holds values that are no codes.
    """
    block = Block.parse(block)
    scales = codes_of("scale", scale, block.scale)
    # Arrays of ml_dtypes have one element in a byte, also of 4 bits.
    single = isinstance(elements, np.ndarray) and is_of_ml_dtypes(elements)
    if packed is None:
        packed = block.element.width == 4 and not single
    if isinstance(elements, np.ndarray):
        elements = codes_of("elements", elements, block.element) if single else tensor_of(elements)
    if not isinstance(elements, Tensor):
        raise TypeError(f"elements must be a tensor or an array, not {type(elements).__name__}")
    if elements.dim() == scales.dim() + 1:
        elements = elements.flatten(-2)
    if packed:
        if elements.dtype not in (torch.uint8, torch.int8, PACKED) or block.element.width != 4:
            given = f"{elements.dtype} for {block.element}"
            raise TypeError(f"two elements in a byte have 4 bits each and the type uint8, not {given}")
        elements = unpack_pairs(elements, dim)
    codes = codes_of("elements", elements, block.element)
    number = None if tensor is None else torch.as_tensor(tensor, dtype=torch.float32).reshape(())
    return check_blocks("the tensor", BlockTensor(_narrowest(codes), _narrowest(scales), number), block, dim)


def export_blocks(x: BlockTensor, block: Block | str, *, dim: int = -1) -> tuple[Tensor, Tensor]:
    """Return elements and scales of a tensor in blocks in the types of torch, without rounding.

    Elements of 4 bits are two in a byte along ``dim``: in ``torch.float4_e2m1fn_x2``, or in uint8 if torch has no type
    for them. Formats without a type in torch have codes in uint8. `import_blocks` is the inverse; the scale of all
    numbers is ``x.tensor``.

    Raises
    ------
    TypeError, ValueError
        If ``x`` is no tensor in such blocks, or elements of 4 bits have an odd length.
    """
    block = Block.parse(block)
    x = check_blocks("x", x, block, dim)
    elements, scale = codes_of("elements", x.elements, block.element), codes_of("scale", x.scale, block.scale)
    return _typed(elements, block.element, dim if block.element.width == 4 else None), _typed(scale, block.scale)


def _narrowest(codes: Tensor) -> Tensor:
    """Return codes in uint8 if that holds them."""
    return codes.to(torch.uint8) if not codes.numel() or int(codes.max()) < 256 else codes


def _typed(codes: Tensor, fmt: Format, pairs: int | None = None) -> Tensor:
    """Return codes in torch's type for their format, else in the narrowest integer; in pairs along a dimension."""
    dtype = type_for(fmt)
    if dtype is not None and (dtype != PACKED or pairs is not None):
        return typed(codes, dtype, -1 if pairs is None else pairs)
    return codes.to(torch.uint8 if fmt.width <= 8 else torch.int32) if pairs is None else pack_pairs(codes, pairs)


class Layout(NamedTuple):
    """Names of the parts of a tensor in blocks in a checkpoint.

    Attributes
    ----------
    elements, scale, tensor : str
        Ends of the names of elements, scales, and of the scale of all numbers.
    divides : bool
        Numbers are divided by the scale of all numbers.
    """

    elements: str
    scale: str
    tensor: str
    divides: bool = False


LAYOUTS = {
    "compressed-tensors": Layout("_packed", "_scale", "_global_scale", divides=True),
    "modelopt": Layout("", "_scale", "_scale_2"),
    "gpt-oss": Layout("_blocks", "_scales", "_scale_2"),
}
"""Layouts of checkpoints, by the library or the model that has them."""


def load_blocks(path: Path | str, block: Block | str | None = None) -> dict[str, Tensor | BlockTensor]:
    """Read a checkpoint in safetensors whose quantized weights are blocks, or have scales of a tensor, row or group.

    Parameters
    ----------
    path : Path or str
        File whose tensors have the names of one of `LAYOUTS`.
    block : Block or str, optional
        Block of all quantized weights, which run along the last dimension. Default: weights with scales are integers or
        floats of 8 bits, or integers in words, and become real numbers: float-quantized, int-quantized and
        pack-quantized weights of compressed-tensors, and those of ``Float8Tensor`` and ``Int8Tensor`` of torchao.

    Returns
    -------
    dict
        Tensors by name. Those with scales are `BlockTensor`, without the end of the name. Without ``block`` they are
        the products of elements (less zero points) and scales, in the type of the scales, in which the libraries
        multiply; torchao's are then rounded to the type in its metadata.

    Raises
    ------
    ModuleNotFoundError, ValueError
        If the package safetensors is missing, or scales do not belong to weights of this kind.

    Notes
    -----
    compressed-tensors divides by the scale of all numbers; its reciprocal, rounded to binary32, takes its place.
    Symmetric integers of 4 bits in groups of 128 with scales in bf16 are ``block(int4,128,bf16,nearest)``, too.
    """
    tensors = _safetensors().load_file(path)
    if block is None:
        with _safetensors().safe_open(path, "pt") as file:
            return {**real_weights(Path(path).name, tensors, file.metadata() or {})}
    made: dict[str, Tensor | BlockTensor] = {}
    used: set[str] = set()
    for layout in LAYOUTS.values():
        for key in tensors.keys() - used:
            name = key.removesuffix(layout.elements)
            parts = [name + end for end in (layout.elements, layout.scale, layout.tensor)]
            if key != parts[0] or parts[1] not in tensors or parts[1] == key:
                continue
            number = tensors.get(parts[2])
            if number is not None and layout.divides:
                number = number.to(torch.float32).reciprocal()
            try:
                elements, packed = tensors[key], None
                if (shape := tensors.get(name + "_shape")) is not None:
                    more = tensors.get(name + "_zero_point"), shape, tensors.get(name + "_g_idx")
                    words = Scaled(elements, tensors[parts[1]], *more)
                    elements, packed = words.block_codes(Block.parse(block).element), False
                made[name] = import_blocks(elements, tensors[parts[1]], block, tensor=number, packed=packed)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{name} in {Path(path).name} is no tensor of {block}: {error}") from None
            used.update(parts, [name + "_shape"])
    return made | {name: tensor for name, tensor in tensors.items() if name not in used}


def save_blocks(path: Path | str, tensors: Mapping[str, Tensor | BlockTensor], block: Block | str) -> None:
    """Write a checkpoint in safetensors; `load_blocks` reads the same codes.

    Tensors in blocks along the last dimension have the names of the layout ``modelopt``: NAME, NAME_scale, and
    NAME_scale_2 for the scale of all numbers. Elements of 4 bits are two in a byte of uint8.
    """
    layout, stored = LAYOUTS["modelopt"], {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, BlockTensor):
            stored[name] = tensor.contiguous()
            continue
        elements, scale = export_blocks(tensor, block)
        stored[name] = elements.view(torch.uint8) if elements.dtype == PACKED else elements
        stored[name + layout.scale] = scale
        if tensor.tensor is not None:
            stored[name + layout.tensor] = tensor.tensor
    _safetensors().save_file(stored, path)


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "safetensors is not installed; run: pip install safetensors", name="safetensors"
        ) from error
    return safetensors.torch


__all__ = ["export_blocks", "import_blocks", "load_blocks", "save_blocks"]
