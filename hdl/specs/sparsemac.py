"""Description of a multiply-accumulate with structured sparsity."""

from dataclasses import dataclass
from typing import Literal

from halfulp.hdl.formats.base import Format
from halfulp.hdl.formats.checks import check_int
from halfulp.hdl.formats.fixed import Fixed

from .dot import MAX_K
from .dotmac import DotSteps
from .register import CARRY_BITS
from .sparse import Sparse


@dataclass(frozen=True)
class SparseMacSpec(Sparse, DotSteps, form="sparsemac a*b+acc[=o]", summary="accumulator of dots with N of M weights"):
    """Multiply-accumulate with N:M structured sparsity: acc <- acc + a[i0] * b0 + a[i1] * b1 + ...; see `Sparse`.

    Other fields are those of `RunningSumSpec`.

    Parameters
    ----------
    a, b : Format
        Formats of activations and weights.
    sparsity : str
        ``N:M`` with 1 <= N < M <= 32, as in the policies of `halfulp.golden.nn`.
    step : int
        Number of products that a step adds, up to 256, a multiple of N. Default: 0, the N products of one group.
    """

    a: Format
    b: Format
    acc: Format | Literal["exact"]
    o: Format = None  # type: ignore[assignment]  # None asks for the default; after construction it is a format
    carry: int = CARRY_BITS
    interleave: int = 1
    sparsity: str = "2:4"
    step: int = 0

    def check(self) -> None:
        super().check()
        check_int("step", self.step, "sparse multiply-accumulate", 0, MAX_K)
        self.check_groups("step")

    @property
    def k(self) -> int:  # type: ignore[override]  # a field of other sparse units
        """Number of products that a step adds."""
        return self.step or self.group[0]

    @property
    def entries(self) -> dict[str, dict[str, Format]]:
        """Ports of the activations of a step, and of its weights and their indices."""
        index = Fixed(self.index_bits, 0, signed=False)
        weights = {f"b{place}": self.b for place in range(self.k)}
        indices = {f"i{place}": index for place in range(self.k)}
        return {"a": {f"a{place}": self.a for place in range(self.activations)}, "b": weights | indices}

    @property
    def pairs_per_step(self) -> int:
        """Activations of a step: the products with all weights, zeros included."""
        return self.activations

    def steps(self, k: int) -> int:
        """Return the steps of a sum of k products, zeros included, on an array."""
        return -(-k // self.activations)
