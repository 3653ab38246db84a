"""Conversion between codes and real numbers."""

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from halfulp.hdl.formats import (
    EXACT,
    FP32,
    FP64,
    RD,
    RN,
    SATFINITE,
    Block,
    Compound,
    Format,
    Rounding,
    Saturation,
    parse,
)
from halfulp.hdl.formats.block import parse_operand
from halfulp.hdl.specs import ConvertSpec, ValueRange

from .check import check_devices, check_shapes, codes_of, format_given, one_mode, random_of, rounding_apart
from .convert import TABLE_WIDTH, convert, converted
from .dtypes import TORCH_TYPES, is_of_ml_dtypes, tensor_of, type_for, typed
from .errorfree import sum_and_error, to_odd
from .kernels import elements
from .parts import code_of, parts_of
from .quantize import dequantize_blocks, quantize_blocks
from .uncompiled import uncompiled

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_REAL = (int, float, np.integer, np.floating, Tensor, np.ndarray)
"""Types of elements of sequences that are converted to tensors."""

INTEGERS = 2.0**53
"""Limit on magnitudes below which float64 represents every integer."""


@uncompiled
def encode(
    values: "Tensor | ArrayLike",
    fmt: Format | str,
    rounding: Rounding | str = RN,
    random: Tensor | None = None,
    saturate: Saturation | bool | str = False,
) -> Tensor:
    """Round real numbers once to a format and encode them.

    Parameters
    ----------
    values : Tensor, array, sequence or number
        Real numbers of a floating-point dtype up to float64, or integers below 2^53 in magnitude.
    fmt : Format or str
    rounding : Rounding or str
        One mode, not ``port``.
    random : Tensor, optional
        Random words of stochastic rounding, of a shape that broadcasts to that of ``values``.
    saturate : Saturation, bool or str
        Return the largest finite number on overflow; with ``satfinite`` also for an infinity. ``True`` is ``sat``.

    Returns
    -------
    Tensor of int64
        Codes, of the shape of ``values``.

    Raises
    ------
    TypeError, ValueError
        If ``values`` holds no real numbers, or larger integers; otherwise as for `convert`.
    """
    fmt, values = parse(fmt), _tensor(values)
    if values.dtype.is_complex or values.dtype == torch.bool:
        raise TypeError(f"values must be a tensor of real numbers, not {values.dtype}")
    rounding, saturate = one_mode(rounding_apart("rounding", rounding, "saturate"), "encode"), Saturation.of(saturate)
    check_shapes(values=values, random=random)
    if values.dtype.is_floating_point and rounding != EXACT:
        check_devices(values=values, random=random)
        return encoded(values, fmt, rounding, random_of("random", random, rounding), saturate)
    real = values.to(torch.float64)
    if fmt.parts > 1 and rounding == EXACT:
        raise ValueError(f"rounding to {fmt} must not be exact; use rn or another mode")
    if not values.dtype.is_floating_point and bool((real.abs() >= INTEGERS).any()):
        raise ValueError("values must be integers below 2^53 in magnitude, so that float64 represents them exactly")
    if fmt.parts > 1:
        return encoded(real, fmt, rounding, random_of("random", random, rounding), saturate)
    return convert(real.view(torch.int64), a=FP64, o=fmt, rounding=rounding, random=random, saturate=saturate)


def encoded(values: Tensor, fmt: Format, rounding: Rounding, random: Tensor | None, saturate: Saturation) -> Tensor:
    """Encode as `encode`, without its checks: values are floating point, random words are in range."""
    if fmt.parts > 1:
        return _split(values, fmt, rounding, random, saturate)
    # Kernels take float32 and float64; float32 holds all narrower dtypes.
    values = values if values.dtype in (torch.float32, torch.float64) else values.to(torch.float32)
    source = FP32 if values.dtype == torch.float32 else FP64
    codes = elements.convert(values, source, fmt, rounding, saturate, random)
    if codes is not None:
        return codes
    spec = ConvertSpec(a=FP64, o=fmt, rounding=rounding, saturate=saturate)
    return converted(values.to(torch.float64).view(torch.int64), spec, random)


def _split(values: Tensor, fmt: Format, rounding: Rounding, random: Tensor | None, saturate: Saturation) -> Tensor:
    """Round numbers and their remainders to the parts of a compound format, which are +0 after specials.

    Remainders are exact in the type of the numbers, or else so large that every other part saturates.
    """
    part = fmt.part_format
    dtype = values.dtype if values.dtype == torch.float32 and _in_float32(part) else torch.float64
    rest, ended, parts = values.to(dtype), torch.zeros_like(values, dtype=torch.bool), []
    for _ in range(fmt.parts - 1):
        code = encoded(rest, part, Compound.leading(rounding), None, saturate)
        parts.append(torch.where(ended, 0, code))
        rest = rest - of_part(code, part, dtype)
        if rounding == RD:
            rest = torch.where(rest == 0, -0.0, rest)
        ended = ended | (rest.isnan() if saturate == SATFINITE else ~rest.isfinite())
        rest = torch.where(ended, 0.0, rest)
    parts.append(torch.where(ended, 0, encoded(rest, part, rounding, random, saturate)))
    return code_of(torch.stack(torch.broadcast_tensors(*parts), -1), fmt)


@functools.lru_cache(maxsize=64)
def _in_float32(fmt: Format) -> bool:
    """Return True if float32 represents every number of a format."""
    try:
        ValueRange.of(fmt).check_fits(FP32, f"number of {fmt}")
    except ValueError:
        return False
    return True


def _tensor(values: "Tensor | ArrayLike") -> Tensor:
    """Convert a number, a sequence of numbers, an array or pairs of numbers in a byte to a tensor."""
    if isinstance(values, Tensor):
        return tensor_of(values)
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError("values must be a sequence of rows of one length") from None
    if is_of_ml_dtypes(array):
        return tensor_of(array)
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        kind = array.dtype if isinstance(values, (np.ndarray, np.generic)) else _kind(values)
        raise TypeError(f"values must be a tensor, an array or a sequence of real numbers, not {kind}")
    return tensor_of(array)


def _kind(values: object) -> str:
    """Return the type of values, and of the first element of a sequence that is no real number."""
    kind = type(values).__name__
    for element in _elements(values):
        if isinstance(element, bool) or not isinstance(element, _REAL):
            return f"a {kind} with an element of type {type(element).__name__}"
        if isinstance(element, int) and not -(1 << 63) <= element < 1 << 64:
            return f"a {kind} with an integer of more than 64 bits"
    return kind


def _elements(values: object) -> Iterator[object]:
    """Yield the elements of nested sequences."""
    for value in values if isinstance(values, (list, tuple)) else ():
        if isinstance(value, (list, tuple)):
            yield from _elements(value)
        else:
            yield value


@uncompiled
def decode(codes: "Tensor | ArrayLike", fmt: Format | str | None = None) -> Tensor:
    """Decode codes to exact real numbers in float64.

    Parameters
    ----------
    codes : Tensor or array
    fmt : Format or str, optional
        Format of the codes; default: the one that the type of ``codes`` names, such as e5m2 for ``torch.float8_e5m2``.

    Raises
    ------
    TypeError, ValueError
        If ``codes`` holds no codes of the format, its type names no format and none is given, or float64 does not
        represent every number of the format.

    Notes
    -----
    Parts of a compound number are added from the smallest one up, rounded to nearest: the sum of two parts once. The
    sum of parts that `encode` gives is exact.
    """
    fmt = format_given("decode", codes, fmt)
    codes = codes_of("codes", codes, fmt)
    try:
        ValueRange.of(fmt.part_format).check_fits(FP64, f"number of {fmt}")
    except ValueError:
        raise ValueError(
            f"float64 cannot hold every number of {fmt}; Format.decode converts single codes to fractions"
        ) from None
    return decoded(codes, fmt, torch.float64)


@uncompiled
def quantize(
    values: "Tensor | ArrayLike",
    fmt: Format | Block | str,
    rounding: Rounding | str = RN,
    random: Tensor | None = None,
    saturate: Saturation | bool | str = False,
    *,
    dim: int | None = None,
) -> Tensor:
    """Round real numbers once to a format, or to blocks along a dimension, and return the numbers of the codes.

    Parameters
    ----------
    values, rounding, random, saturate
        As for `encode`; elements of blocks always saturate.
    fmt : Format, Block or str
    dim : int, optional
        Dimension along which blocks run; default: the last one.

    Returns
    -------
    Tensor
        float32 for blocks and for formats whose numbers are all in float32, else float64. It has no gradient;
        `halfulp.golden.nn.Quantize` is a layer with one.

    Raises
    ------
    TypeError, ValueError
        As for `encode` and `decode`, or for `quantize_blocks`; if ``saturate`` or ``dim`` has no effect.
    """
    kind = parse_operand(fmt)
    if not isinstance(kind, Format):
        if saturate:
            raise ValueError(f"elements of {kind} saturate by definition; omit saturate")
        values, dim = _tensor(values).detach(), -1 if dim is None else dim
        return dequantize_blocks(quantize_blocks(values, kind, rounding, dim=dim, random=random), kind, dim=dim)
    if dim is not None:
        raise ValueError(f"dim is the dimension of blocks, and {kind} is a format of single numbers; omit dim")
    numbers = decode(encode(values, kind, rounding, random, saturate), kind)
    return numbers.to(torch.float32) if kind.parts == 1 and _in_float32(kind) else numbers


@uncompiled
def to_torch(codes: "Tensor | ArrayLike", fmt: Format | str) -> Tensor:
    """Return codes as a tensor of torch's own type for the format, without rounding.

    Parameters
    ----------
    codes : Tensor or array
    fmt : Format or str
        A format that torch has: fp64, fp32, fp16, bf16, e4m3fn, e5m2, e4m3fnuz, e5m2fnuz, e8m0fnu, e2m1fn, or an
        integer of 8, 16, 32 or 64 bits.

    Returns
    -------
    Tensor
        Tensor of the shape of ``codes``; e2m1fn are two in a byte along the last dimension, which is half as long.

    Raises
    ------
    TypeError, ValueError
        If ``codes`` holds no codes of the format, torch has no type for it, or has one of pairs, and the last dimension
        is odd.
    """
    fmt = parse(fmt)
    integers = codes_of("codes", codes, fmt)
    dtype = type_for(fmt)
    if dtype is None:
        name = str(fmt).removesuffix("-wrap")
        dtype = getattr(torch, name, None) if name in ("int8", "int16", "int32", "int64", "uint8") else None
    if dtype is None:
        known = ", ".join(str(parse(name)) for name in TORCH_TYPES.values())
        raise ValueError(f"torch has no type for {fmt}; it has {known}, and integers such as int8")
    return typed(integers, dtype)


def decoded(codes: Tensor, fmt: Format, dtype: torch.dtype) -> Tensor:
    """Decode as `decode`, without its checks, to a dtype that represents all numbers of the format."""
    if fmt == FP32 and dtype == torch.float32:
        return codes.to(torch.int32).view(dtype)
    if fmt.parts > 1:
        parts = reversed(parts_of(codes, fmt).unbind(-1))
        total, *larger = (of_part(part, fmt.part_format, torch.float64) for part in parts)
        for part in larger:
            # Sums that are rounded to odd are rounded once to a narrower type.
            total = total + part if dtype == torch.float64 else to_odd(*sum_and_error(part, total))
        return total.to(dtype)
    if fmt.width <= TABLE_WIDTH and codes.numel() > 1 << fmt.width:
        return _numbers(fmt, dtype, codes.device).index_select(0, codes.reshape(-1)).reshape(codes.shape)
    return converted(codes, ConvertSpec(a=fmt, o=FP64), None).view(torch.float64).to(dtype)


def of_part(codes: Tensor, part: Format, dtype: torch.dtype) -> Tensor:
    """Decode codes of parts as `decoded`, those of narrow formats by a table, which is made once."""
    return _numbers(part, dtype, codes.device)[codes] if part.width <= TABLE_WIDTH else decoded(codes, part, dtype)


@functools.lru_cache(maxsize=64)
def _numbers(fmt: Format, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Decode all codes of a narrow format."""
    return decoded(torch.arange(1 << fmt.width, device=device), fmt, dtype)
