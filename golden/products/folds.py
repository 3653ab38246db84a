"""Matrix products in steps of several products, of blocks and with structured sparsity, in a compiled kernel."""

import ctypes

from torch import Tensor

from halfulp.golden import blockgemm, sparse
from halfulp.golden.kernels import Job, fold, gathered
from halfulp.golden.kernels.engines import Compiled
from halfulp.hdl.specs import BlockMacSpec, MacSpec


class Folds(Compiled):
    """Dot products of steps in binary32 or binary64, added in lanes of floats; scales must be finite."""

    name = "dot products in lanes of floats"

    def misfit(self, job: Job) -> str | None:
        spec = job.spec
        if isinstance(spec, MacSpec):
            return "a step has one product"
        if not isinstance(spec, BlockMacSpec) and max(spec.a.width, spec.b.width) > sparse.TABLE_BITS:
            return f"operands have more than {sparse.TABLE_BITS} bits"
        return fold.lane_of(spec, job.words, blockgemm.is_single(spec)).refusal

    def kernel(self, job: Job) -> tuple[str, str]:
        source = fold.lane_of(job.spec, job.words, blockgemm.is_single(job.spec)).source
        assert source is not None
        return fold.file_of(job.spec), source

    def seconds(self, job: Job) -> float:
        return job.work * job.spec.k * fold.IN_TORCH

    def called(self, library: ctypes.CDLL, job: Job) -> Tensor | None:
        left, right = (blockgemm if isinstance(job.spec, BlockMacSpec) else sparse).sides(job.spec, job.a, job.b)
        if left is None or right is None:
            return None
        places = blockgemm.places_of_batches(job.shape, gathered(job.elements), job.b[0])
        return fold.gemm(job.spec, left, right, places, job.start, job.shape, job.words, library)
