"""N:M structured sparsity of an operand: N weights of each M consecutive ones are stored, each with its index."""

import re

from halfulp.hdl.formats.base import Format

from .formula import Factor, Pick, Port, Role, vector

MAX_M, MAX_ACTIVATIONS = 32, 1024


class Sparse:
    """Base class of the descriptions of units that multiply weights and the activations at their indices.

    Of each M consecutive weights N are stored, each with its index from 0 to M - 1. The unit takes the activations of
    k / N groups, M each, and selects one per weight.
    """

    k: int
    a: Format
    b: Format
    sparsity: str

    def check_groups(self, name: str = "k") -> None:
        """Raise TypeError or ValueError if the sparsity or the number of products, the field ``name``, is invalid."""
        n, _ = self.group
        if self.k % n:
            raise ValueError(f"{name} is {self.k}; with sparsity {self.sparsity} it must be a multiple of {n}")
        if self.activations > MAX_ACTIVATIONS:
            raise ValueError(
                f"{name} = {self.k} with sparsity {self.sparsity} needs {self.activations} activations; "
                f"expected at most {MAX_ACTIVATIONS}"
            )

    @property
    def group(self) -> tuple[int, int]:
        """N and M: the weights that a group of activations is multiplied by, and the activations of a group."""
        return group_of(self.sparsity)

    @property
    def activations(self) -> int:
        """Number of activations."""
        n, m = self.group
        return self.k // n * m

    @property
    def index_bits(self) -> int:
        """Width of an index in bits."""
        return (self.group[1] - 1).bit_length()

    @property
    def factors(self) -> tuple[tuple[Factor, Factor], ...]:
        """Selected activation and weight of each product."""
        return tuple((pick, f"b{index}") for index, pick in enumerate(self.picks))

    @property
    def picks(self) -> list[Pick]:
        """Selected activations."""
        choices = [tuple(f"a{place}" for place in self.places(index)) for index in range(self.k)]
        return [Pick(f"a{index}", f"i{index}", names) for index, names in enumerate(choices)]

    @property
    def factor_ports(self) -> tuple[Port, ...]:
        """Ports of activations, weights and indices."""
        indices = (Port(pick.index, self.index_bits, Role.INDEX, "i", pick) for pick in self.picks)
        return (*vector("a", self.activations, self.a), *vector("b", self.k, self.b), *indices)

    def places(self, index: int) -> range:
        """Return the numbers of the activations from which the product ``index`` selects one."""
        n, m = self.group
        return range(index // n * m, index // n * m + m)


def group_of(sparsity: str) -> tuple[int, int]:
    """Parse ``N:M``; TypeError or ValueError if it is invalid."""
    if not isinstance(sparsity, str):
        raise TypeError(f"sparsity must be a text such as 2:4, not {type(sparsity).__name__}")
    match = re.fullmatch(r"([1-9][0-9]{0,2}):([1-9][0-9]{0,2})", sparsity)
    if match is None or not int(match[1]) < int(match[2]) <= MAX_M:
        raise ValueError(f"sparsity {sparsity!r} is not N:M with 1 <= N < M <= {MAX_M}, such as 2:4")
    return int(match[1]), int(match[2])
