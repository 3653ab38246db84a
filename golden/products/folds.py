"""Matrix products in steps of several products, of blocks and with structured sparsity, in a compiled kernel."""

import ctypes

import torch
from torch import Tensor

from halfulp.golden.kernels import MatrixProduct, fold, gathered
from halfulp.golden.kernels.engines import Compiled
from halfulp.hdl.specs import BlockMacSpec, MacSpec

from .kinds import KINDS
from .steps import is_single

TABLE_BITS = 16
"""Largest width of operands whose numbers are in tables, which the kernel needs."""


class Folds(Compiled):
    """Dot products of steps in binary32 or binary64, added in lanes of floats; scales must be finite."""

    name = "dot products in lanes of floats"

    def misfit(self, job: MatrixProduct) -> str | None:
        spec = job.spec
        if isinstance(spec, MacSpec):
            return "a step has one product"
        if not isinstance(spec, BlockMacSpec) and max(spec.a.width, spec.b.width) > TABLE_BITS:
            return f"operands have more than {TABLE_BITS} bits"
        return fold.lane_of(spec, job.words, is_single(spec)).refusal

    def kernel(self, job: MatrixProduct) -> tuple[str, str]:
        source = fold.lane_of(job.spec, job.words, is_single(job.spec)).source
        assert source is not None
        return fold.file_of(job.spec), source

    def seconds(self, job: MatrixProduct) -> float:
        return job.work * job.spec.k * fold.IN_TORCH

    def called(self, library: ctypes.CDLL, job: MatrixProduct) -> Tensor | None:
        left, right = KINDS[type(job.spec)].sides(job)
        if left is None or right is None:
            return None
        places = _places_of_batches(job.shape, gathered(job.elements), job.b[0])
        return fold.gemm(job.spec, left, right, places, job.start, job.shape, job.words, library)


def _places_of_batches(shape: tuple[int, ...], *operands: Tensor) -> tuple[Tensor, ...]:
    """Return the batch of each operand for each batch of the result, both in row-major order."""
    batches = [x.shape[:-2] for x in operands]
    counts = [torch.arange(own.numel()).reshape(own).expand(shape[:-2]).reshape(-1) for own in batches]
    return tuple(count.clone() for count in counts)
