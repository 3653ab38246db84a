"""Element-wise kernels: conversions between formats, and jumps of source states."""

import ctypes
import functools
import re

import torch
from torch import Tensor

from halfulp.hdl.formats import EXACT, FP32, Float, Format, Rounding, Saturation

from . import build, exact, gpu
from .launch import I64, POINTER
from .text import boolean, fits, format_text, saturation_text

WORTHWHILE = 256
"""Smallest number of elements for which a kernel is faster than torch."""

LONG = (1 << 16) + 1
"""Smallest number of elements for which a table of all upper halves is worth it."""

IN_TORCH, IN_EXACT = 0.2e-6, 0.05e-6
"""Seconds for an element in torch, and in the general kernel."""


class Elements(ctypes.Structure):
    """Struct ``Elements`` of elements.h: arguments of a conversion."""

    _fields_ = (("count", I64), ("threads", I64), ("x", POINTER), ("random", POINTER), ("out", POINTER))


class Jump(ctypes.Structure):
    """Struct ``Jump`` of states.h: arguments of a jump."""

    _fields_ = (
        *((name, I64) for name in ("count", "threads", "places")),
        *((name, POINTER) for name in ("states", "columns", "out")),
    )


def convert(
    x: Tensor, a: Format, o: Format, rounding: Rounding, saturate: Saturation, random: Tensor | None
) -> Tensor | None:
    """Convert to another format, on the CPU or on a GPU; None if no kernel supports the conversion.

    ``x`` holds codes in the format ``a``, or real numbers in float32 or float64 if ``a`` is FP32 or FP64.
    """
    on_gpu = gpu.elements(x)
    if on_gpu is None and (x.device.type != "cpu" or build.level() == "torch" or not fits(a, o)):
        return None
    if x.numel() < WORTHWHILE:
        return None
    if random is not None:
        x, random = torch.broadcast_tensors(x, random)
        random = random.contiguous()
    out = torch.empty_like(x, dtype=torch.int64)
    if random is not None or out.stride() != x.stride():
        # Any order of elements in memory is fine if it has no gaps, but random words are in row-major order.
        x = x.contiguous()
        out = torch.empty(x.shape, dtype=torch.int64, device=x.device)
    if on_gpu is not None:
        return out if on_gpu.convert(x, a, o, rounding, saturate, random, out) else None
    words = None if random is None else random.data_ptr()
    call = Elements(x.numel(), torch.get_num_threads(), x.data_ptr(), words, out.data_ptr())
    if x.numel() >= LONG and x.dtype == torch.float32 and random is None and _by_upper_half(o):
        library = exact.library(x.numel() * IN_TORCH)
        if library is not None:
            library.halfulp_look_up(ctypes.byref(call), POINTER(_upper_halves(o, rounding, saturate).data_ptr()))
            return out
    if x.dtype.is_floating_point and isinstance(o, Float) and _in_lanes(o, rounding):
        name = re.sub(r"\W", "_", f"encode_{o}_{rounding}")
        library = build.library(name, _source(x.dtype, o, rounding, saturate), x.numel() * IN_EXACT)
        if library is not None:
            library.halfulp_encode(ctypes.byref(call))
            return out
    library = exact.library(x.numel() * IN_TORCH)
    if library is None:
        return None
    parameters = exact.conversion(a, o, rounding, saturate, x.element_size())
    library.halfulp_convert(ctypes.byref(call), ctypes.byref(parameters))
    return out


def _by_upper_half(o: Format) -> bool:
    """Return True if the rounding of a binary32 number depends on its upper half, and on whether the lower one is zero.

    Numbers of the format and midpoints between them have at most 6 fraction bits. The last of the 7 bits in the upper
    half stands for all below it, as in rounding to odd.
    """
    return o.width <= 16 and o.window <= 6 and o.quantum > -120


@functools.lru_cache(maxsize=64)
def _upper_halves(o: Format, rounding: Rounding, saturate: Saturation) -> Tensor:
    """Convert every upper half of a binary32 number."""
    words = torch.arange(1 << 16) << 16
    codes = convert(words.to(torch.int32).view(torch.float32), FP32, o, rounding, saturate, None)
    assert codes is not None
    return codes.to(torch.int16)


def _source(dtype: torch.dtype, o: Float, rounding: Rounding, saturate: Saturation) -> str:
    flags = f"{saturation_text(saturate)}, {boolean(o.has_inf)}, {boolean(o.has_negative_zero)}, {-1022 - o.emin}"
    number = "float" if dtype == torch.float32 else "double"
    return f"""#include "encode.h"
namespace halfulp {{
static constexpr Float o = {format_text(o)};
static constexpr Rounding rounding{{{rounding.mode.upper()}, {rounding.bits}, {rounding.places}}};
}}
extern "C" __attribute__((visibility("default"))) void halfulp_encode(const halfulp::Elements* call) {{
using namespace halfulp;
encode_floats<o, rounding, {flags}, {number}>(*call);
}}
"""


def _in_lanes(o: Float, rounding: Rounding) -> bool:
    """Return True if binary64 lanes can round to the format: they have a sticky bit below all bits that matter."""
    return (
        o.man >= 1
        and o.subnormals
        and rounding != EXACT
        and -1020 <= -1022 - o.emin <= 0
        and 52 - o.man >= max(rounding.bits + 1, 2)
    )


def jump(states: Tensor, columns: list[int]) -> Tensor | None:
    """Multiply states by a matrix over GF(2), which is given by its columns; None without kernels."""
    if states.device.type != "cpu" or states.numel() < WORTHWHILE:
        return None
    library = exact.library(states.numel() * len(columns) * IN_TORCH)
    if library is None:
        return None
    states = states.contiguous()
    out, table = torch.empty_like(states), torch.tensor(columns, dtype=torch.int64)
    call = Jump(
        states.numel(), torch.get_num_threads(), len(columns), states.data_ptr(), table.data_ptr(), out.data_ptr()
    )
    library.halfulp_jump(ctypes.byref(call))
    return out
