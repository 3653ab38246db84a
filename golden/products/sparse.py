"""Operands of matrix products with structured sparsity: each step takes groups of weights, and their activations."""

from typing import Any

import torch
from torch import Tensor

from halfulp.golden.check import broadcast_shape, codes_of
from halfulp.golden.dotmac import sum_of
from halfulp.golden.kernels import MatrixProduct, fold
from halfulp.golden.raw import Raw
from halfulp.golden.sparse import SparseTensor, activations_by_step, check_weights, weights_by_step
from halfulp.golden.sparsedot import places_of
from halfulp.hdl.formats import Format, Rounding, Saturation
from halfulp.hdl.specs import SparseMacSpec

from .numbers import encoded
from .steps import Kind, Terms, numbers_of, zeros


class Sparse(Kind):
    """Products of a dense matrix with weights of which some are stored; see `Kind`."""

    def checked(self, spec: SparseMacSpec, a: Any, b: Any, rounding: Rounding, saturate: Saturation) -> tuple[Any, Any]:
        (a,) = encoded([a], [spec.a], rounding, saturate)
        a = codes_of("a", a, spec.a)
        return a, check_weights(b, spec, a.shape[-1] if a.dim() else 0)

    def terms(self, job: MatrixProduct) -> Terms:
        xs = activations_by_step(job.spec, job.a)
        ys, index = weights_by_step(job.spec, job.b)
        every_place = places_of(job.spec, index)

        def term(step: int, word: Tensor | None) -> Raw:
            x, y, places = (part[..., step, :] for part in (xs, ys, every_place))
            batch = broadcast_shape(x.shape[:-2], y.shape[:-2])
            shape = (*batch, x.shape[-2], *y.shape[-2:])
            chosen = x.unsqueeze(-2).expand(*shape[:-1], -1).gather(-1, places.unsqueeze(-3).expand(shape))
            return sum_of(job.spec, chosen, y.unsqueeze(-3).expand(shape))

        return term

    def sides(self, job: MatrixProduct) -> tuple[fold.Side, fold.Side]:
        spec = job.spec
        x = activations_by_step(spec, job.a.reshape(-1, *job.a.shape[-2:]))
        y, index = weights_by_step(spec, SparseTensor(*(part.reshape(-1, *part.shape[-2:]) for part in job.b)))
        return _side(spec, spec.a, x), _side(spec, spec.b, y, places_of(spec, index))

    def example(self, spec: SparseMacSpec, n: int, k: int, m: int, device: str) -> tuple[Any, Any]:
        stored = zeros(-(-k // spec.group[1]) * spec.group[0], m, device)
        return zeros(n, k, device), SparseTensor(stored, stored)


def _side(spec: SparseMacSpec, fmt: Format, codes: Tensor, places: Tensor | None = None) -> fold.Side:
    numbers, low, top = numbers_of(spec, fmt, codes)
    return fold.Side(numbers, torch.ones(low.shape, dtype=torch.float64), low, top, places)
