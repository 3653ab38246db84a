"""Description of one dot product."""

from dataclasses import dataclass

from halfulp.hdl.formats.base import Format, check_int
from halfulp.hdl.formats.rounding import EXACT, RN, Rounding

from .quire import Quire
from .ranges import ValueRange

ORDERS = ("exact", "sequential")
MAX_K = 256


@dataclass(frozen=True)
class DotSpec:
    """A dot product of k pairs: c + a0 * b0 + a1 * b1 + ...

    Parameters
    ----------
    k : int
        Pairs, 1 to 256.
    a, b, o : Format
        Formats of operands and result.
    c : Format, optional
        Format of the start value; None starts from +0.
    order : str
        ``exact``: the sum is rounded once; ``sequential``: after every product, in ascending order.
    rounding : Rounding

    Raises
    ------
    TypeError, ValueError
        If a parameter is of the wrong kind or out of range, or ``rounding`` is ``exact`` and ``o`` cannot hold every
        sum.
    """

    k: int
    a: Format
    b: Format
    o: Format
    c: Format | None = None
    order: str = "exact"
    rounding: Rounding = RN

    def __post_init__(self) -> None:
        check_int("k", self.k, "dot product")
        if not 1 <= self.k <= MAX_K:
            raise ValueError(f"a dot product of k = {self.k} pairs is out of range; it has 1 to {MAX_K}")
        if self.order not in ORDERS:
            raise ValueError(f"unknown order {self.order!r}; a dot product has one of {', '.join(ORDERS)}")
        if self.rounding == EXACT:
            self.sums.check_fits(self.o, f"sum of {self.k} products of {self.a} and {self.b}")

    @property
    def terms(self) -> ValueRange:
        """The products."""
        return ValueRange.of(self.a) * ValueRange.of(self.b)

    @property
    def sums(self) -> ValueRange:
        """The exact sums."""
        products = self.terms.times(self.k)
        return products if self.c is None else products + ValueRange.of(self.c)

    def sums_of(self, index: int) -> ValueRange:
        """What is rounded after the product of an index, in sequential order."""
        if index:
            return self.terms + ValueRange.of(self.o)
        return self.terms if self.c is None else self.terms + ValueRange.of(self.c)

    @property
    def quire(self) -> Quire:
        """A register wide enough for the exact sum."""
        return Quire.of(self.terms, self.c, max((self.k + 1).bit_length(), 1))
