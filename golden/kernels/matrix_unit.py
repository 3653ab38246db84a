"""Compiled chains of steps of matrix units."""

import ctypes
import math

import torch
from torch import Tensor

from halfulp.hdl.formats import RN, Block
from halfulp.hdl.specs.mma import FP32, MmaSpec

from . import build
from .launch import I64, POINTER

COLUMNS = 8
"""Columns of a tile, as in matrix_unit.h."""

IN_TORCH = 2e-7
"""Seconds for a product of two elements in torch."""


class MatrixUnit(ctypes.Structure):
    """Struct ``MatrixUnit`` of matrix_unit.h."""

    _fields_ = (
        *((name, I64) for name in ("batches", "n", "m", "steps", "threads")),
        *((name, POINTER) for name in ("a", "b", "a_exponent", "b_exponent", "a_real", "b_real")),
        *((name, POINTER) for name in ("a_special", "b_special", "a_zero", "b_zero")),
        *((name, POINTER) for name in ("a_scale", "b_scale", "a_scale_exponent", "b_scale_exponent")),
        *((name, POINTER) for name in ("start", "out")),
    )


def run(
    spec: MmaSpec,
    shape: tuple[int, int, int, int],
    rows: dict[str, Tensor],
    columns: dict[str, Tensor],
    start: Tensor | None,
) -> Tensor | None:
    """Return the sums of all chains in float64; None without a compiler, and if one is not worth it.

    Pairwise sums are those of the processor, in binary32; None for other accumulators.

    Parameters
    ----------
    spec : MmaSpec
    shape : tuple of int
        Batches, rows, columns and steps.
    rows, columns : dict
        Parts of the operands by the ends of their names in `MatrixUnit`, of shapes (batches, n or m, values).
    start : Tensor, optional
        Accumulators before the first step, of shape (batches, n, m), in float64.
    """
    if build.level() == "torch" or (spec.kind == "pairwise" and spec.o != FP32):
        return None
    library = build.library(f"matrix_unit_{spec.order}", _source(spec), math.prod(shape) * spec.k * IN_TORCH)
    if library is None:
        return None
    out = torch.empty(shape[:3], dtype=torch.float64)
    given = {f"a{end}": x.contiguous() for end, x in rows.items()}
    given |= {f"b{end}": _tiles(x, joined=end == "_special") for end, x in columns.items()}
    if start is not None:
        given["start"] = start.contiguous()
    call = MatrixUnit(*shape, torch.get_num_threads(), out=out.data_ptr())
    for field, tensor in given.items():
        setattr(call, field, tensor.data_ptr())
    library.halfulp_matrix_unit(ctypes.byref(call))
    return out


def _tiles(x: Tensor, *, joined: bool) -> Tensor:
    """Return columns (batches, m, values) as tiles (batches, tiles, values, columns), or with one mark for a tile."""
    padded = torch.nn.functional.pad(x, (0, 0, 0, -x.shape[1] % COLUMNS)).unflatten(1, (-1, COLUMNS))
    if joined:
        return padded.amax(2).contiguous()
    return padded.mT.contiguous()


def _source(spec: MmaSpec) -> str:
    fraction, zero = spec.fraction or 0, spec.zero or 0
    a, b = spec.elements
    # Aligned sums have no such shift: operand formats share a kernel.
    order, up = spec.kind, 0 if spec.kind == "aligned" else fraction - a.man - b.man
    if spec.group > 1:
        assert isinstance(spec.a, Block)
        assert isinstance(spec.b, Block)
        scales = sum(block.scale.man for block in (spec.a, spec.b))
        order, up = "grouped", fraction - a.man - b.man + a.emin + b.emin - scales
    o = spec.o if spec.through is None else spec.through
    # In binary32 products are exact and normal numbers, 16 aligned ones are below 2^31, and factors below 2^127.
    small = a.man + b.man <= 22 and a.emin + b.emin - a.man - b.man >= -100 and a.emax + b.emax <= 100
    real = "float" if small and fraction <= 25 else "double"
    numbers = (spec.k, fraction, zero, up, spec.o.man, spec.o.emin, spec.group, spec.halves)
    steps = f"Steps<Order::{order.upper()}, {real}, {', '.join(map(str, numbers))}>"
    nearest = "true" if spec.rounding == RN else "false"
    return f"""#include "matrix_unit.h"
extern "C" __attribute__((visibility("default"))) void halfulp_matrix_unit(const halfulp::MatrixUnit* call) {{
using namespace halfulp;
{steps}{{*call, {{{o.man}, {o.emin}, {o.emax}, {nearest}}}}}.run();
}}
"""
