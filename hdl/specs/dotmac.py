"""Descriptions of accumulators that add several products in a step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from halfulp.hdl.formats.base import Format
from halfulp.hdl.formats.checks import check_int

from .dot import MAX_K
from .formula import Factor, Formula, Port, Sum, term, vector
from .ranges import ValueRange
from .register import CARRY_BITS
from .running_sum import RunningSumSpec


class DotSteps(RunningSumSpec):
    """Base class of accumulators that add k products in a step: acc <- acc + sum of the products, rounded once."""

    FLAGS = True

    a: Format
    b: Format
    k: int

    @property
    def factors(self) -> tuple[tuple[Factor, Factor], ...]:
        """Factors of each product."""
        raise NotImplementedError

    @property
    def factor_ports(self) -> tuple[Port, ...]:
        """Ports of the factors."""
        raise NotImplementedError

    @classmethod
    def defaults(cls, a: Format) -> dict[str, Callable[[], Any]]:
        return super().defaults(a) | {"acc": a.default_accumulator}

    @property
    def expression(self) -> str:
        """Text with the name of the unit; without it, arrays and commands read a `MacSpec`."""
        return self.text

    @property
    def operand_ports(self) -> tuple[Port, ...]:
        return self.factor_ports

    @property
    def formula(self) -> Formula:
        products = Sum("sum", tuple(term(*pair) for pair in self.factors), self.rounding)
        return self.added(term("sum"), before=(products,))

    @property
    def products(self) -> ValueRange:
        """Range of the products."""
        return ValueRange.of(self.a) * ValueRange.of(self.b)

    @property
    def terms(self) -> ValueRange:
        """Range of the sums of products that a step adds."""
        return self.products.times(self.k)

    @property
    def term_name(self) -> str:
        return f"{self.k} products"


@dataclass(frozen=True)
class DotMacSpec(DotSteps, form="dotmac{k} a*b+acc[=o]", summary="accumulator of dots of k pairs"):
    """Dot product of k pairs that is added to an accumulator: acc <- acc + a0 * b0 + a1 * b1 + ..., rounded once.

    Other fields are those of `RunningSumSpec`.

    Parameters
    ----------
    k : int
        Number of pairs that a step takes, 1 to 256.
    a, b : Format
        Formats of the operands.
    """

    k: int
    a: Format
    b: Format
    acc: Format | Literal["exact"]
    o: Format = None  # type: ignore[assignment]  # None asks for the default; after construction it is a format
    carry: int = CARRY_BITS
    interleave: int = 1

    def check(self) -> None:
        super().check()
        check_int("k", self.k, "dot product", 1, MAX_K)

    @classmethod
    def defaults(cls, a: Format) -> dict[str, Callable[[], Any]]:
        return super().defaults(a) | {"k": lambda: 4}

    @property
    def factor_ports(self) -> tuple[Port, ...]:
        return (*vector("a", self.k, self.a), *vector("b", self.k, self.b))

    @property
    def factors(self) -> tuple[tuple[Factor, Factor], ...]:
        return tuple((f"a{index}", f"b{index}") for index in range(self.k))

    @property
    def pairs_per_step(self) -> int:
        return self.k

    def steps(self, k: int) -> int:
        return -(-k // self.k)
