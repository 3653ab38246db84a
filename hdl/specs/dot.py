"""Description of a dot product."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from halfulp.hdl.formats.base import Format
from halfulp.hdl.formats.checks import check_int, check_one_of

from .quire import Quire
from .ranges import ValueRange
from .unit import UnitSpec

ORDERS = ("exact", "sequential")
MAX_K = 256


@dataclass(frozen=True)
class DotSpec(UnitSpec, form="dot{k} a*b[+c][=o]", summary="c + a0 * b0 + a1 * b1 + ..."):
    """Dot product of k pairs: c + a0 * b0 + a1 * b1 + ...

    Parameters
    ----------
    k : int
        Number of pairs, 1 to 256.
    a, b : Format
        Formats of the operands.
    o : Format
        Format of the result; default: format of the start value, or of ``a`` without one.
    c : Format, optional
        Format of the start value; None means that the sum starts from +0.
    order : str
        ``exact``: round the sum once; ``sequential``: round after every product, in ascending order.
    """

    k: int
    a: Format
    b: Format
    o: Format = None  # type: ignore[assignment]  # None asks for the default; after construction it is a format
    c: Format | None = None
    order: str = "exact"

    def check(self) -> None:
        check_int("k", self.k, "dot product", 1, MAX_K)
        check_one_of("order", self.order, ORDERS)

    @classmethod
    def defaults(cls, a: Format) -> dict[str, Callable[[], Any]]:
        return super().defaults(a) | {"k": lambda: 4}

    @property
    def default_result(self) -> Format:
        return self.c or self.a

    @property
    def results(self) -> tuple[ValueRange, str]:
        """Range of the sums before rounding."""
        return self.sums, f"sum of {self.k} products of {self.a} and {self.b}"

    @property
    def words(self) -> dict[str, int]:
        """Widths of the random words of an operation; one word per rounding in sequential order."""
        if self.order == "exact" or not self.rounding.bits:
            return super().words
        return {f"random{index}": self.rounding.bits for index in range(self.k)}

    @property
    def terms(self) -> ValueRange:
        """Range of the products."""
        return ValueRange.of(self.a) * ValueRange.of(self.b)

    @property
    def sums(self) -> ValueRange:
        """Range of the exact sums."""
        products = self.terms.times(self.k)
        return products if self.c is None else products + ValueRange.of(self.c)

    def sums_of(self, index: int) -> ValueRange:
        """Return the range of the sums that are rounded after product ``index`` in sequential order."""
        if index:
            return self.terms + ValueRange.of(self.o)
        return self.terms if self.c is None else self.terms + ValueRange.of(self.c)

    @property
    def quire(self) -> Quire:
        """Register that holds every sum exactly."""
        return Quire.of(self.terms, self.c, max((self.k + 1).bit_length(), 1))
