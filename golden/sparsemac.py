"""Multiply-accumulate with structured sparsity."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from halfulp.hdl.specs import SparseMacSpec

from . import register
from .check import codes_of
from .chosen import evaluate, mode_of
from .codec import unpack_operand
from .dot import invalid_sum
from .raw import Raw, multiply
from .sequence import step, steps
from .sparsedot import check_tensors, selected


def sparsemac(
    x: Tensor,
    y: Tensor,
    index: Tensor,
    start: Tensor,
    /,
    *,
    mode: Tensor | None = None,
    random: Tensor | None = None,
    **parameters: Any,
) -> Any:
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
    spec = SparseMacSpec.of(**parameters)
    check_tensors(x=x, y=y, index=index)
    return step(spec, _term, start=start, mode=mode, random=random, x=x, y=y, index=index, chosen=mode)


def sparsemac_sequence(
    x: Tensor,
    y: Tensor,
    index: Tensor,
    start: Tensor,
    load: Tensor,
    clear: Tensor,
    /,
    *,
    mode: Tensor | None = None,
    random: Tensor | None = None,
    **parameters: Any,
) -> Any:
    """Return the accumulator after each step of a sequence (see `sequence.steps`); parameters as for `sparsemac`.

    ``x``, ``y`` and ``index`` have the shapes (steps, k / N * M) and (steps, k); all other tensors have an entry for
    each step.
    """
    spec = SparseMacSpec.of(**parameters)
    check_tensors(x=x, y=y, index=index)
    _check_lengths(spec, y)
    x = selected(spec, x, y, index)
    # Sequences take operands of one dimension: the factors of a step are columns.
    columns = {f"{name}{at}": codes[:, at] for name, codes in (("x", x), ("y", y)) for at in range(spec.k)}

    def term(spec: SparseMacSpec, *, chosen: Tensor | None, **given: Tensor) -> Raw:
        first, second = (torch.stack([given[f"{name}{at}"] for at in range(spec.k)], -1) for name in "xy")
        return sum_of(spec, first, second, chosen)

    return steps(spec, term, load, clear, start=start, mode=mode, random=random, chosen=mode, **columns)


def _check_lengths(spec: SparseMacSpec, y: Tensor) -> None:
    if y.dim() == 0 or y.shape[-1] != spec.k:
        raise ValueError(f"y has shape {tuple(y.shape)}; its last dimension must be {spec.k}, the weights of a step")


def _term(spec: SparseMacSpec, x: Tensor, y: Tensor, index: Tensor, chosen: Tensor | None) -> Raw:
    _check_lengths(spec, y)
    return sum_of(spec, selected(spec, x, y, index), y, chosen)


def sum_of(spec: SparseMacSpec, x: Tensor, y: Tensor, mode: Tensor | None = None) -> Raw:
    """Return the exact sums of the products of selected activations and weights along the last dimension."""
    pairs = (("x", x, spec.a), ("y", y, spec.b))
    first, second = (unpack_operand(spec, codes_of(name, codes, fmt.width), fmt) for name, codes, fmt in pairs)
    products = multiply(first, second)
    zero_sign = partial(register.cancelled_sign, products.sign)
    mode = mode_of(mode, spec.rounding)
    zero = zero_sign(spec.rounding) if mode is None else evaluate(spec.rounding, mode, zero_sign)
    total = register.summed(products, spec.products, spec.k, zero)
    return replace(total, invalid=invalid_sum(total, products, None))
