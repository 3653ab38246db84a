"""Multiply-accumulate with structured sparsity."""

from torch import Tensor

from halfulp.hdl.specs import SparseMacSpec

from .dotmac import sum_of
from .raw import Raw
from .sequence import accumulator
from .sparsedot import check_tensors, selected


def _term(spec: SparseMacSpec, x: Tensor, y: Tensor, index: Tensor, *, chosen: Tensor | None) -> Raw:
    """Compute one step of an accumulator: start plus the products of weights and the activations at their indices.

    Parameters
    ----------
    x : Tensor
        Activations of a step: codes in the format ``a``, of shape (..., k / N * M).
    y : Tensor
        Weights: codes in the format ``b``, of shape (..., k).
    index : Tensor
        Index of each weight in its group of M activations, of the shape of ``y``; M or more selects the last one.
    start : Tensor
        Codes of the accumulator, of shape (...).
    random : Tensor, optional
        Random words of shape (...).
    mode : Tensor, optional
        Codes of rounding modes, of shape (...); see `halfulp.golden`.
    **parameters
        Fields of `SparseMacSpec`.
    """
    check_tensors(x=x, y=y, index=index)
    if y.dim() == 0 or y.shape[-1] != spec.k:
        raise ValueError(f"y has shape {tuple(y.shape)}; its last dimension must be {spec.k}, the weights of a step")
    return sum_of(spec, selected(spec, x, y, index), y, chosen)


sparsemac, sparsemac_sequence = accumulator(SparseMacSpec, "x", "y", "index", "start")(_term)
