"""Kernels on single numbers, and on states of sources."""

import ctypes
import re

import torch
from torch import Tensor

from halfulp.hdl.formats import EXACT, FP32, FP64, Float, Format, Rounding

from . import build
from .float_plan import LANE_MODES
from .launch import I64, POINTER
from .text import boolean, definitions, fits, format_text, rounding_text

WORTHWHILE = 256
"""Fewer numbers are as soon done in torch."""

IN_TORCH = 0.2e-6
"""Seconds that torch takes for a number."""


class Elements(ctypes.Structure):
    """All that a conversion is called with, as elements.h has it."""

    _fields_ = (("count", I64), ("threads", I64), ("x", POINTER), ("random", POINTER), ("out", POINTER))


class Jump(ctypes.Structure):
    """All that a jump is called with, as states.h has it."""

    _fields_ = (
        *((name, I64) for name in ("count", "threads", "places")),
        *((name, POINTER) for name in ("states", "columns", "out")),
    )


def encode(values: Tensor, o: Format, rounding: Rounding, saturate: bool, random: Tensor | None) -> Tensor | None:
    """Codes of numbers in float32 or float64, or None where that is not for kernels."""
    source = FP32 if values.dtype == torch.float32 else FP64
    return _run(values, source, o, rounding, saturate, random)


def convert(
    codes: Tensor, a: Format, o: Format, rounding: Rounding, saturate: bool, random: Tensor | None
) -> Tensor | None:
    """Codes in another format, or None where that is not for kernels."""
    return _run(codes, a, o, rounding, saturate, random)


def _run(x: Tensor, a: Format, o: Format, rounding: Rounding, saturate: bool, random: Tensor | None) -> Tensor | None:
    if x.device.type != "cpu" or x.numel() < WORTHWHILE or build.level() == "torch" or not fits(a, o):
        return None
    if random is not None:
        x, random = torch.broadcast_tensors(x, random)
        random = random.contiguous()
    x = x.contiguous()
    library = build.library(
        f"convert_{format_name(a)}_{format_name(o)}_{rounding}",
        _source(x.dtype, a, o, rounding, saturate),
        x.numel() * IN_TORCH,
    )
    if library is None:
        return None
    out = torch.empty(x.shape, dtype=torch.int64)
    words = None if random is None else random.data_ptr()
    told = Elements(x.numel(), torch.get_num_threads(), x.data_ptr(), words, out.data_ptr())
    library.halfulp_convert(ctypes.byref(told))
    return out


def format_name(fmt: Format) -> str:
    """A format's name in that of a file."""
    return re.sub(r"\W", "_", str(fmt))


def _source(dtype: torch.dtype, a: Format, o: Format, rounding: Rounding, saturate: bool) -> str:
    types = f"{rounding_text(rounding)}, {boolean(saturate)}"
    # A code comes as int64, a number as its own bits.
    holder = {torch.float32: "u32", torch.float64: "u64"}.get(dtype, "u64")
    run = f"convert_exact<{format_text(a)}, {format_text(o)}, {types}, {holder}>(*call)"
    if dtype.is_floating_point and isinstance(o, Float) and _in_lanes(o, rounding):
        flags = f"{boolean(o.has_inf)}, {boolean(o.has_negative_zero)}, {-1022 - o.emin}"
        number = "float" if dtype == torch.float32 else "double"
        run = f"encode_floats<{format_text(o)}, {o.man}, {types}, {flags}, {number}>(*call)"
    return f"""#include "elements.h"
{definitions(a, o)}
extern "C" __attribute__((visibility("default"))) void halfulp_convert(const halfulp::Elements* call) {{
using namespace halfulp;
{run};
}}
"""


def _in_lanes(o: Float, rounding: Rounding) -> bool:
    """Whether binary64 words round to the format: they are to have a bit below all that rounding looks at."""
    return (
        o.man >= 1
        and o.subnormals
        and rounding != EXACT
        and rounding.mode in LANE_MODES
        and -1020 <= -1022 - o.emin <= 0
        and 52 - o.man >= max(rounding.bits + 1, 2)
    )


def jump(states: Tensor, columns: list[int]) -> Tensor | None:
    """States after a jump that takes each single one of them to these columns, or None without kernels."""
    if states.device.type != "cpu" or states.numel() < WORTHWHILE:
        return None
    source = """#include "states.h"
extern "C" __attribute__((visibility("default"))) void halfulp_jump(const halfulp::Jump* call) {
halfulp::jump(*call);
}
"""
    library = build.library("states", source, states.numel() * len(columns) * IN_TORCH)
    if library is None:
        return None
    states = states.contiguous()
    out, table = torch.empty_like(states), torch.tensor(columns, dtype=torch.int64)
    told = Jump(
        states.numel(), torch.get_num_threads(), len(columns), states.data_ptr(), table.data_ptr(), out.data_ptr()
    )
    library.halfulp_jump(ctypes.byref(told))
    return out
