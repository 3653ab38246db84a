"""Conversion between codes and real numbers."""

import functools
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from halfulp.hdl.formats import EXACT, FP32, FP64, RN, Format, Rounding, parse
from halfulp.hdl.specs import ConvertSpec, ValueRange

from .check import check_devices, codes_of, random_of
from .convert import TABLE_WIDTH, convert, converted
from .kernels import elements

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

INTEGERS = 2.0**53
"""Below this magnitude float64 holds every integer."""


@torch.compiler.disable
def encode(
    values: "Tensor | ArrayLike",
    fmt: Format | str,
    rounding: Rounding | str = RN,
    random: Tensor | None = None,
    saturate: bool = False,
) -> Tensor:
    """Codes of real values in a format, rounded once; parameters as of `convert`.

    Parameters
    ----------
    values : Tensor, array, sequence or number
        Real numbers of a floating-point dtype that float64 holds, or integers below 2^53 in magnitude.

    Raises
    ------
    TypeError, ValueError
        If ``values`` holds other than real numbers, or has integers that float64 does not hold, and as `convert`.
    """
    fmt = parse(fmt)
    if not isinstance(values, Tensor):
        values = _tensor(values)
    if values.dtype.is_complex or values.dtype == torch.bool:
        raise TypeError(f"values is a tensor of real numbers, not {values.dtype}")
    rounding = Rounding.parse(rounding)
    if values.dtype.is_floating_point and rounding != EXACT:
        check_devices(values=values, random=random)
        return encoded(values, fmt, rounding, random_of("random", random, rounding), saturate)
    real = values.to(torch.float64)
    if not values.dtype.is_floating_point and bool((real.abs() >= INTEGERS).any()):
        raise ValueError("values holds integers of 2^53 or more, which float64 would round before they are encoded")
    return convert(real.view(torch.int64), a=FP64, o=fmt, rounding=rounding, random=random, saturate=saturate)


def encoded(values: Tensor, fmt: Format, rounding: Rounding, random: Tensor | None, saturate: bool) -> Tensor:
    """`encode` of a floating-point tensor with random words that are in range."""
    # Kernels take these two types; float32 holds every shorter one.
    values = values if values.dtype in (torch.float32, torch.float64) else values.to(torch.float32)
    source = FP32 if values.dtype == torch.float32 else FP64
    found = elements.convert(values, source, fmt, rounding, saturate, random)
    if found is not None:
        return found
    spec = ConvertSpec(a=FP64, o=fmt, rounding=rounding, saturate=saturate)
    return converted(values.to(torch.float64).view(torch.int64), spec, random)


def _tensor(values: "ArrayLike") -> Tensor:
    """Tensor of a number, a sequence of numbers, or an array."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError("values has parts of different shapes; the rows of a tensor are of one length") from None
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        kind = array.dtype if isinstance(values, (np.ndarray, np.generic)) else type(values).__name__
        raise TypeError(f"values is a tensor, an array or a sequence of real numbers, not {kind}")
    # torch takes no other byte order.
    return torch.tensor(array.astype(array.dtype.newbyteorder("=")))


@torch.compiler.disable
def decode(codes: Tensor, fmt: Format | str) -> Tensor:
    """Exact real values of codes, in float64.

    Raises
    ------
    TypeError, ValueError
        If ``codes`` holds no such codes, or float64 does not hold every number of the format.
    """
    fmt = parse(fmt)
    codes = codes_of("codes", codes, fmt.width)
    try:
        ValueRange.of(fmt).check_fits(FP64, f"number of {fmt}")
    except ValueError:
        raise ValueError(
            f"float64 cannot hold every number of {fmt}; {fmt} decodes single codes to fractions with Format.decode"
        ) from None
    return decoded(codes, fmt, torch.float64)


def decoded(codes: Tensor, fmt: Format, dtype: torch.dtype) -> Tensor:
    """`decode` of int64 codes that are in range, to a dtype that holds all numbers of the format."""
    if fmt.width <= TABLE_WIDTH and codes.numel() > 1 << fmt.width:
        return _numbers(fmt, dtype, codes.device).index_select(0, codes.reshape(-1)).reshape(codes.shape)
    return converted(codes, ConvertSpec(a=fmt, o=FP64), None).view(torch.float64).to(dtype)


@functools.lru_cache(maxsize=64)
def _numbers(fmt: Format, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Numbers of all codes of a narrow format."""
    return decoded(torch.arange(1 << fmt.width, device=device), fmt, dtype)
