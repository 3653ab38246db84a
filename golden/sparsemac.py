"""Multiply-accumulate with structured sparsity."""

from dataclasses import replace
from functools import partial

from torch import Tensor

from halfulp.hdl.specs import SparseMacSpec

from . import register
from .check import codes_of
from .chosen import evaluate, mode_of
from .codec import unpack_operand
from .dot import invalid_sum
from .raw import Raw, multiply
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


def sum_of(spec: SparseMacSpec, x: Tensor, y: Tensor, mode: Tensor | None = None) -> Raw:
    """Return the exact sums of the products of selected activations and weights along the last dimension."""
    pairs = (("x", x, spec.a), ("y", y, spec.b))
    first, second = (unpack_operand(spec, codes_of(name, codes, fmt), fmt) for name, codes, fmt in pairs)
    products = multiply(first, second)
    zero_sign = partial(register.cancelled_sign, products.sign)
    mode = mode_of(mode, spec.rounding)
    zero = zero_sign(spec.rounding) if mode is None else evaluate(spec.rounding, mode, zero_sign)
    total = register.summed(products, spec.products, spec.k, zero)
    return replace(total, invalid=invalid_sum(total, products, None))


sparsemac, sparsemac_sequence = accumulator(SparseMacSpec, "x", "y", "index", "start")(_term)
