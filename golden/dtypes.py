"""Types of torch, numpy and ml_dtypes: the formats that they name, and conversions of their codes and numbers."""

import math
import re
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halfulp.hdl.formats import Format, parse

Array = np.ndarray[Any, Any]

TORCH_TYPES = {
    getattr(torch, name): name
    for name in (
        *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
        *("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"),
    )
    if hasattr(torch, name)
}
"""Types of real numbers of torch, with the names of their formats."""

PACKED = getattr(torch, "float4_e2m1fn_x2", None)
"""Type of torch with two e2m1fn in a byte."""

WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Types of integers by their bytes."""

INTEGERS = {*WORDS.values(), torch.int8, torch.uint16, torch.uint32, torch.uint64}
"""Types of integers that torch computes with."""


def format_of(x: Tensor | Array) -> Format | None:
    """Return the format that a type of real numbers names; None for other types."""
    if isinstance(x, Tensor):
        name = TORCH_TYPES.get(x.dtype)
    else:
        name = x.dtype.name if "float" in x.dtype.name and x.dtype.itemsize <= 8 else None
    return None if name is None else parse(name)


def integer_bits(x: Tensor | Array) -> int:
    """Return the width of a type of integers."""
    if isinstance(x, np.ndarray) and (narrow := re.fullmatch(r"u?int(\d)", x.dtype.name)):
        return int(narrow[1])
    return 8 * x.dtype.itemsize


def stored_codes(x: Tensor | Array) -> Tensor:
    """Return the codes of real numbers in their own format as int64."""
    fmt = format_of(x)
    assert fmt is not None
    if isinstance(x, np.ndarray):
        bits = torch.tensor(_native(x).view(f"u{x.dtype.itemsize}").astype(np.int64))
    elif x.dtype == PACKED:
        if x.dim() and x.shape[-1] > 1 and x.stride(-1) != 1:
            raise ValueError(
                "the pairs of 4-bit codes of a transposed tensor are along another dimension; decode it first"
            )
        bits = unpack_pairs(x).to(torch.int64)
    else:
        bits = x.view(WORDS[x.dtype.itemsize]).to(torch.int64)
    return bits & ((1 << fmt.width) - 1 if fmt.width < 64 else -1)


def tensor_of(x: Tensor | Array) -> Tensor:
    """Return numbers in any of the types as a tensor of a type that torch computes with.

    Floats of types that torch lacks, or has in pairs, are converted to float32.
    """
    fmt = format_of(x)
    if isinstance(x, Tensor):
        if x.dtype != PACKED or fmt is None:
            return x
        signs = (-1 if fmt.negative(code) else 1 for code in range(1 << fmt.width))
        numbers = [math.copysign(fmt.decode(code), sign) for code, sign in enumerate(signs)]
        return torch.tensor(numbers, device=x.device)[stored_codes(x)]
    if is_of_ml_dtypes(x):
        dtype = next((dtype for dtype, name in TORCH_TYPES.items() if name == x.dtype.name), None)
        if dtype is not None:
            return typed(stored_codes(x), dtype)
        if "complex" in x.dtype.name:
            return torch.tensor(x.astype(np.complex64))
        return torch.tensor(x.astype(np.int64 if fmt is None else np.float32))
    return torch.tensor(_native(x))


def is_of_ml_dtypes(x: Array) -> bool:
    """Return True for an array of a type of ml_dtypes."""
    return x.dtype.type.__module__.split(".")[0] == "ml_dtypes"


def _native(x: Array) -> Array:
    """Return an array in the native byte order, which is the only one of torch."""
    return x if is_of_ml_dtypes(x) else x.astype(x.dtype.newbyteorder("="))


def type_for(fmt: Format) -> torch.dtype | None:
    """Return torch's type of real numbers for a format; None if torch has none."""
    return next((dtype for dtype, name in TORCH_TYPES.items() if parse(name) == fmt), None)


def typed(codes: Tensor, dtype: torch.dtype, dim: int = -1) -> Tensor:
    """Return codes of the format of a type in this type; those of 4 bits are in pairs along a dimension."""
    if dtype == PACKED:
        return pack_pairs(codes, dim).view(dtype)
    # A conversion to a narrower integer keeps the low bits.
    return codes.to(WORDS[dtype.itemsize]).view(dtype)


def pack_pairs(codes: Tensor, dim: int = -1) -> Tensor:
    """Return codes of 4 bits as two in a byte along a dimension, the first one in the low bits.

    Raises
    ------
    ValueError
        If their number along the dimension is odd.
    """
    count = codes.shape[dim] if codes.dim() else 1
    if count % 2:
        raise ValueError(
            f"dimension {dim} has {count} codes of 4 bits; two of them share a byte, so the number must be even"
        )
    low, high = codes.movedim(dim, -1).to(torch.uint8).unflatten(-1, (-1, 2)).unbind(-1)
    return (low | high << 4).movedim(-1, dim).contiguous()


def unpack_pairs(pairs: Tensor, dim: int = -1) -> Tensor:
    """Return codes of 4 bits, of which two are in a byte along a dimension, in uint8."""
    if not pairs.dim():
        raise ValueError("two codes of 4 bits share a byte, so that a tensor of them has at least one dimension")
    pairs = pairs.view(torch.uint8).movedim(dim, -1)
    return torch.stack([pairs & 15, pairs >> 4], -1).flatten(-2).movedim(-1, dim)
