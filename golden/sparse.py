"""Matrices of weights with N:M structured sparsity."""

from typing import NamedTuple

import torch
from torch import Tensor

from halfulp.hdl.formats import Format, parse
from halfulp.hdl.specs import SparseMacSpec
from halfulp.hdl.specs.sparse import group_of

from .check import check_devices, codes_of
from .codec import unpack
from .quantize import in_blocks


class SparseTensor(NamedTuple):
    """Weights of which N of each M consecutive ones along a dimension are stored; the others are zero.

    Attributes
    ----------
    values : Tensor
        Codes of the stored weights: N for each group of M weights.
    indices : Tensor
        Place of each stored weight in its group, 0 to M - 1, in the shape of ``values``.
    """

    values: Tensor
    indices: Tensor

    @property
    def mT(self) -> "SparseTensor":
        """Tensor with exchanged last dimensions."""
        return SparseTensor(self.values.mT, self.indices.mT)


def compress(x: Tensor, fmt: Format | str, sparsity: str = "2:4", *, dim: int = -1) -> SparseTensor:
    """Store the weights of a tensor with N:M structured sparsity that are not zero.

    Parameters
    ----------
    x : Tensor
        Codes in the format ``fmt``. The last group of a line is padded with zeros.
    fmt : Format or str
    sparsity : str
        ``N:M`` with 1 <= N < M <= 32: at most N weights of each group of M are not zero.
    dim : int
        Dimension along which groups run; -2 for the second operand of a matrix product.

    Returns
    -------
    SparseTensor
        N weights of each group in ascending order of their places; zeros fill groups with fewer.

    Raises
    ------
    TypeError, ValueError
        If ``x`` holds values that are no codes, ``sparsity`` is invalid, or a group has more than N weights that are
        not zero.
    """
    fmt = parse(fmt)
    (n, m), codes = group_of(sparsity), codes_of("x", x, fmt)
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise TypeError(f"dim must be an int, not {type(dim).__name__}")
    if not -codes.dim() <= dim < codes.dim():
        raise ValueError(f"dim is {dim}, but x has {codes.dim()} dimensions")
    groups = in_blocks(codes, dim, m, fmt.encode(0))
    is_zero = unpack(groups, fmt).zero
    if bool(((~is_zero).sum(-1) > n).any()):
        most = int((~is_zero).sum(-1).max())
        raise ValueError(
            f"a group of {m} weights along dimension {dim} has {most} that are not zero, and sparsity {sparsity} "
            f"stores {n}; prune the weights first, for example with halfulp.golden.nn.Sparsity({n}, {m}).mask"
        )
    index = is_zero.to(torch.int8).sort(stable=True).indices[..., :n].sort().values
    values = groups.gather(-1, index)
    return SparseTensor(*(part.flatten(-2).movedim(-1, dim) for part in (values, index)))


def check_weights(x: object, spec: SparseMacSpec, k: int) -> SparseTensor:
    """Return the second operand of a product with codes in int64.

    Parameters
    ----------
    x : SparseTensor
        Groups along the rows.
    spec : SparseMacSpec
    k : int
        Products of a sum, zeros included.

    Raises
    ------
    TypeError, ValueError
        If ``x`` is no `SparseTensor`, holds values that are no codes, or has a wrong shape.
    """
    if not isinstance(x, SparseTensor):
        raise TypeError(f"b must be a SparseTensor, as compress() returns, for {spec}, not {type(x).__name__}")
    values, index = (
        codes_of("values of b", x.values, spec.b),
        codes_of("indices of b", x.indices, spec.index_bits),
    )
    check_devices(values=values, index=index)
    n, m = spec.group
    stored = -(-k // m) * n
    if values.dim() < 2 or values.shape != index.shape or values.shape[-2] != stored:
        raise ValueError(
            f"b has values of shape {tuple(values.shape)} and indices of shape {tuple(index.shape)}; {k} products of a "
            f"sum with sparsity {spec.sparsity} need {stored} rows in both"
        )
    return SparseTensor(values, index)


def activations_by_step(spec: SparseMacSpec, a: Tensor) -> Tensor:
    """Return codes of shape (..., row, step, activation) of a matrix of shape (..., row, k), padded with zeros."""
    return in_blocks(a, -1, spec.activations, spec.a.encode(0))


def weights_by_step(spec: SparseMacSpec, b: SparseTensor) -> SparseTensor:
    """Return weights of shape (..., column, step, weight) of a matrix with groups along rows, padded with zeros."""
    pads = spec.b.encode(0), 0
    return SparseTensor(*(in_blocks(part, -2, spec.k, pad) for part, pad in zip(b, pads, strict=True)))


__all__ = ["SparseTensor", "compress"]
