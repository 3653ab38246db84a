"""Description of one multiply-accumulate, from which unit, golden model, bench and report are made."""

import re
from dataclasses import dataclass
from typing import Literal

from halfulp.hdl.formats.base import Format
from halfulp.hdl.formats.catalogue import parse
from halfulp.hdl.formats.rounding import EXACT, PATTERN, RN, Rounding
from halfulp.hdl.formats.source import Source, check_source, parse_source

from .quire import CARRY_BITS, Quire, check_carry
from .ranges import ValueRange

_TEXT = re.compile(
    rf"(?P<a>[^*]+)\*(?P<b>[^=+]+)(?:=(?P<product>[^+]+)\.(?P<product_rounding>{PATTERN}))?"
    rf"\+(?:exact(?P<carry>[0-9]*)=)?(?P<acc>.+?)\.(?P<rounding>{PATTERN})(?P<saturate>\.sat)?"
    r"(?:@(?P<random>.+))?"
)

EXACT_SUM = "exact"
"""Accumulator that rounds nothing: a quire."""


class _Sum:
    """What descriptions of sums have in common: an accumulator, in a format or exact."""

    acc: Format | Literal["exact"]
    a: Format
    o: Format
    carry: int
    rounding: Rounding

    def _set_result(self) -> None:
        check_carry(self.carry)
        if isinstance(self.acc, Format):
            if self.o not in (None, self.acc):
                raise ValueError(
                    f"the result of an accumulator in {self.acc} is {self.acc}, not {self.o}; "
                    "only the accumulator exact is rounded to another format"
                )
            if self.carry != CARRY_BITS:
                raise ValueError(f"an accumulator in {self.acc} has no carry guard; only the accumulator exact has one")
            object.__setattr__(self, "o", self.acc)
        elif self.acc != EXACT_SUM:
            raise TypeError(f"an accumulator is a format or 'exact', not {self.acc!r}")
        elif self.o is None:
            object.__setattr__(self, "o", self.a)

    @property
    def terms(self) -> ValueRange:
        """What is added in a step."""
        raise NotImplementedError

    @property
    def words(self) -> dict[str, int]:
        """Random words that a step takes, in the order in which sources are dealt to them, and their bits."""
        return {"random": self.rounding.bits} if self.rounding.bits else {}

    @property
    def quire(self) -> Quire | None:
        """The register of an exact sum."""
        return None if isinstance(self.acc, Format) else Quire.of(self.terms, self.o, self.carry)

    @property
    def sums(self) -> ValueRange:
        """What is rounded to the result format."""
        quire = self.quire
        return self.terms + ValueRange.of(self.o) if quire is None else quire.sums

    @property
    def acc_text(self) -> str:
        """The accumulator as a short text, such as ``e6m5``, ``exact=posit8`` or ``exact7=posit8``."""
        carry = "" if self.carry == CARRY_BITS else str(self.carry)
        return f"exact{carry}={self.o}" if self.quire else str(self.acc)


@dataclass(frozen=True)
class SumSpec(_Sum):
    """One step of an accumulator without a multiplier: acc <- acc + a.

    Parameters
    ----------
    a : Format
        Operand format.
    acc, rounding, o, carry
        As `MacSpec` has them.

    Raises
    ------
    ValueError
        If ``rounding`` is ``exact`` and the result format cannot hold every sum.
    """

    a: Format
    acc: Format | Literal["exact"]
    rounding: Rounding = RN
    o: Format = None  # type: ignore[assignment]  # None asks for the default; after construction it is a format
    carry: int = CARRY_BITS

    def __post_init__(self) -> None:
        self._set_result()
        if self.rounding == EXACT:
            self.sums.check_fits(self.o, f"sum of {self.a} and {self.acc}" if self.quire is None else "exact sum")

    @property
    def terms(self) -> ValueRange:
        """What is added in a step."""
        return ValueRange.of(self.a)


@dataclass(frozen=True)
class MacSpec(_Sum):
    """One multiply-accumulate step: acc <- acc + a * b.

    Parameters
    ----------
    a, b : Format
        Operand formats.
    acc : Format or "exact"
        Accumulator format; or ``exact``, a `Quire` that holds the sum of the terms and is rounded to ``o`` when read.
    rounding : Rounding
        Rounding to the accumulator format, or from the quire to ``o``.
    product : Format, optional
        Format that the product is rounded to before it is added; None keeps it exact, so that a step rounds once.
    product_rounding : Rounding
        Rounding of the product; ``exact`` where ``product`` is None or holds every product.
    saturate : bool
        Overflow gives the largest finite number, in product and accumulator.
    o : Format
        Result format: that of the accumulator, or the format of ``a`` unless told otherwise where the sum is exact.
        Start values are in this format.
    carry : int
        Carry guard of the quire, in bits.
    random : Lfsr or Plateau, optional
        Source of the words of stochastic rounding; without one they are given from outside. Where product and sum are
        both stochastic, each has a source of this kind.

    Raises
    ------
    TypeError, ValueError
        If a rounding is ``exact`` and its format cannot hold every result, the product is exact and has a rounding, or
        ``random`` is no source that can give the words.

    Notes
    -----
    ``str()`` gives a short name such as ``e5m2*e5m2+e6m5.sr10@lfsr16``, ``e5m2*e5m2=e5m2.rz+e6m5.rn.sat`` or
    ``posit8*posit8+exact=posit8.rn``, and `MacSpec.parse` reads it back.
    """

    a: Format
    b: Format
    acc: Format | Literal["exact"]
    rounding: Rounding = RN
    product: Format | None = None
    product_rounding: Rounding = EXACT
    saturate: bool = False
    o: Format = None  # type: ignore[assignment]  # None asks for the default; after construction it is a format
    carry: int = CARRY_BITS
    random: Source | None = None

    def __post_init__(self) -> None:
        self._set_result()
        if self.random is not None:
            check_source(self.random, self.words.values())
        product = ValueRange.of(self.a) * ValueRange.of(self.b)
        if self.product is None:
            if self.product_rounding != EXACT:
                raise ValueError(
                    f"the product is exact, so its rounding {self.product_rounding} does nothing; "
                    "name a product format or leave the rounding out"
                )
        elif self.product_rounding == EXACT:
            product.check_fits(self.product, f"product of {self.a} and {self.b}")
        if self.rounding == EXACT:
            what = "exact sum" if self.quire else f"sum of a product and {self.acc}"
            self.sums.check_fits(self.o, what)

    def __str__(self) -> str:
        product = "" if self.product is None else f"={self.product}.{self.product_rounding}"
        saturate = ".sat" if self.saturate else ""
        source = "" if self.random is None else f"@{self.random}"
        return f"{self.a}*{self.b}{product}+{self.acc_text}.{self.rounding}{saturate}{source}"

    @property
    def words(self) -> dict[str, int]:
        """Random words that a step takes, in the order in which sources are dealt to them, and their bits."""
        bits = self.product_rounding.bits
        return super().words | ({"random_product": bits} if bits else {})

    @property
    def terms(self) -> ValueRange:
        """What is added in a step: products, rounded if they are."""
        return ValueRange.of(self.a) * ValueRange.of(self.b) if self.product is None else ValueRange.of(self.product)

    @classmethod
    def parse(cls, text: "str | MacSpec") -> "MacSpec":
        """Description that ``str()`` wrote; a description is taken as it is."""
        if isinstance(text, cls):
            return text
        if not isinstance(text, str):
            raise TypeError(
                f"a multiply-accumulate is a MacSpec or a text such as 'e5m2*e5m2+e6m5.rn', not {type(text).__name__}"
            )
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no multiply-accumulate; one is written like e5m2*e5m2+e6m5.rn")
        exact = match["carry"] is not None
        return cls(
            a=parse(match["a"]),
            b=parse(match["b"]),
            acc="exact" if exact else parse(match["acc"]),
            rounding=Rounding.parse(match["rounding"]),
            product=None if match["product"] is None else parse(match["product"]),
            product_rounding=Rounding.parse(match["product_rounding"] or EXACT),
            saturate=match["saturate"] is not None,
            o=parse(match["acc"]),
            carry=int(match["carry"] or CARRY_BITS),
            random=None if match["random"] is None else parse_source(match["random"]),
        )
