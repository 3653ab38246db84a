"""Matrix products, and the engines that may compute them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from halfulp.hdl.specs import RunningSumSpec

from .lane import Refused
from .launch import Matrices, Patches, Words


@dataclass(frozen=True, eq=False)
class MatrixProduct:
    """A matrix product whose operands are checked.

    Attributes
    ----------
    spec : MacSpec, BlockMacSpec or SparseMacSpec
        Description of a step.
    a, b : Tensor, Patches, BlockTensor or SparseTensor
        Matrices of codes in int64, of blocks, or of weights with structured sparsity. Matrices in float32 are real
        numbers, which are rounded to nearest, ties to even, to formats that `kernels.reads` accepts.
    start : Tensor, optional
        Start values of the sums in the shape of the result: codes, or real numbers in float32.
    shape : tuple of int
        Shape of the result.
    words : Words
        Random words.
    out : Patches, optional
        Elements to which the result is written.
    dtype : torch.dtype
        Type of the result: int64 for codes, or float32.
    parts : tuple of int
        Results in float32 may be rounded sums of parts, as `launch.Call` describes them.
    multiplier, adder : Operator, optional
        Operators of users in place of those of a step.
    """

    spec: Any
    a: Any
    b: Any
    start: Tensor | None
    shape: tuple[int, ...]
    words: Words
    out: Patches | None = None
    dtype: torch.dtype = torch.int64
    parts: tuple[int, int] = (0, 0)
    multiplier: Any = None
    adder: Any = None

    @property
    def elements(self) -> Tensor | Patches:
        """Elements of the first operand."""
        return self.a if isinstance(self.a, Tensor | Patches) else self.a[0]

    @property
    def device(self) -> str:
        """Type of the device."""
        return self.elements.device.type

    @property
    def steps(self) -> int:
        """Steps of a sum."""
        spec: RunningSumSpec = self.spec
        return spec.steps(self.elements.shape[-1])

    @property
    def work(self) -> int:
        """Steps of all sums."""
        return torch.Size(self.shape).numel() * self.steps

    @property
    def is_real(self) -> bool:
        """True if operands, start values or the result are real numbers."""
        given = (matrix.dtype for matrix in (self.a, self.b, self.start) if isinstance(matrix, Tensor | Patches))
        return torch.float32 in (self.dtype, *given)


class Engine(Protocol):
    """A way to compute matrix products."""

    @property
    def name(self) -> str:
        """Name in explanations."""

    def refuses(self, job: MatrixProduct) -> str | None:
        """Return the reason why it does not compute a job, which is that of its description, shapes and device."""

    def run(self, job: MatrixProduct) -> Matrices:
        """Compute a job; raise `Refused` if it is not exact for these operands."""


def first(engines: Iterable[Engine], job: MatrixProduct) -> Matrices | None:
    """Return the result of the first engine that does not refuse a job; None if all of them do."""
    for engine in engines:
        if engine.refuses(job) is None:
            try:
                return engine.run(job)
            except Refused:
                continue
    return None
