"""Operands of matrix products: their rows, and what a multiply-accumulate of an array takes of them in one step."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from halfulp.hdl.specs import BlockMacSpec, RunningSumSpec, SparseMacSpec

from .quantize import BlockTensor
from .sparse import SparseTensor, activations_by_step, check_weights, weights_by_step

Operand = Tensor | BlockTensor | SparseTensor
"""Matrices of codes, of blocks, or of weights with structured sparsity."""


def elements_of(operand: Operand) -> Tensor:
    """Return the codes of numbers, of the elements of blocks, or of stored weights."""
    return operand if isinstance(operand, Tensor) else operand[0]


def rows_of(operand: Operand, rows: slice) -> Operand:
    """Return some rows of a matrix whose blocks or groups lie along its columns."""
    if isinstance(operand, BlockTensor):
        return BlockTensor(operand.elements[rows], operand.scale[rows], operand.tensor)
    if isinstance(operand, SparseTensor):
        return SparseTensor(operand.values[rows], operand.indices[rows])
    return operand[rows]


def matrices_of(operand: Operand, batch: Sequence[int]) -> list[Operand]:
    """Return the matrices of an operand that is expanded to a batch, in row-major order."""
    if isinstance(operand, BlockTensor):
        parts = (matrices_of(codes, batch) for codes in (operand.elements, operand.scale))
        return [BlockTensor(elements, scale, operand.tensor) for elements, scale in zip(*parts, strict=True)]
    if isinstance(operand, SparseTensor):
        return [SparseTensor(*parts) for parts in zip(*(matrices_of(part, batch) for part in operand), strict=True)]
    return list(operand.expand(1, *batch, *operand.shape[-2:]).flatten(0, -3))


def entries(operand: Any, spec: RunningSumSpec, name: str) -> Tensor:
    """Return the codes of the entries of a matrix.

    Parameters
    ----------
    operand : Tensor, BlockTensor or SparseTensor
        Codes of ``a``, of shape (n, k), or of ``b``, of shape (k, m). Blocks along k have elements of these shapes, and
        scales of shape (n, k / length) or (k / length, m), rounded up; elements missing in the last block are +0.
        Weights with structured sparsity have values and indices of shape (k / M * N, m), and steps are padded with +0.
    spec : MacSpec, BlockMacSpec or SparseMacSpec
        Multiply-accumulate.
    name : str
        ``a`` or ``b``.

    Returns
    -------
    Tensor of int64
        Codes of shape (n, steps, fields) or (steps, m, fields), with the fields of ``spec.entries``.

    Raises
    ------
    TypeError, ValueError
        If the operand is not of the kind that ``spec`` takes, or the shapes of elements and scales do not match.
    """
    if isinstance(spec, SparseMacSpec) and name == "b":
        stored = operand.values.shape[0] if isinstance(operand, SparseTensor) else 0
        n, m = spec.group
        weights = weights_by_step(spec, check_weights(operand, spec, stored // n * m))
        return torch.cat(weights, -1).transpose(0, 1)
    if not isinstance(spec, BlockMacSpec):
        if not isinstance(operand, Tensor):
            raise TypeError(f"{name} must be a tensor of codes, not {type(operand).__name__}")
        codes = operand.to(torch.int64)
        return activations_by_step(spec, codes) if isinstance(spec, SparseMacSpec) else codes.unsqueeze(-1)
    if not isinstance(operand, BlockTensor):
        raise TypeError(f"{name} must be a BlockTensor, elements and scales of {spec.a}, not {type(operand).__name__}")
    if operand.tensor is not None:
        raise ValueError(
            f"{name} has a scale of the whole tensor, which arrays do not apply; multiply the result by it"
        )
    block = getattr(spec, name)
    # Blocks lie along the last dimension here.
    elements, scale = (
        codes.to(torch.int64) if name == "a" else codes.to(torch.int64).mT
        for codes in (operand.elements, operand.scale)
    )
    rows, k = elements.shape
    count = -(-k // block.length)
    if scale.shape != (rows, count):
        shape = tuple(scale.shape if name == "a" else scale.mT.shape)
        raise ValueError(
            f"{name} has {k} elements along k, which are {count} blocks of {block.length}, but scales of shape {shape}"
        )
    elements = torch.nn.functional.pad(elements, (0, count * block.length - k), value=block.element.encode(0))
    steps = elements.reshape(rows, count * (block.length // spec.k), spec.k)
    vectors = torch.cat([steps, scale.repeat_interleave(block.length // spec.k, 1).unsqueeze(-1)], -1)
    return vectors if name == "a" else vectors.transpose(0, 1)
