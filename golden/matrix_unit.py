"""Matrix units of accelerators: one step on tensors, and matrix products as chains of steps."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from halfulp.hdl.formats import OFF, RN, Block, Float, Rounding, Saturation
from halfulp.hdl.specs.mma import FP32, MmaSpec

from .check import check_dense, codes_of
from .dot import dot
from .kernels import Matrices, gathered
from .kernels import matrix_unit as kernel
from .quantize import BlockTensor, check_blocks, quantize_blocks
from .values import decoded, encoded

STAGES = 32
"""Bits after the point of the second stage of ``staged`` sums; the sum itself is rounded down to one bit less."""

NEVER = -999
"""Exponent of zero products of ``staged`` sums, below all others."""

LOST = -10000
"""Exponent of zeros in kernels, which find the largest exponent of others and mark zeros apart."""

ELEMENTS = 1 << 21
"""Largest number of products that are in memory at once in torch."""


@dataclass(frozen=True)
class Terms:
    """Numbers as significands in units of the last place of their exponents, which are at least the format's lowest.

    Attributes
    ----------
    significand : Tensor of int64
        Significand with sign.
    exponent : Tensor of int64
    fraction : int
        Bits of a significand after the point.
    real : Tensor of float64
        The numbers, infinities and NaN included.
    """

    significand: Tensor
    exponent: Tensor
    fraction: int
    real: Tensor

    @classmethod
    def of(cls, codes: Tensor, fmt: Any) -> "Terms":
        """Return the numbers of codes of a float or of a scale."""
        real = decoded(codes, fmt, torch.float64)
        lowest = fmt.emin if isinstance(fmt, Float) else fmt.quantum
        finite = torch.where(real.isfinite(), real, 0)
        exponent = (torch.frexp(finite)[1].to(torch.int64) - 1).clamp(min=lowest)
        exponent = torch.where(finite == 0, lowest, exponent)
        significand = (finite * _power(fmt.man - exponent)).to(torch.int64)
        return cls(significand, exponent, fmt.man, real)

    def __mul__(self, other: "Terms") -> "Terms":
        return Terms(
            self.significand * other.significand,
            self.exponent + other.exponent,
            self.fraction + other.fraction,
            self.real * other.real,
        )


def _power(exponent: Tensor) -> Tensor:
    """Return powers of two in float64, exactly; exponents are those of normal numbers."""
    return (exponent + 1023 << 52).view(torch.float64)


def step(spec: MmaSpec, x: Tensor, y: Tensor, start: Tensor, *scales: Tensor) -> Tensor:
    """Compute a step of a matrix unit in torch: the sum of ``start`` and the products along the last dimension.

    Parameters
    ----------
    spec : MmaSpec
    x, y : Tensor
        Codes of elements, of shapes (..., k) that broadcast.
    start : Tensor
        Codes of the accumulator.
    scales : Tensor
        With blocks, codes of the scales of ``x`` and of ``y``, of shapes (..., k / length).

    Returns
    -------
    Tensor of int64
        Codes of the accumulator after the step.
    """
    if spec.kind == "exact":
        return _exact(spec, x, y, start)
    if spec.kind == "aligned":
        return _rounded(_aligned(spec, aligned_terms(spec, x, y, start, *scales)), spec)
    a, b = (Terms.of(codes, fmt) for codes, fmt in zip((x, y), spec.elements, strict=True))
    acc = Terms.of(start, spec.o)
    if spec.kind == "pairwise":
        return _pairwise(spec, a.real, b.real, acc.real)
    return _rounded(_staged(spec, a * b, acc), spec)


def _scale_terms(spec: MmaSpec, scales: tuple[Tensor, ...]) -> list[Terms]:
    """Return the products of the scales of groups, or of the step; none without blocks."""
    if not isinstance(spec.a, Block) or not isinstance(spec.b, Block):
        return []
    x, y = (_of_groups(spec, codes, block) for codes, block in zip(scales, (spec.a, spec.b), strict=True))
    return [x * y]


def _of_groups(spec: MmaSpec, codes: Tensor, block: Block) -> Terms:
    """Return the scales of groups, or of steps; the sign of a scale is ignored."""
    magnitudes = codes & ((1 << block.scale.width - 1) - 1) if isinstance(block.scale, Float) else codes
    each = block.length // spec.group if spec.group > 1 else 1
    return Terms.of(magnitudes.repeat_interleave(each, -1), block.scale)


@dataclass(frozen=True)
class Aligned:
    """Terms of an aligned sum.

    Attributes
    ----------
    terms, acc : Terms
        Products, or groups of them, along the last dimension, and the accumulator.
    exponent, own : Tensor
        Exponents of the terms and of the accumulator, which are those of zero terms if they are zero.
    """

    terms: Terms
    acc: Terms
    exponent: Tensor
    own: Tensor

    @property
    def top(self) -> Tensor:
        """Largest exponent."""
        return torch.maximum(self.exponent.amax(-1), self.own)

    def kept(self, fraction: int) -> tuple[Tensor, Tensor]:
        """Return terms and accumulator as integers, truncated to a number of bits after the point of the largest."""
        terms, acc = self.terms, self.acc
        places = fraction - terms.fraction - (self.top.unsqueeze(-1) - self.exponent)
        return (
            _truncated(terms.significand, places),
            _truncated(acc.significand, fraction - acc.fraction - (self.top - self.own)),
        )


def aligned_terms(spec: MmaSpec, x: Tensor, y: Tensor, start: Tensor, *scales: Tensor) -> Aligned:
    """Return the terms of an aligned sum; parameters as for `step`."""
    a, b = (Terms.of(codes, fmt) for codes, fmt in zip((x, y), spec.elements, strict=True))
    product, scale = a * b, next(iter(_scale_terms(spec, scales)), None)
    assert spec.zero is not None
    terms = product
    if scale is not None and spec.group == 1:
        terms = product * scale
    empty = terms.significand == 0
    if scale is not None and spec.group > 1:
        units = product.significand << product.exponent - product.exponent.new_tensor(_lowest(spec))
        groups = units.unflatten(-1, (-1, spec.group))
        significand = groups.sum(-1) * scale.significand
        fraction = product.fraction - _lowest(spec) + scale.fraction
        real = product.real.unflatten(-1, (-1, spec.group)).sum(-1) * scale.real
        empty = (groups == 0).all(-1) | (scale.significand == 0)
        terms = Terms(significand, scale.exponent, fraction, real)
    acc = Terms.of(start, spec.o)
    own = torch.where(acc.significand == 0, spec.zero, acc.exponent)
    return Aligned(terms, acc, torch.where(empty, spec.zero, terms.exponent), own)


def _aligned(spec: MmaSpec, aligned: Aligned) -> Tensor:
    assert spec.fraction is not None
    terms, acc = aligned.kept(spec.fraction)
    special = aligned.terms.real.sum(-1) + aligned.acc.real
    total = (terms.sum(-1) + acc).to(torch.float64) * _power(aligned.top - spec.fraction)
    return torch.where(special.isfinite(), total, special)


def _lowest(spec: MmaSpec) -> int:
    return sum(fmt.emin for fmt in spec.elements)


def _truncated(significand: Tensor, places: Tensor) -> Tensor:
    """Return integers shifted to the left by places, or to the right toward zero."""
    magnitude = significand.abs()
    moved = torch.where(places >= 0, magnitude << places.clamp(0, 62), magnitude >> (-places).clamp(0, 63))
    return torch.where(significand < 0, -moved, moved)


def _staged(spec: MmaSpec, product: Terms, acc: Terms) -> Tensor:
    fraction = spec.fraction
    assert fraction is not None
    exponent = torch.where(product.significand == 0, NEVER, product.exponent)
    sums = []
    for half in range(spec.halves):
        at = (..., slice(half, None, spec.halves))
        top = exponent[at].amax(-1)
        places = fraction - product.fraction - (top.unsqueeze(-1) - exponent[at])
        sums.append((_truncated(product.significand[at], places).sum(-1), top))
    total, top = sums[0]
    if spec.halves == 2:
        both = torch.maximum(top, sums[1][1])
        # Integers shift to the right by rounding down.
        even, odd = (part >> (both - own).clamp(max=63) for part, own in sums)
        total = even + odd
        top = both
    largest = torch.maximum(top, acc.exponent)
    low = STAGES - fraction - (largest - top)
    total = torch.where(low >= 0, total << low.clamp(0, 62), total >> (-low).clamp(0, 63))
    held = fraction - acc.fraction - (largest - acc.exponent)
    own = torch.where(held >= 0, acc.significand << held.clamp(0, 62), acc.significand >> (-held).clamp(0, 63))
    if spec.halves == 2:
        own = torch.where(acc.exponent < largest - fraction - 1, 0, own)
    value = (total + (own << STAGES - fraction)).to(torch.float64) * _power(largest - STAGES)
    exponent = (torch.frexp(value)[1].to(torch.int64) - 1).clamp(min=spec.o.emin)
    value = (value * _power(STAGES - 1 - exponent)).floor() * _power(exponent - STAGES + 1)
    over = torch.where(product.real.abs() >= 2.0 ** (spec.o.emax + 1), product.real * torch.inf, product.real)
    special = over.sum(-1) + acc.real
    return torch.where(special.isfinite(), value, special)


def _pairwise(spec: MmaSpec, a: Tensor, b: Tensor, acc: Tensor) -> Tensor:
    assert spec.fraction is not None

    def flushed(x: Tensor, fmt: Float, signed: bool) -> Tensor:
        return torch.where(x.abs() < 2.0**fmt.emin, x * 0 if signed else 0, x)

    def rounded(x: Tensor) -> Tensor:
        narrow = x.to(torch.float32) if spec.o == FP32 else _narrowed(x, spec.o)
        return flushed(narrow, spec.o, True).to(torch.float64)

    x, y = (flushed(x, fmt, False) for x, fmt in zip((a, b), spec.elements, strict=True))
    total, terms = flushed(acc, spec.o, False), rounded(x * y)
    for first in range(0, spec.k, spec.fraction):
        level = list(terms[..., first : first + spec.fraction].unbind(-1))
        while len(level) > 1:
            # A sum of two numbers of up to 24 bits is exact in binary64, or rounds as if it were.
            level = [rounded(level[place] + level[place + 1]) for place in range(0, len(level), 2)]
        total = rounded(total + level[0])
    return _rounded(total, spec)


def _narrowed(x: Tensor, fmt: Float) -> Tensor:
    return decoded(encoded(x, fmt, RN, None, OFF), fmt, torch.float64)


def _exact(spec: MmaSpec, x: Tensor, y: Tensor, start: Tensor) -> Tensor:
    x, y = torch.broadcast_tensors(x, y)
    codes = dot(x, y, start.expand(x.shape[:-1]), a=spec.elements[0], b=spec.elements[1], c=spec.o, o=spec.o)
    zero = decoded(codes, spec.o, torch.float64) == 0
    exact = (Terms.of(x, spec.elements[0]) * Terms.of(y, spec.elements[1])).significand
    # A sum of zeros is +0; a sum that is too small for the format has its sign.
    return torch.where(zero & (exact == 0).all(-1) & (Terms.of(start, spec.o).significand == 0), 0, codes)


def _rounded(value: Tensor, spec: MmaSpec) -> Tensor:
    """Round numbers in float64 to codes of the result; beyond the largest number they are infinite."""
    o = spec.o if spec.through is None else spec.through
    value = torch.where(value.abs() >= 2.0 ** (o.emax + 1), value * torch.inf, value)
    codes = encoded(value, o, spec.rounding, None, OFF) << spec.o.man - o.man
    if spec.kind == "aligned":
        codes = torch.where(codes == spec.o.sign_code, 0, codes)
    return torch.where(value.isnan(), spec.nan_code, codes)


def multiply(spec: MmaSpec, a: Any, b: Any, start: Tensor | None, shape: tuple[int, ...]) -> Tensor:
    """Multiply checked matrices of codes, or of blocks along the sums; the result has codes of ``spec.o``."""
    left, right = _operand(spec, a, -1), _operand(spec, b, -2)
    batch, (n, m) = shape[:-2], shape[-2:]
    if 0 in shape or not left[0].shape[-1]:
        return left[0].new_zeros(shape) if start is None else start.expand(shape).clone()
    rows = [x.expand(*batch, *x.shape[-2:]).reshape(-1, n, x.shape[-1]) for x in left]
    columns = [x.mT.expand(*batch, *x.mT.shape[-2:]).reshape(-1, m, x.shape[-2]) for x in right]
    begin = None if start is None else start.expand(shape).reshape(-1, n, m)
    length = rows[0].shape[-1]
    if spec.every is None or length <= spec.every:
        pieces = [slice(0, length)]
    else:
        pieces = [slice(first, first + spec.every) for first in range(0, length, spec.every)]
    total = None if spec.every is None else begin
    for piece in pieces:
        part = [_taken(x, piece, length) for x in rows], [_taken(x, piece, length) for x in columns]
        sums = _chain(spec, *part, begin if spec.every is None else None)
        total = sums if total is None or spec.every is None else _added(spec, total, sums)
    assert total is not None
    return total.reshape(shape)


def _taken(x: Tensor, piece: slice, length: int) -> Tensor:
    """Return a part of the elements along the sums, or the scales of this part."""
    each = length // max(x.shape[-1], 1) if length else 1
    return x[..., piece.start // each : piece.stop // each]


def _added(spec: MmaSpec, x: Tensor, y: Tensor) -> Tensor:
    real = (decoded(codes, spec.o, torch.float64) for codes in (x, y))
    codes: Tensor = encoded(sum(real, torch.tensor(-0.0)), spec.o, RN, None, OFF)
    return codes


def _operand(spec: MmaSpec, x: Any, dim: int) -> list[Tensor]:
    """Return elements, padded with zeros to whole steps, and the scales of blocks, padded with ones."""
    block = spec.a if dim == -1 else spec.b
    elements = x.elements.to(torch.int64) if isinstance(x, BlockTensor) else gathered(x)
    missing = -elements.shape[dim] % spec.k

    def padded(codes: Tensor, count: int, value: int) -> Tensor:
        return F.pad(codes, (0, count) if dim == -1 else (0, 0, 0, count), value=value)

    made = [padded(elements, missing, 0)]
    if isinstance(block, Block):
        scale = x.scale.to(torch.int64)
        blocks = made[0].shape[dim] // block.length
        made.append(padded(scale, blocks - scale.shape[dim], block.scale.encode(1)))
    return made


def _chain(spec: MmaSpec, rows: list[Tensor], columns: list[Tensor], start: Tensor | None) -> Tensor:
    """Return the sums of all steps, of shape (batches, n, m)."""
    batches, n, length = rows[0].shape
    m = columns[0].shape[1]
    if rows[0].device.type == "cpu":
        parts = [
            _parts(spec, codes, element, block)
            for codes, element, block in zip((rows, columns), spec.elements, (spec.a, spec.b), strict=True)
        ]
        begin = None if start is None else decoded(start, spec.o, torch.float64)
        real = kernel.run(spec, (batches, n, m, length // spec.k), parts[0], parts[1], begin)
        if real is not None:
            return torch.where(real.isnan(), spec.nan_code, encoded(real, spec.o, RN, None, OFF))
    sums = torch.zeros(batches, n, m, dtype=torch.int64, device=rows[0].device)
    if start is not None:
        sums = sums + start
    height = max(1, ELEMENTS // max(m * spec.k, 1))
    for batch in range(batches):
        for first in range(0, n, height):
            part = slice(first, first + height)
            for at in range(0, length, spec.k):
                given = [_taken(x[batch], slice(at, at + spec.k), length) for x in (*rows, *columns)]
                count = len(rows)
                left = [x[part].unsqueeze(1) for x in given[:count]]
                right = [x.unsqueeze(0) for x in given[count:]]
                scales = (left[1], right[1]) if count == 2 else ()
                sums[batch, part] = step(spec, left[0], right[0], sums[batch, part], *scales)
    return sums


def _parts(spec: MmaSpec, codes: list[Tensor], fmt: Float, block: Any) -> dict[str, Tensor]:
    """Return significands, exponents, numbers and marks of special values of an operand, and those of its scales."""
    if spec.kind == "aligned" and spec.group == 1:
        real = decoded(codes[0], fmt, torch.float32)
        special, zero = ~real.isfinite(), real == 0
        exponent = (torch.frexp(real)[1] - 1).clamp(min=fmt.emin).masked_fill(zero, LOST)
        parts = {"_exponent": exponent.int(), "_zero": _in_steps(spec, zero).int()}
    else:
        terms = Terms.of(codes[0], fmt)
        significand, real, special = terms.significand, terms.real.float(), ~terms.real.isfinite()
        if spec.kind == "pairwise":
            real = torch.where(real.abs() < 2.0**fmt.emin, 0, real)
        if spec.group > 1:
            significand = significand << terms.exponent - fmt.emin
        parts = {"": significand.int(), "_exponent": terms.exponent.int()}
    if isinstance(block, Block):
        scales = _of_groups(spec, codes[1], block)
        # A scale that is NaN makes all numbers of its block NaN.
        lost = scales.real.isnan().repeat_interleave(real.shape[-1] // max(scales.real.shape[-1], 1), -1)
        real, special = torch.where(lost, torch.nan, real), special | lost
        parts |= {"_scale": scales.significand.int(), "_scale_exponent": scales.exponent.int()}
    return parts | {"_real": real, "_special": _in_steps(spec, special).to(torch.int8)}


def _in_steps(spec: MmaSpec, marks: Tensor) -> Tensor:
    """Return True for steps in which a mark is True."""
    return marks.unflatten(-1, (-1, spec.k)).any(-1)


def checked(spec: MmaSpec, a: Any, b: Any, rounding: Rounding, saturate: Saturation) -> tuple[Any, Any]:
    """Return operands as codes in int64, or as blocks; real numbers are rounded to their formats."""
    return _checked("a", a, spec.a, -1, rounding, saturate), _checked("b", b, spec.b, -2, rounding, saturate)


def _checked(name: str, given: Any, fmt: Any, dim: int, rounding: Rounding, saturate: Saturation) -> Any:
    check_dense(name, given)
    if isinstance(fmt, Block):
        if isinstance(given, BlockTensor):
            if given.tensor is not None:
                raise ValueError(f"{name} has a scale of the whole tensor; multiply the result by it")
            return check_blocks(name, given, fmt, dim)
        if not isinstance(given, Tensor) or not given.is_floating_point():
            raise TypeError(f"{name} must be a BlockTensor of {fmt}, or real numbers")
        return quantize_blocks(given, fmt, rounding, dim=dim)
    if not isinstance(given, Tensor):
        raise TypeError(f"{name} must be a tensor of codes of {fmt} or of real numbers, not {type(given).__name__}")
    if given.is_floating_point():
        if rounding.bits:
            raise ValueError(f"operand_rounding must not be stochastic, as {rounding} is; round operands with encode()")
        return encoded(given, fmt, rounding, None, saturate)
    return codes_of(name, given, fmt)


def in_codes(x: Matrices, fmt: Any) -> Tensor:
    """Return matrices as a tensor of codes; real numbers are rounded to nearest."""
    values = gathered(x)
    return encoded(values, fmt, RN, None, OFF) if values.is_floating_point() else values
