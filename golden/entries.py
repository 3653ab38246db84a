"""Operands of matrix products: their rows, and what a multiply-accumulate of an array takes of them in one step."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from halfulp.hdl.specs import AccumulatorSpec, BlockMacSpec

from .quantize import BlockTensor

Operand = Tensor | BlockTensor
"""Matrices of codes, or of blocks."""


def elements_of(operand: Operand) -> Tensor:
    """Return the codes of numbers, or of the elements of blocks."""
    return operand.elements if isinstance(operand, BlockTensor) else operand


def rows_of(operand: Operand, rows: slice) -> Operand:
    """Return some rows of a matrix whose blocks lie along its columns."""
    if isinstance(operand, BlockTensor):
        return BlockTensor(operand.elements[rows], operand.scale[rows], operand.tensor)
    return operand[rows]


def matrices_of(operand: Operand, batch: Sequence[int]) -> list[Operand]:
    """Return the matrices of an operand that is expanded to a batch, in row-major order."""
    if isinstance(operand, BlockTensor):
        parts = (matrices_of(codes, batch) for codes in (operand.elements, operand.scale))
        return [BlockTensor(elements, scale, operand.tensor) for elements, scale in zip(*parts, strict=True)]
    return list(operand.expand(1, *batch, *operand.shape[-2:]).flatten(0, -3))


def entries(operand: Any, spec: AccumulatorSpec, name: str) -> Tensor:
    """Return the codes of the entries of a matrix.

    Parameters
    ----------
    operand : Tensor or BlockTensor
        Codes of ``a``, of shape (n, k), or of ``b``, of shape (k, m). Blocks along k have elements of these shapes, and
        scales of shape (n, k / length) or (k / length, m), rounded up; elements missing in the last block are +0.
    spec : MacSpec or BlockMacSpec
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
    if not isinstance(spec, BlockMacSpec):
        if not isinstance(operand, Tensor):
            raise TypeError(f"{name} must be a tensor of codes, not {type(operand).__name__}")
        return operand.to(torch.int64).unsqueeze(-1)
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
    found = torch.cat([steps, scale.repeat_interleave(block.length // spec.k, 1).unsqueeze(-1)], -1)
    return found if name == "a" else found.transpose(0, 1)
