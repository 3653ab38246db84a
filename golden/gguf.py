"""Tensors of blocks in the bytes of GGUF files.

The layouts and numbers are those of llama.cpp (``ggml/src/ggml-common.h`` and ``ggml-quants.c``).
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from halfulp.hdl.formats import Block

from .check import codes_of
from .dtypes import tensor_of
from .kernels.quantize import dtype_of
from .quantize import BlockTensor, check_blocks


class GgufLayout(NamedTuple):
    """Bytes of a block in a GGUF file: the scale in little endian, then the elements.

    Attributes
    ----------
    block : Block
        Block with the same numbers.
    codes : tuple of int, optional
        Code of an element for each code of 4 bits. Byte i holds element i in its low bits, and element i + 16 in its
        high bits. None: a byte is the code of an element.
    """

    block: Block
    codes: tuple[int, ...] | None = None

    @property
    def bytes(self) -> int:
        """Bytes of a block."""
        return self.block.scale.width // 8 + self.block.length // (1 if self.codes is None else 2)


_INT8 = Block.parse("block(int8,32,fp16,nearest)")

IQ4_NL = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""Values of the codes of IQ4_NL (llama.cpp), which have no zero."""

GGUF_LAYOUTS = {
    # Code q stands for q - 8.
    "q4_0": GgufLayout(Block.parse("block(int4,32,fp16,nearest)"), tuple(q ^ 8 for q in range(16))),
    "q8_0": GgufLayout(_INT8),
    "iq4_nl": GgufLayout(_INT8, tuple(value & 255 for value in IQ4_NL)),
    "mxfp4": GgufLayout(Block.parse("mxfp4"), tuple(range(16))),
}
"""Layouts by the names of GGUF's types in lowercase."""


def import_gguf(data: "Tensor | np.ndarray", layout: str) -> BlockTensor:
    """Return a tensor of a GGUF file in blocks along the last dimension, without rounding.

    Parameters
    ----------
    data : Tensor or array
        Bytes in uint8, of shape (..., bytes of a row), as the package ``gguf`` reads them.
    layout : str
        Type of the tensor: one of `GGUF_LAYOUTS`, whose ``block`` is that of the result.

    Raises
    ------
    TypeError, ValueError
        If the data are no bytes of whole blocks, the layout is unknown, or a scale of ``mxfp4`` has the code 255: it is
        NaN in the OCP standard and 2^128 in llama.cpp.

    Notes
    -----
    Scales are signed. The code 8 of ``mxfp4`` is -0, for which llama.cpp computes +0. The values of ``iq4_nl`` have no
    zero, so no codebook can have them, because a result of a unit may be zero; they are elements of int8 instead.
    """
    kind = _layout(layout)
    if isinstance(data, np.ndarray):
        data = tensor_of(data)
    if not isinstance(data, Tensor) or data.dtype != torch.uint8:
        given = data.dtype if isinstance(data, Tensor) else type(data).__name__
        raise TypeError(f"data of GGUF must be bytes in uint8, not {given}")
    if data.dim() == 0 or data.shape[-1] % kind.bytes:
        raise ValueError(f"data have shape {tuple(data.shape)}; a row of {layout} has a multiple of {kind.bytes} bytes")
    head, body = data.unflatten(-1, (-1, kind.bytes)).split([kind.block.scale.width // 8, _body(kind)], -1)
    scale = sum(head[..., place].to(torch.int64) << 8 * place for place in range(head.shape[-1]))
    assert isinstance(scale, Tensor)
    _check_scale(scale, layout, kind)
    if kind.codes is not None:
        table = torch.tensor(kind.codes, dtype=torch.uint8, device=data.device)
        body = table[torch.cat([body & 15, body >> 4], -1).to(torch.int64)]
    return BlockTensor(body.flatten(-2).contiguous(), scale.to(dtype_of(kind.block.scale)))


def export_gguf(x: BlockTensor, layout: str) -> Tensor:
    """Return the bytes of a tensor in blocks along the last dimension for a GGUF file; inverse of `import_gguf`.

    Parameters
    ----------
    x : BlockTensor
        Codes of the block of the layout. Its scale of all numbers must be 1, because GGUF has none.
    layout : str
        One of `GGUF_LAYOUTS`.

    Raises
    ------
    TypeError, ValueError
        If ``x`` is no tensor in such blocks, or has an incomplete block or numbers that the layout does not have.
    """
    kind = _layout(layout)
    block = kind.block
    x = check_blocks("x", x, block, -1)
    if x.tensor is not None and not bool((x.tensor == 1).all()):
        raise ValueError(f"x has the scale {float(x.tensor)} of all numbers; a tensor of {layout} has none")
    if x.elements.shape[-1] % block.length:
        raise ValueError(f"rows of x have {x.elements.shape[-1]} elements; {layout} needs a multiple of {block.length}")
    elements, scale = codes_of("elements", x.elements, block.element), codes_of("scale", x.scale, block.scale)
    _check_scale(scale, layout, kind)
    body = elements.unflatten(-1, (-1, block.length))
    if kind.codes is not None:
        inverse = torch.full((1 << block.element.width,), -1, device=body.device)
        inverse[list(kind.codes)] = torch.arange(len(kind.codes), device=body.device)
        low, high = inverse[body].chunk(2, -1)
        if bool((inverse[body] < 0).any()):
            wrong = block.element.decode(int(body[inverse[body] < 0][0]))
            raise ValueError(f"x has the element {wrong}; those of {layout} are {', '.join(map(str, IQ4_NL))}")
        body = low | high << 4
    head = torch.stack([scale >> 8 * place & 255 for place in range(block.scale.width // 8)], -1)
    return torch.cat([head, body], -1).to(torch.uint8).flatten(-2)


def _layout(name: str) -> GgufLayout:
    if name not in GGUF_LAYOUTS:
        raise ValueError(f"unknown layout {name!r} of GGUF; expected {', '.join(GGUF_LAYOUTS)}")
    return GGUF_LAYOUTS[name]


def _body(kind: GgufLayout) -> int:
    return kind.bytes - kind.block.scale.width // 8


def _check_scale(scale: Tensor, layout: str, kind: GgufLayout) -> None:
    """Raise ValueError for a scale of powers of two that is NaN here and a number in llama.cpp."""
    if kind.block.has_tensor_scale or not bool((scale == kind.block.scale.nan_code).any()):
        return
    raise ValueError(f"a scale of {layout} has the code 255, which is NaN in the OCP standard and 2^128 in llama.cpp")


__all__ = ["GGUF_LAYOUTS", "GgufLayout", "export_gguf", "import_gguf"]
