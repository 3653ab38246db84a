"""Descriptions of units with an accumulator."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from halfulp.hdl.formats.base import Format
from halfulp.hdl.formats.catalogue import parse
from halfulp.hdl.formats.checks import check_int
from halfulp.hdl.formats.rounding import EXACT, Rounding

from .quire import CARRY_BITS, MAX_CARRY, Quire
from .ranges import ValueRange
from .unit import UnitSpec

EXACT_SUM = "exact"
"""Accumulator that rounds nothing: a quire."""


class AccumulatorSpec(UnitSpec):
    """Description of an accumulator, in a format or exact."""

    acc: Any
    a: Format
    o: Format
    carry: int

    @classmethod
    def read_part(cls, part: str, text: str) -> Any:
        """Value of a part of the formula; an accumulator may be exact."""
        return EXACT_SUM if (part, text) == ("acc", EXACT_SUM) else parse(text)

    def writes(self, part: str, explicit: bool) -> bool:
        """True if the text has an optional part: the result of an exact accumulator is one."""
        return self.quire is not None if part == "o" else super().writes(part, explicit)

    def check(self) -> None:
        held = self.acc if isinstance(self.acc, Format) else self.o or self.a
        if held.decode(0) != 0:
            raise ValueError(f"code 0 of {held} is {held.text(0)}; sums start from a code 0 that is zero")
        check_int("carry", self.carry, "quire", 1, MAX_CARRY)
        if isinstance(self.acc, Format):
            if self.o not in (None, self.acc):
                raise ValueError(
                    f"the result of an accumulator in {self.acc} is {self.acc}, not {self.o}; "
                    "only the accumulator exact is rounded to another format"
                )
            if self.carry != CARRY_BITS:
                raise ValueError(f"an accumulator in {self.acc} has no carry guard; only the accumulator exact has one")
        elif self.acc != EXACT_SUM:
            raise TypeError(f"an accumulator is a format or 'exact', not {self.acc!r}")

    @property
    def default_result(self) -> Format:
        """Format of the accumulator, or of ``a`` where the sum is exact."""
        return self.acc if isinstance(self.acc, Format) else self.a

    @property
    def results(self) -> tuple[ValueRange, str]:
        """Sums before they are rounded."""
        return self.sums, "exact sum" if self.quire else f"sum of {self.term_name} and {self.acc}"

    @property
    def terms(self) -> ValueRange:
        """Numbers that a step adds."""
        return ValueRange.of(self.a)

    @property
    def term_name(self) -> str:
        """One of the terms in words."""
        return str(self.a)

    @property
    def quire(self) -> Quire | None:
        """The register of an exact sum."""
        return None if isinstance(self.acc, Format) else Quire.of(self.terms, self.o, self.carry)

    @property
    def sums(self) -> ValueRange:
        """Numbers that are rounded to the result format."""
        quire = self.quire
        return self.terms + ValueRange.of(self.o) if quire is None else quire.sums

    @property
    def parameters(self) -> dict[str, Any]:
        unused = () if self.quire else ("o", "carry")
        return {name: value for name, value in super().parameters.items() if name not in unused}


@dataclass(frozen=True)
class SumSpec(AccumulatorSpec, form="accumulate a+acc[=o]", summary="accumulator <- accumulator + a"):
    """One step of an accumulator without a multiplier: acc <- acc + a.

    Parameters
    ----------
    a : Format
        Operand format.
    acc, o, carry
        As `MacSpec` has them.
    """

    a: Format
    acc: Format | Literal["exact"]
    o: Format = None  # type: ignore[assignment]  # None asks for the default; after construction it is a format
    carry: int = CARRY_BITS

    @classmethod
    def defaults(cls, a: Format) -> dict[str, Callable[[], Any]]:
        return super().defaults(a) | {"acc": a.default_sum}


@dataclass(frozen=True)
class MacSpec(AccumulatorSpec, form="mac a*b[=product]+acc[=o]", summary="accumulator <- accumulator + a * b"):
    """One multiply-accumulate step: acc <- acc + a * b.

    Parameters
    ----------
    a, b : Format
        Operand formats.
    acc : Format or "exact"
        Accumulator format; or ``exact``, a `Quire` that holds the sum of the terms and is rounded to ``o`` when read.
    product : Format, optional
        Format that the product is rounded to before it is added; None keeps it exact, so that a step rounds once.
    product_rounding : Rounding
        Rounding of the product; ``exact`` where ``product`` is None or holds every product.
    o : Format
        Result format, and that of start values; default: that of the accumulator, or of ``a`` where the sum is exact.
    carry : int
        Carry guard of the quire, in bits; see `QuireSpec`.

    Raises
    ------
    TypeError, ValueError
        As `UnitSpec` does, or if ``product_rounding`` is ``exact`` and ``product`` cannot hold every product, or the
        product is exact and has a rounding.

    Notes
    -----
    Where product and sum are both stochastic, each has a source of the kind ``random``. Texts are
    ``mac e5m2*e5m2+e6m5.sr10@lfsr16``, ``mac e5m2*e5m2=e5m2.rz+e6m5.rn.sat`` or ``mac posit8*posit8+exact=posit8.rn``,
    and the same without ``mac``.
    """

    a: Format
    b: Format
    acc: Format | Literal["exact"]
    product: Format | None = None
    product_rounding: Rounding = EXACT
    o: Format = None  # type: ignore[assignment]  # None asks for the default; after construction it is a format
    carry: int = CARRY_BITS

    def check(self) -> None:
        super().check()
        if self.product is None:
            if self.product_rounding != EXACT:
                raise ValueError(
                    f"the product is exact, so its rounding {self.product_rounding} does nothing; "
                    "name a product format or leave the rounding out"
                )
        elif self.product_rounding == EXACT:
            self._products.check_fits(self.product, f"product of {self.a} and {self.b}")

    @classmethod
    def defaults(cls, a: Format) -> dict[str, Callable[[], Any]]:
        return super().defaults(a) | {"acc": a.default_accumulator}

    @property
    def words(self) -> dict[str, int]:
        """Random words of a step, in the order in which sources are dealt to them, and their bits."""
        bits = self.product_rounding.bits
        return super().words | ({"random_product": bits} if bits else {})

    @property
    def _products(self) -> ValueRange:
        return ValueRange.of(self.a) * ValueRange.of(self.b)

    @property
    def terms(self) -> ValueRange:
        """Numbers that a step adds: products, rounded if they are."""
        return self._products if self.product is None else ValueRange.of(self.product)

    @property
    def term_name(self) -> str:
        return "a product"


@dataclass(frozen=True)
class QuireSpec(AccumulatorSpec, form="quire a*b[=o]", summary="exact sum of products"):
    """One step of an exact accumulator: q <- q + a * b or q - a * b.

    Parameters
    ----------
    a, b : Format
        Operand formats.
    o : Format
        Result format, and that of start values; default: that of ``a``.
    carry : int
        Carry guard, in bits: fewer than 2^carry terms cannot overflow the register. An overflow is infinite from then
        on, until a sum begins anew: inf of its sign in a float, NaR in a posit, the end of the range in fixed point.
    """

    a: Format
    b: Format
    o: Format = None  # type: ignore[assignment]  # None asks for the default; after construction it is a format
    carry: int = CARRY_BITS

    acc: ClassVar[str] = EXACT_SUM  # type: ignore[misc]  # no field: it is always exact

    @classmethod
    def takes(cls, fmt: Format, rounding: Rounding | None) -> bool:
        """True for formats whose code 0 is zero: the result, by default in the operands' format, starts from it."""
        return fmt.decode(0) == 0

    @property
    def terms(self) -> ValueRange:
        """Products."""
        return ValueRange.of(self.a) * ValueRange.of(self.b)
