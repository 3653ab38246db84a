"""Description of a dot product."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

from halfulp.hdl.formats.base import Format, floor_log2
from halfulp.hdl.formats.checks import check_int

from .formula import Factor, Formula, Port, Role, Sum, term, vector
from .ranges import ValueRange
from .register import QuireRegister
from .unit import UnitSpec

EXACT, SEQUENTIAL = "exact", "sequential"
MAX_K = 256
MAX_FRACTION = 64


@dataclass(frozen=True)
class Alignment:
    """Order ``alignedF.trunc`` or ``alignedF.floor``: terms are truncated on the scale of the largest exponent.

    Parameters
    ----------
    fraction : int
        Number of bits below the largest exponent of the terms, F.
    floor : bool
        True: each term is rounded down to that place; false: toward zero.
    integer : int
        Integer bits of a term; products of two significands are less than 4.
    """

    fraction: int
    floor: bool
    integer: int = 2

    @classmethod
    def parse(cls, order: str) -> "Self | None":
        """Parse an order; None if it is none of this kind."""
        match = re.fullmatch(r"aligned([1-9][0-9]{0,5})\.(trunc|floor)", order)
        return None if match is None else cls(int(match[1]), match[2] == "floor")

    def quire(self, terms: int) -> QuireRegister:
        """Return the register of the sum of a number of terms, in which the largest exponent is 0."""
        return QuireRegister(-self.fraction, self.integer, terms.bit_length())


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
        ``exact``: round the sum once; ``sequential``: round after every product, in ascending order. ``alignedF.trunc``
        and ``alignedF.floor``, with F from 1 to 64, for floats: shift each term to the largest exponent among the terms
        that are not zero, remove its bits below F places of that exponent, and round the sum of the rest once. The
        exponent of a product is the sum of those of its operands, and that of a subnormal operand is the smallest
        normal exponent. ``trunc`` removes bits of the magnitude, ``floor`` those of the two's complement. A sum of zero
        is +0.
    flags : bool or str
        Exception flags, as in `UnitSpec`. They are those of the rounding of the sum; order ``sequential`` combines
        those of all its roundings. Bits that alignment removes raise no flag.
    """

    FLAGS = True

    k: int
    a: Format
    b: Format
    o: Format = None  # type: ignore[assignment]  # None asks for the default; after construction it is a format
    c: Format | None = None
    order: str = EXACT

    def check(self) -> None:
        check_int("k", self.k, "dot product", 1, MAX_K)
        if self.order in (EXACT, SEQUENTIAL):
            return
        if not isinstance(self.order, str):
            raise TypeError(f"order must be a string, not {type(self.order).__name__}")
        if self.alignment is None:
            orders = f"{EXACT}, {SEQUENTIAL}, alignedF.trunc or alignedF.floor"
            raise ValueError(
                f"unknown order {self.order!r}; expected {orders}, with a number F, such as aligned25.trunc"
            )
        check_int("F", self.alignment.fraction, f"order {self.order}", 1, MAX_FRACTION)
        for fmt in (self.a, self.b, self.c, self.o):
            if fmt is not None and not fmt.is_floating_point:
                raise ValueError(f"order {self.order} is for floats, and {fmt} is none; exact is for all formats")

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
    def word_ports(self) -> tuple[Port, ...]:
        """Ports of random words; one for each rounding in sequential order."""
        return self.words_of(self.k) if self.order == SEQUENTIAL else super().word_ports

    @property
    def factor_ports(self) -> tuple[Port, ...]:
        """Ports of the factors."""
        return (*vector("a", self.k, self.a), *vector("b", self.k, self.b))

    @property
    def operand_ports(self) -> tuple[Port, ...]:
        return (*self.factor_ports, *(() if self.c is None else (Port("c", self.c, Role.START),)))

    @property
    def factors(self) -> tuple[tuple[Factor, Factor], ...]:
        """Factors of each product."""
        return tuple((f"a{index}", f"b{index}") for index in range(self.k))

    @property
    def formula(self) -> Formula:
        start = () if self.c is None else (term("c"),)
        products = [term(*pair) for pair in self.factors]
        if self.order != SEQUENTIAL:
            return Formula((self.rounded(*products, *start, from_zero=not start, alignment=self.alignment),))
        steps: list[Sum] = []
        for index, product in enumerate(products):
            name = "o" if index == self.k - 1 else f"sum{index}"
            steps.append(self.rounded(product, *start, name=name, word=f"random{index}", from_zero=not start))
            start = (term(name),)
        return Formula(tuple(steps))

    @cached_property
    def alignment(self) -> Alignment | None:
        """Truncation of the terms; None in other orders."""
        return Alignment.parse(self.order)

    @property
    def aligned_sums(self) -> QuireRegister:
        """Register of a sum of aligned terms, in which the largest exponent is 0."""
        assert self.alignment is not None
        return self.alignment.quire(self.k + len(self._start))

    @property
    def terms(self) -> ValueRange:
        """Range of the products."""
        return ValueRange.of(self.a) * ValueRange.of(self.b)

    @property
    def sums(self) -> ValueRange:
        """Range of the sums."""
        products = self.terms.times(self.k)
        sums = products if self.c is None else products + ValueRange.of(self.c)
        if self.alignment is None:
            return sums
        precision = sums.precision
        if self.alignment.floor:
            # Removing bits downwards increases a negative term by less than the last place of the largest one.
            top = max(floor_log2(number.magnitude) for number in (self.terms, *self._start))
            grown = (self.k + len(self._start)) * Fraction(2) ** (top - self.alignment.fraction)
            sums = replace(sums, lowest=sums.lowest - grown)
            precision = floor_log2(sums.magnitude) - sums.quantum + 1
        return replace(sums, precision=min(precision, self.aligned_sums.width - 1))

    @property
    def _start(self) -> list[ValueRange]:
        return [] if self.c is None else [ValueRange.of(self.c)]

    def sums_of(self, index: int) -> ValueRange:
        """Return the range of the sums that are rounded after product ``index`` in sequential order."""
        if index:
            return self.terms + ValueRange.of(self.o)
        return self.terms if self.c is None else self.terms + ValueRange.of(self.c)

    @property
    def quire(self) -> QuireRegister:
        """Register that holds every sum exactly."""
        return QuireRegister.of(self.terms, self.c, max((self.k + 1).bit_length(), 1))
