"""Description of a dot product with structured sparsity."""

import re
from dataclasses import dataclass

from .dot import DotSpec

MAX_M, MAX_ACTIVATIONS = 32, 1024


@dataclass(frozen=True)
class SparseDotSpec(
    DotSpec, form="sparsedot{k} a*b[+c][=o]", summary="c + a[i0] * b0 + a[i1] * b1 + ... with N of M weights"
):
    """Dot product of k weights and the activations that belong to them, with N:M structured sparsity.

    Of each M consecutive weights N are stored, each with its index from 0 to M - 1. The unit takes the activations of
    k / N groups, M each, and selects one per weight.

    Parameters
    ----------
    k : int
        Number of products, 1 to 256, a multiple of N.
    a, b : Format
        Formats of activations and weights.
    o, c, order
        As for `DotSpec`.
    sparsity : str
        ``N:M`` with 1 <= N < M <= 32, as in the policies of `halfulp.golden.nn`.
    """

    sparsity: str = "2:4"

    def check(self) -> None:
        super().check()
        n, _ = self.group
        if self.k % n:
            raise ValueError(f"k is {self.k}; with sparsity {self.sparsity} it must be a multiple of {n}")
        if self.activations > MAX_ACTIVATIONS:
            raise ValueError(
                f"k = {self.k} with sparsity {self.sparsity} needs {self.activations} activations; "
                f"expected at most {MAX_ACTIVATIONS}"
            )

    @property
    def group(self) -> tuple[int, int]:
        """N and M: the weights that a group of activations is multiplied by, and the activations of a group."""
        if not isinstance(self.sparsity, str):
            raise TypeError(f"sparsity must be a text such as 2:4, not {type(self.sparsity).__name__}")
        match = re.fullmatch(r"([1-9][0-9]{0,2}):([1-9][0-9]{0,2})", self.sparsity)
        if match is None or not int(match[1]) < int(match[2]) <= MAX_M:
            raise ValueError(f"sparsity {self.sparsity!r} is not N:M with 1 <= N < M <= {MAX_M}, such as 2:4")
        return int(match[1]), int(match[2])

    @property
    def activations(self) -> int:
        """Number of activations."""
        n, m = self.group
        return self.k // n * m

    @property
    def index_bits(self) -> int:
        """Width of an index in bits."""
        return (self.group[1] - 1).bit_length()

    def places(self, index: int) -> range:
        """Return the numbers of the activations from which the product ``index`` selects one."""
        n, m = self.group
        return range(index // n * m, index // n * m + m)
