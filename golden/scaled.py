"""Weights of checkpoints with a scale for the tensor, for each row, or for each group of a row, as real numbers.

Names, bits and arithmetic are those of compressed-tensors (float-quantized, int-quantized and pack-quantized:
``compressors/quantized_compressors/pack_quantized.py`` and ``quantization/lifecycle/forward.py`` of
github.com/vllm-project/compressed-tensors) and of torchao (Float8Tensor and Int8Tensor:
``prototype/safetensors/safetensors_support.py`` and ``quantization/quantize_/workflows`` of github.com/pytorch/ao).
"""

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from halfulp.hdl.formats import Format, parse

from .dtypes import format_of

SCALES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
"""Types of scales."""

_TORCHAO = re.compile(r"(?P<module>(?:.*\.)?)_(?P<name>\w+)_qdata")


class Scaled(NamedTuple):
    """Parts of a weight: number j of a row is ``(elements[j] - zero[g]) * scale[g]``, where g is the group of j.

    Attributes
    ----------
    elements : Tensor
        Integers, floats of 8 bits, or integers of 4 or 8 bits in words of int32.
    scale, zero : Tensor
        Scales, and zero points; None: 0. Those of words may be in words along the rows.
    shape : Tensor, optional
        Shape of the weight, for words.
    order : Tensor, optional
        Group of each column; default, or if negative: groups of neighbours.
    """

    elements: Tensor
    scale: Tensor
    zero: Tensor | None = None
    shape: Tensor | None = None
    order: Tensor | None = None

    @property
    def numbers(self) -> Tensor:
        """Numbers in the type of the scales, in which the libraries multiply; ValueError for parts of another kind."""
        if self.scale.dtype not in SCALES:
            raise ValueError(f"scales have the type {self.scale.dtype}, which is that of blocks; give the block")
        elements, zero = self.integers if self.shape is not None else self.elements, self.zero
        if self.shape is not None and zero is not None and zero.dtype == torch.int32:
            zero = integers_of_words(zero.mT, self.bits, len(elements)).mT
        fmt = format_of(elements)
        if elements.dtype != torch.int8 and (fmt is None or fmt.width != 8):
            raise ValueError(f"elements have dtype {elements.dtype}, not int8 or a float of 8 bits; name their block")
        real = elements.to(self.scale.dtype)
        if zero is not None:
            real = real - self._spread(zero).to(real.dtype)
        return real * self._spread(self.scale)

    @property
    def sizes(self) -> list[int]:
        """Shape of the weight; ValueError if it is not that of the words."""
        if self.shape is None:
            return list(self.elements.shape)
        sizes = [int(size) for size in self.shape.flatten()]
        if sizes[:-1] != list(self.elements.shape[:-1]) or not sizes:
            raise ValueError(f"words of shape {tuple(self.elements.shape)} have no weight of shape {tuple(sizes)}")
        return sizes

    @property
    def integers(self) -> Tensor:
        """Integers of words."""
        return integers_of_words(self.elements, self.bits, self.sizes[-1])

    def block_codes(self, element: Format) -> Tensor:
        """Return integers of words as codes of the elements of blocks; ValueError for other elements or zero points."""
        if self.zero is not None or self.order is not None:
            raise ValueError("a block has no zero points and no order of columns; omit the block")
        if element != parse(f"int{self.bits}"):
            raise ValueError(f"the words have elements int{self.bits}, not {element}")
        return self.integers.to(torch.int64) & ((1 << self.bits) - 1)

    @property
    def bits(self) -> int:
        """Number of bits of the integers in words, 4 or 8."""
        columns, words = self.sizes[-1], self.elements.shape[-1]
        fitting = [bits for bits in (4, 8) if words == -(-columns * bits // 32)]
        if self.elements.dtype != torch.int32 or len(fitting) != 1:
            given = f"{words} of {self.elements.dtype} for {columns} columns"
            raise ValueError(f"words are int32 with integers of 4 or of 8 bits, not {given}")
        return fitting[0]

    def _spread(self, groups: Tensor) -> Tensor:
        """Return the scales or zero points of all elements, or one for all of them."""
        if groups.numel() == 1:
            return groups.reshape(())
        *rows, columns = self.sizes
        groups = groups.unsqueeze(-1) if list(groups.shape) == rows else groups
        if list(groups.shape[:-1]) != rows or not groups.shape[-1] or columns % groups.shape[-1]:
            raise ValueError(
                f"scales have shape {tuple(groups.shape)} for weights of shape {(*rows, columns)}; expected one, one "
                "for each row, or one for each group of a row"
            )
        if self.order is not None and bool((self.order >= 0).all()):
            if list(self.order.shape) != [columns] or int(self.order.max()) >= groups.shape[-1]:
                raise ValueError(f"g_idx has no group below {groups.shape[-1]} for each of {columns} columns")
            return groups[..., self.order.long()]
        return groups.repeat_interleave(columns // groups.shape[-1], -1)


def integers_of_words(words: Tensor, bits: int, count: int) -> Tensor:
    """Return signed integers that lie in words of 32 bits, from the lowest bits on, with an offset of 2^(bits - 1)."""
    shifts = torch.arange(0, 32, bits, device=words.device)
    integers = (words.unsqueeze(-1) >> shifts) & ((1 << bits) - 1)
    return (integers.flatten(-2)[..., :count] - (1 << bits - 1)).to(torch.int8)


def real_weights(file: str, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> dict[str, Tensor]:
    """Return the tensors of a file by name; those with scales are real numbers."""
    made: dict[str, Tensor] = {}
    used: set[str] = set()
    for key, elements in tensors.items():
        if match := _TORCHAO.fullmatch(key):
            name, prefix = match["module"] + match["name"], f"{match['module']}_{match['name']}_"
        else:
            name = key.removesuffix("_packed")
            prefix = f"{name}_"
        parts = [prefix + end for end in ("scale", "zero_point", "shape", "g_idx")]
        if parts[0] not in tensors or parts[0] == key:
            continue
        used.update((key, *parts))
        scale, *more = map(tensors.get, parts)
        assert scale is not None
        try:
            numbers = Scaled(elements, scale, *more).numbers
        except ValueError as error:
            raise ValueError(f"{name} in {file} has no scaled weights: {error}") from None
        made[name] = numbers.to(_type_of(metadata.get(name, "{}"), numbers.dtype))
    return made | {name: tensor for name, tensor in tensors.items() if name not in used}


def _type_of(text: str, default: torch.dtype) -> torch.dtype:
    """Return the type of a tensor in the metadata of torchao, to which its numbers are rounded."""
    given = json.loads(text).get("_data", {}).get("dtype") or {}
    found = getattr(torch, given.get("_data", ""), default)
    return found if isinstance(found, torch.dtype) else default
