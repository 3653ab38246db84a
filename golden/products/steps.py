"""Steps of sums: the kinds of operands that descriptions have, and how a multiply-accumulate takes them."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from halfulp.golden.kernels import Matrices, MatrixProduct, fold
from halfulp.golden.raw import Raw
from halfulp.golden.values import decoded
from halfulp.hdl.formats import Format, Rounding, Saturation
from halfulp.hdl.specs import BlockMacSpec, SparseMacSpec

SPECIAL = 1 << 14
"""Exponent of places of zeros, infinities and NaN, which bound nothing."""

Terms = Callable[[int, Tensor | None], Raw]
"""Function from a step, and the random word of its product, to the terms that all sums add in it."""


class Kind(ABC):
    """Operands of the products of one class of descriptions: numbers, blocks, or weights with structured sparsity."""

    @abstractmethod
    def checked(self, spec: Any, a: Any, b: Any, rounding: Rounding, saturate: Saturation) -> tuple[Any, Any]:
        """Return the operands with codes in int64; real numbers are rounded to their formats.

        Raises TypeError or ValueError if they are not of this kind, hold values that are no codes, or ``rounding`` or
        ``saturate`` has no effect.
        """

    @abstractmethod
    def terms(self, job: MatrixProduct) -> Terms:
        """Return the terms of the sums by step."""

    @abstractmethod
    def example(self, spec: Any, n: int, k: int, m: int, device: str) -> tuple[Any, Any]:
        """Return operands of these sizes, without memory."""

    def in_steps(self, spec: Any, a: Any, b: Any) -> tuple[Any, Any, Any]:
        """Return an equal product in which each step takes its own columns of ``a`` and rows of ``b``."""
        return spec, a, b

    def sides(self, job: MatrixProduct) -> tuple[fold.Side | None, fold.Side | None]:
        """Decode the operands for dot products in lanes; None if these do not compute with one."""
        return None, None

    def finished(self, codes: Matrices, job: MatrixProduct) -> Matrices:
        """Return the results from finished sums."""
        return codes


def zeros(rows: int, columns: int, device: str) -> Tensor:
    """Return a matrix that takes no memory."""
    return torch.zeros(1, 1, dtype=torch.int64, device=device).expand(rows, columns)


def numbers_of(spec: BlockMacSpec | SparseMacSpec, fmt: Format, codes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the elements of steps as real numbers, and exponents that bound those of each step; see `fold.Side`."""
    numbers, low, top = _tables(fmt, torch.float32 if is_single(spec) else torch.float64)
    if is_exact(spec):
        # No check of single elements is necessary.
        lowest, highest = (torch.full(codes.shape[:-1], int(end), dtype=torch.int32) for end in (low.min(), top.max()))
    else:
        lowest, highest = low[codes].amin(-1).clamp(max=0), top[codes].amax(-1).clamp(min=0)
    return numbers[codes], lowest, highest


@functools.lru_cache(maxsize=64)
def _tables(fmt: Format, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return the numbers of all codes, and exponents: numbers are multiples of 2^low and below 2^top."""
    codes = torch.arange(1 << fmt.width)
    numbers = decoded(codes, fmt, torch.float64)
    fraction, exponent = torch.frexp(numbers.abs())
    integer = (fraction * 2.0**53).nan_to_num(0, 0, 0).to(torch.int64)
    trailing = torch.where(integer == 0, 1, integer & -integer).double().log2().to(torch.int32)
    bounds = (integer != 0) & numbers.isfinite()
    low = torch.where(bounds, exponent - 53 + trailing, SPECIAL).to(torch.int32)
    top = torch.where(bounds, exponent, -SPECIAL).to(torch.int32)
    return numbers.to(dtype), low, top


@functools.lru_cache(maxsize=256)
def _span(spec: BlockMacSpec | SparseMacSpec) -> int:
    """Return the bits of the exact dot products of a step."""
    (_, low_a, top_a), (_, low_b, top_b) = (_tables(fmt, torch.float64) for fmt in fold.elements_of(spec))
    return int(top_a.max() + top_b.max() - low_a.min() - low_b.min()) + (spec.k - 1).bit_length()


def is_single(spec: BlockMacSpec | SparseMacSpec) -> bool:
    """Return True if binary32 holds every dot product of a step, and all elements."""
    return _span(spec) <= 24


def is_exact(spec: BlockMacSpec | SparseMacSpec) -> bool:
    """Return True if binary64 holds every dot product of a step times the scales."""
    scales = spec.a.scale.precision + spec.b.scale.precision if isinstance(spec, BlockMacSpec) else 0
    return _span(spec) + scales <= 53
