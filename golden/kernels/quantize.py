"""Kernels that convert real numbers to blocks with shared scales."""

import ctypes
import functools
import re
from fractions import Fraction

import torch
from torch import Tensor

from halfulp.hdl.formats import EXACT, Block, Format, Rounding
from halfulp.hdl.formats.block import RULES

from . import build
from .launch import I64, POINTER
from .text import boolean, format_text

IN_TORCH = 1e-6
"""Seconds for an element in torch."""

TYPES = {torch.uint8: "std::uint8_t", torch.int16: "std::int16_t", torch.int32: "std::int32_t", torch.int64: "i64"}
"""C++ types of codes."""


class Quantization(ctypes.Structure):
    """Struct ``Quantization`` of quantize.h."""

    _fields_ = (
        *((name, I64) for name in ("outer", "length", "inner", "threads")),
        *((name, POINTER) for name in ("x", "random", "elements", "scales")),
        ("tensor", ctypes.c_double),
    )


def dtype_of(fmt: Format) -> torch.dtype:
    """Return the narrowest integer type that holds the codes of a format."""
    return next(dtype for dtype in TYPES if fmt.width <= torch.iinfo(dtype).max.bit_length() or dtype == torch.int64)


def quantize(
    x: Tensor, dim: int, block: Block, rounding: Rounding, random: Tensor | None, tensor: float
) -> tuple[Tensor, Tensor] | None:
    """Convert contiguous numbers of binary32 or binary64 to blocks along a dimension; None without a kernel.

    Returns
    -------
    tuple of Tensor
        Codes of elements, in the shape of ``x``, and of scales, whose dimension ``dim`` has one for each block.
    """
    if x.device.type != "cpu" or build.level() == "torch" or not _in_lanes(block, rounding):
        return None
    name = re.sub(r"\W+", "_", f"quantize_{block}_{rounding}")
    library = build.library(name, _source(block, rounding, x.dtype), x.numel() * IN_TORCH)
    if library is None:
        return None
    outer, length, inner = (
        torch.Size(part).numel() for part in (x.shape[:dim], x.shape[dim : dim + 1], x.shape[dim + 1 :])
    )
    elements = torch.empty(x.shape, dtype=dtype_of(block.element))
    blocks = -(-length // block.length)
    scales = torch.empty((*x.shape[:dim], blocks, *x.shape[dim + 1 :]), dtype=dtype_of(block.scale))
    words = None if random is None else random.data_ptr()
    pointers = (x.data_ptr(), words, elements.data_ptr(), scales.data_ptr())
    call = Quantization(outer, length, inner, torch.get_num_threads(), *pointers, tensor)
    library.halfulp_quantize(ctypes.byref(call))
    return elements, scales


@functools.lru_cache(maxsize=256)
def _in_lanes(block: Block, rounding: Rounding) -> bool:
    """Return True if binary64 lanes hold quotients with a sticky bit, and scales are far from the ends of their range.

    Elements of binary64 numbers beyond 2^700 and below 2^-700 are those of these limits.
    """
    element, scale = block.element, block.scale
    if rounding == EXACT or rounding.bits > 32 or element.width > 8:
        return False
    if element.is_floating_point:
        good = element.has_subnormals and abs(element.quantum) <= 200 and block.emax <= 200
    else:
        good = element.spacing == "uniform" and -element.width <= element.quantum <= 0
    wide = not scale.has_zero or (scale.subnormals and scale.precision + 24 <= 53)
    limit = Fraction(2) ** 300
    return good and wide and 1 / limit < scale.smallest and scale.largest < limit


def _source(block: Block, rounding: Rounding, dtype: torch.dtype) -> str:
    element, scale = block.element, block.scale
    nan_element, nan_scale = block.nan_codes
    signed_zero = boolean(element.has_negative_zero)
    constants = {
        "int LENGTH": block.length,
        "int RULE": RULES.index(block.rule),
        "int EMAX": block.emax,
        "int PRECISION": element.precision,
        "double LARGEST": float(element.largest).hex(),
        "u64 ZERO_SCALE": block.zero_scale,
        "u64 SMALLEST_SCALE": scale.encode(scale.smallest),
        "u64 NAN_ELEMENT": nan_element,
        "u64 NAN_SCALE": nan_scale,
    }
    lines = [f"static constexpr {name} = {value};" for name, value in constants.items()]
    number = "float" if dtype == torch.float32 else "double"
    return f"""#include "quantize.h"
namespace halfulp {{
static constexpr {type(element).__name__} element_format = {format_text(element)};
static constexpr Rounding element_rounding{{{rounding.mode.upper()}, {rounding.bits}, {rounding.places}}};
struct Spec {{
static constexpr auto scale = {format_text(scale)};
static constexpr auto rounding = element_rounding;
using Elements = {type(element).__name__}Elements<element_format, element_rounding, {signed_zero}>;
using Element = {TYPES[dtype_of(element)]};
using ScaleCode = {TYPES[dtype_of(scale)]};
{chr(10).join(lines)}
}};
}}  // namespace halfulp
extern "C" __attribute__((visibility("default"))) void halfulp_quantize(const halfulp::Quantization* call) {{
halfulp::Quantizer<halfulp::Spec, {number}>{{*call}}.run();
}}
"""
