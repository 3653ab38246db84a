"""Description of a dot product with structured sparsity."""

from dataclasses import dataclass

from .dot import DotSpec
from .sparse import Sparse


@dataclass(frozen=True)
class SparseDotSpec(
    Sparse, DotSpec, form="sparsedot{k} a*b[+c][=o]", summary="c + a[i0] * b0 + a[i1] * b1 + ... with N of M weights"
):
    """Dot product of k weights and the activations that belong to them, with N:M structured sparsity; see `Sparse`.

    Other fields are those of `DotSpec`.

    Parameters
    ----------
    k : int
        Number of products, 1 to 256, a multiple of N.
    a, b : Format
        Formats of activations and weights.
    sparsity : str
        ``N:M`` with 1 <= N < M <= 32, as in the policies of `halfulp.golden.nn`.
    """

    sparsity: str = "2:4"

    def check(self) -> None:
        super().check()
        self.check_groups()
