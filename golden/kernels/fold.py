"""Kernels that accumulate dot products: of blocks, and of weights and the activations at their indices."""

import ctypes
import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from halfulp.hdl.formats import Format
from halfulp.hdl.specs import BlockMacSpec, SparseMacSpec, ValueRange

from . import build
from .float_plan import float_text, top_of
from .lane import BINARY64, Refused, need
from .launch import I64, POINTER, Words, call
from .plan import Lane, file_name
from .text import PHILOX, boolean, definitions, format_text, saturation_text, words_text

IN_TORCH = 1e-6
"""Seconds for a multiply-accumulate in torch."""

BITS = 118
"""Bits of the exact terms that 128-bit integers hold."""


class Dots(ctypes.Structure):
    """Struct ``Dots`` of fold.h."""

    _fields_ = (
        ("single", I64),
        *((name, POINTER) for name in ("left", "right", "left_scale", "right_scale")),
        *((name, POINTER) for name in ("left_low", "left_top", "right_low", "right_top", "left_of", "right_of")),
        ("places", POINTER),
    )


@dataclass(frozen=True)
class Side:
    """Operand of a product of blocks, or with structured sparsity, in batches.

    Attributes
    ----------
    numbers : Tensor
        Elements as real numbers, of shape (batch, row or column, step, place).
    scale : Tensor
        Scales in float64, positive or NaN, of shape (batch, row or column, step).
    low, top : Tensor
        Exponents in int32 of the same shape: the numbers of a step, with their scale, are multiples of 2^low and below
        2^top.
    places : Tensor, optional
        Activation in the step of each weight with structured sparsity, in the shape of ``numbers``.
    """

    numbers: Tensor
    scale: Tensor
    low: Tensor
    top: Tensor
    places: Tensor | None = None


def elements_of(spec: BlockMacSpec | SparseMacSpec) -> tuple[Format, Format]:
    """Return the formats of the factors of dot products."""
    return (spec.a.element, spec.b.element) if isinstance(spec, BlockMacSpec) else (spec.a, spec.b)


@functools.lru_cache(maxsize=1024)
def lane(spec: BlockMacSpec | SparseMacSpec, counted: str | None, single: bool, fma: bool) -> Lane:
    """Return the kernel of a description."""
    try:
        return Lane(_source(spec, counted, single, fma))
    except Refused as reason:
        return Lane(None, str(reason))


def _source(spec: BlockMacSpec | SparseMacSpec, counted: str | None, single: bool, fma: bool) -> str:
    a, b = elements_of(spec)
    dots, count, scale_bits = (ValueRange.of(a) * ValueRange.of(b)).times(spec.k), spec.k, 0
    if isinstance(spec, BlockMacSpec):
        scales = ValueRange.of(spec.a.scale) * ValueRange.of(spec.b.scale)
        scale_bits = BITS if scales.inf else scales.precision
    else:
        count = spec.activations
    need(dots.precision + scale_bits <= BITS and scale_bits <= 53, "dot products with their scales are too long")
    need(all(_bits(fmt) <= 60 for fmt in (a, b)), "elements are too long")
    body, number = float_text(spec, BINARY64, fma), "float" if single else "double"
    return f"""#include "fold.h"
{definitions(spec.o)}
namespace halfulp {{
struct Spec {{
static constexpr auto o = {format_text(spec.o)};
using SumWords = {words_text(spec, counted, "random")};
static constexpr Rounding ROUNDING{{{spec.rounding.mode.upper()}, {spec.rounding.bits}, {spec.rounding.places}}};
static constexpr Saturation SATURATION = {saturation_text(spec.saturate)};
static constexpr int LENGTH = {spec.k}, LEFT = {count};
static constexpr bool SELECTS = {boolean(isinstance(spec, SparseMacSpec))};
static constexpr int A_QUANTUM = {a.quantum}, B_QUANTUM = {b.quantum};
{body}
}};
}}  // namespace halfulp
using Fold = halfulp::Folds<halfulp::Spec, {number}>;
#define EXPORTED extern "C" __attribute__((visibility("default")))
EXPORTED int halfulp_fold(const halfulp::Call* call, const halfulp::Dots* dots) {{
Fold{{*call, *dots}}.run();
return 0;
}}
EXPORTED int halfulp_columns() {{ return Fold::COLUMNS; }}
"""


def _bits(fmt: Format) -> int:
    span = ValueRange.of(fmt)
    return top_of(span) - span.quantum


def gemm(  # noqa: PLR0913 - arguments of a kernel
    spec: BlockMacSpec | SparseMacSpec,
    a: Side,
    b: Side,
    batches: tuple[Tensor, ...],
    start: Tensor | None,
    shape: tuple[int, ...],
    words: Words,
    library: ctypes.CDLL,
) -> Tensor:
    """Multiply matrices step by step; ``batches`` are those of the operands for each batch of the result."""
    n, m, steps = *shape[-2:], a.numbers.shape[2]
    sums = torch.empty(shape, dtype=torch.int64)
    wide = library.halfulp_columns()
    panels, scales, low, top = (_in_panels(matrix, wide) for matrix in (b.numbers, b.scale, b.low, b.top))
    tensors = (
        a.numbers,
        panels.permute(0, 1, 3, 4, 2),
        a.scale,
        scales.mT,
        a.low,
        a.top,
        low.amin(2),
        top.amax(2),
        *batches,
        *([] if b.places is None else [_in_panels(b.places.to(torch.int32), wide).permute(0, 1, 3, 4, 2)]),
    )
    alive = [tensor.contiguous() for tensor in tensors]
    given = Dots(a.numbers.dtype == torch.float32, *(tensor.data_ptr() for tensor in alive))
    nothing = torch.zeros((), dtype=torch.int64)
    operands = nothing.expand(n, steps), nothing.expand(steps, m)
    done = call(library, *operands, start, shape, words, out=sums, step=given, function="halfulp_fold")
    assert done is sums
    return sums


def _in_panels(x: Tensor, wide: int) -> Tensor:
    """Split columns, dimension 1, into panels; the last column of a panel is repeated."""
    more = -x.shape[1] % wide
    if more:
        x = torch.cat([x, x[:, -1:].expand(-1, more, *x.shape[2:])], 1)
    return x.unflatten(1, (-1, wide))


def lane_of(spec: BlockMacSpec | SparseMacSpec, words: Words, single: bool) -> Lane:
    """Return the kernel of a description and its random words."""
    return lane(spec, None if words.key is None else PHILOX, single, build.has_fma())


def file_of(spec: BlockMacSpec | SparseMacSpec) -> str:
    """Return the beginning of the file names of a description's kernel."""
    return f"fold_{file_name(spec)}"
