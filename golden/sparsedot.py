"""Dot products with structured sparsity."""

from typing import Any

import torch
from torch import Tensor

from halfulp.hdl.formats import Format
from halfulp.hdl.specs import SparseDotSpec
from halfulp.hdl.specs.sparse import Sparse

from .check import check_devices, codes_of
from .dot import dot


def sparsedot(
    x: Tensor,
    y: Tensor,
    index: Tensor,
    start: Tensor | None = None,
    /,
    *,
    a: Format | str,
    b: Format | str,
    sparsity: str = "2:4",
    **parameters: Any,
) -> Any:
    """Compute dot products of weights and the activations at their indices along the last dimension.

    Parameters
    ----------
    x : Tensor
        Activations: codes in the format ``a``, of shape (..., k / N * M).
    y : Tensor
        Weights: codes in the format ``b``, of shape (..., k).
    index : Tensor
        Index of each weight in its group of M activations, of the shape of ``y``; M or more selects the last one.
    start : Tensor, optional
        Codes in the format ``c``, of shape (...): initial values of the sums; default: +0.
    sparsity : str
        ``N:M``, as for `SparseDotSpec`.
    a, b, **parameters
        As for `dot`.
    """
    check_tensors(x=x, y=y, index=index)
    k = y.shape[-1] if y.dim() else 0
    fields = {name: given for name, given in parameters.items() if name not in ("mode", "random")}
    spec = SparseDotSpec.of(k=k, a=a, b=b, sparsity=sparsity, **fields)
    return dot(selected(spec, x, y, index), y, start, a=a, b=b, **parameters)


def check_tensors(**given: object) -> None:
    """Check that operands are tensors on one device; TypeError or ValueError otherwise."""
    for name, operand in given.items():
        if not isinstance(operand, Tensor):
            raise TypeError(f"{name} must be a tensor, not {type(operand).__name__}")
    check_devices(**given)


def selected(spec: Sparse, x: Tensor, y: Tensor, index: Tensor) -> Tensor:
    """Return the activation of each weight along the last dimension; ValueError if shapes do not match."""
    shape = (*y.shape[:-1], spec.activations)
    if index.shape != y.shape or x.shape != shape:
        raise ValueError(
            f"x has shape {tuple(x.shape)} and index {tuple(index.shape)}; with this y they must have "
            f"{shape} and {tuple(y.shape)}"
        )
    return torch.take_along_dim(x, places_of(spec, codes_of("index", index, spec.index_bits)), -1)


def places_of(spec: Sparse, index: Tensor) -> Tensor:
    """Return the places of the activations of a step, from the indices of its weights along the last dimension."""
    n, m = spec.group
    groups = torch.arange(index.shape[-1], device=index.device) // n
    return groups * m + index.clamp(max=m - 1)
