"""Operands of matrix products of numbers: each step takes a column of the first matrix and a row of the second."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from halfulp.golden.check import codes_of
from halfulp.golden.codec import unpack
from halfulp.golden.convert import converted
from halfulp.golden.kernels import MatrixProduct, Patches, gathered
from halfulp.golden.mac import term_of
from halfulp.golden.quantize import BlockTensor
from halfulp.golden.raw import Raw
from halfulp.golden.sparse import SparseTensor
from halfulp.golden.values import encode
from halfulp.hdl.formats import RN, Format, Rounding, Saturation
from halfulp.hdl.specs import ConvertSpec, MacSpec

from .parts import by_parts
from .steps import Kind, Terms, zeros

OTHER_OPERANDS: dict[type, str] = {
    BlockTensor: "a product of blocks is mxfp4*mxfp4+fp32",
    SparseTensor: "a product with structured sparsity is sparsemac e4m3fn*e4m3fn+fp32",
}
"""Types of operands that products of numbers do not take, with the end of the error."""


class Numbers(Kind):
    """Products of numbers, of one part or of several; see `Kind`."""

    def checked(self, spec: MacSpec, a: Any, b: Any, rounding: Rounding, saturate: Saturation) -> tuple[Tensor, Tensor]:
        for name, given in (("a", a), ("b", b)):
            if not isinstance(given, Tensor) and (other := OTHER_OPERANDS.get(type(given))):
                raise TypeError(f"{name} is a {type(given).__name__}, but {spec} takes codes; {other}")
        a, b = encoded([a, b], [spec.a, spec.b], rounding, saturate)
        return codes_of("a", a, spec.a), codes_of("b", b, spec.b)

    def in_steps(self, spec: MacSpec, a: Any, b: Any) -> tuple[MacSpec, Any, Any]:
        if len(spec.pairs) > 1:
            spec, a, b = by_parts(spec, a, b)
        formats = {name: fmt.held_in for name, fmt in (("a", spec.a), ("b", spec.b)) if fmt.held_in is not None}
        if not formats:
            return spec, a, b
        return replace(spec, **formats), _held(a, spec.a), _held(b, spec.b)

    def terms(self, job: MatrixProduct) -> Terms:
        a, b = gathered(job.a), gathered(job.b)
        x, y = unpack(a.unsqueeze(-2), job.spec.a), unpack(b.mT.unsqueeze(-3), job.spec.b)

        def term(step: int, word: Tensor | None) -> Raw:
            return term_of(job.spec, x.at(step), y.at(step), word)

        return term

    def example(self, spec: MacSpec, n: int, k: int, m: int, device: str) -> tuple[Tensor, Tensor]:
        return zeros(n, k, device), zeros(k, m, device)


def _held(x: Any, fmt: Format) -> Any:
    """Return codes of a format that is given by functions as those of the float that holds its numbers."""
    if fmt.held_in is None or x.dtype != torch.int64:
        return x
    if isinstance(x, Patches):
        return replace(x, data=_held(x.data, fmt))
    return converted(x, ConvertSpec(a=fmt, o=fmt.held_in), None)


def encoded(operands: list[Any], formats: list[Format], rounding: Rounding, saturate: Saturation) -> list[Any]:
    """Encode operands that are real numbers; ValueError if a rounding or saturation has no effect."""
    if all(isinstance(given, Tensor) and given.dtype.is_floating_point for given in operands):
        if rounding.bits:
            raise ValueError(f"operand_rounding must not be stochastic, as {rounding} is; round operands with encode()")
        return [encode(x, fmt, rounding, saturate=saturate) for x, fmt in zip(operands, formats, strict=True)]
    if rounding != RN or saturate:
        name = "operand_saturate" if rounding == RN else "operand_rounding"
        raise ValueError(f"{name} has no effect on codes; give real numbers as a and b")
    return operands
