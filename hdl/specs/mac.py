"""Descriptions of units with an accumulator."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from halfulp.hdl.formats.base import Format
from halfulp.hdl.formats.catalogue import parse
from halfulp.hdl.formats.checks import check_int
from halfulp.hdl.formats.compound import Compound
from halfulp.hdl.formats.rounding import EXACT, RN, Rounding

from .formula import Factor, Formula, Pick, Port, Role, Sum, Term, term
from .quire import CARRY_BITS, MAX_CARRY, QuireRegister
from .ranges import ValueRange
from .unit import UNEVALUATED, UnitSpec

MAX_INTERLEAVE = 64
"""Maximum number of sums in turn on one accumulator."""

EXACT_SUM = "exact"
"""Name of an exact accumulator: a quire."""


class AccumulatorSpec(UnitSpec):
    """Base class of accumulators, rounded or exact.

    With ``interleave`` n, the accumulator holds n sums: the k-th accepted operand belongs to sum k mod n. Sum i has the
    bits of a unit without ``interleave`` whose source starts at ``random.seeds(n, seed)[i]``.

    Parameters
    ----------
    acc : Format or "exact"
        Accumulator format, or ``exact`` for a `QuireRegister`, which is rounded to ``o`` when it is read.
    o : Format
        Format of results and start values; default: the accumulator's, or that of ``a`` if it is exact.
    carry : int
        Carry guard bits of the quire: fewer than 2^carry terms cannot overflow the register. After an overflow the sum
        stays infinite until it restarts: an infinity of its sign in a float, NaR in a posit, the end of the range in
        fixed point.
    interleave : int
        Number of sums in turn, 1 to 64.
    """

    acc: Any
    a: Format
    o: Format
    carry: int
    interleave: int

    @classmethod
    def read_part(cls, part: str, text: str) -> Any:
        """Parse one part of the formula; an accumulator may be ``exact``."""
        return EXACT_SUM if (part, text) == ("acc", EXACT_SUM) else parse(text)

    def writes(self, part: str, explicit: bool) -> bool:
        """Return True if the text includes an optional part; it includes the result of an exact accumulator."""
        return self.quire is not None if part == "o" else super().writes(part, explicit)

    def check(self) -> None:
        held = self.acc if isinstance(self.acc, Format) else self.o or self.a
        if held.decode(0) != 0:
            raise ValueError(f"an accumulator starts from code 0, which must be zero: in {held} it is {held.text(0)}")
        check_int("carry", self.carry, "quire", 1, MAX_CARRY)
        check_int("interleave", self.interleave, "accumulator", 1, MAX_INTERLEAVE)
        if isinstance(self.acc, Format):
            if self.o not in (None, self.acc):
                raise ValueError(
                    f"the result of an accumulator in {self.acc} must be {self.acc}, not {self.o}; "
                    "only the accumulator exact can have another result format"
                )
            if self.carry != CARRY_BITS:
                raise ValueError(f"an accumulator in {self.acc} has no carry guard; only the accumulator exact has one")
        elif self.acc != EXACT_SUM:
            raise TypeError(f"an accumulator must be a format or 'exact', not {self.acc!r}")
        elif self.flags:
            raise ValueError("the accumulator exact has no exception flags, because its steps do not round; omit flags")

    @property
    def default_result(self) -> Format:
        """Format of the accumulator, or of ``a`` if it is exact."""
        return self.acc if isinstance(self.acc, Format) else self.a

    @property
    def results(self) -> tuple[ValueRange, str]:
        """Range of the sums before rounding."""
        return self.sums, "exact sum" if self.quire else f"sum of {self.term_name} and {self.acc}"

    @property
    def terms(self) -> ValueRange:
        """Range of the numbers that a step adds."""
        return ValueRange.of(self.a)

    @property
    def term_name(self) -> str:
        """Description of a term in errors."""
        return str(self.a)

    @property
    def quire(self) -> QuireRegister | None:
        """Register of an exact sum; None for a rounded accumulator."""
        return None if isinstance(self.acc, Format) else QuireRegister.of(self.terms, self.o, self.carry)

    @property
    def sums(self) -> ValueRange:
        """Range of the numbers that are rounded to the result format."""
        quire = self.quire
        return self.terms + ValueRange.of(self.o) if quire is None else quire.sums

    @property
    def control_ports(self) -> tuple[Port, ...]:
        states = (Port(name, 1, Role.STATE) for name in ("load", "clear"))
        return (Port("c", self.o, Role.START), *super().control_ports, *states)

    @property
    def formula(self) -> Formula:
        """Sum of the terms and the start value ``c``."""
        return self.added(*self.TERMS)

    def added(self, *terms: Term, before: tuple[Sum, ...] = ()) -> Formula:
        """Return the formula of a step that adds terms to the start value ``c``, after other sums."""
        return Formula((*before, self.rounded(*terms, term("c"), register=self.quire)))

    @property
    def pairs_per_step(self) -> int:
        """Products that a step adds."""
        return 1

    def steps(self, k: int) -> int:
        """Return the steps of a sum of k products on an array."""
        return k

    def check_one_sum(self) -> None:
        """Raise ValueError if several sums are in turn, a port chooses the rounding, or steps have exception flags.

        Products of matrices have an order of their own, one rounding, and no flags.
        """
        if self.flags:
            raise ValueError("products of matrices and arrays have no exception flags; omit flags")
        if self.rounding.is_port:
            raise ValueError(
                f"the rounding {self.rounding} is not possible for products of matrices and arrays; choose one mode"
            )
        if self.interleave > 1:
            raise ValueError(
                f"interleave={self.interleave} is the order of sums in a unit; products of matrices and arrays have "
                f"their own order, so omit it"
            )

    @property
    def parameters(self) -> dict[str, Any]:
        unused = () if self.quire else ("o", "carry")
        return {name: value for name, value in super().parameters.items() if name not in unused}


@dataclass(frozen=True)
class SumSpec(AccumulatorSpec, form="accumulate a+acc[=o]", summary="accumulator <- accumulator + a"):
    """Accumulation without multiplier: acc <- acc + a; other fields as in `AccumulatorSpec`.

    Parameters
    ----------
    a : Format
        Format of the operand.
    """

    FLAGS = True
    TERMS = (term("a"),)

    a: Format
    acc: Format | Literal["exact"]
    o: Format = None  # type: ignore[assignment]  # None asks for the default; after construction it is a format
    carry: int = CARRY_BITS
    interleave: int = 1

    @classmethod
    def defaults(cls, a: Format) -> dict[str, Callable[[], Any]]:
        return super().defaults(a) | {"acc": a.default_sum}


@dataclass(frozen=True)
class MacSpec(AccumulatorSpec, form="mac a*b[=product]+acc[=o]", summary="accumulator <- accumulator + a * b"):
    """Multiply-accumulate: acc <- acc + a * b; other fields as in `AccumulatorSpec`.

    Parameters
    ----------
    a, b : Format
        Formats of the operands.
    product : Format, optional
        Format of the rounded product; None keeps the product exact, so that a step rounds once.
    product_rounding : Rounding
        Rounding of the product; default: ``rn``, or ``exact`` without ``product``. ``exact`` is possible if ``product``
        holds every product.

    Raises
    ------
    TypeError, ValueError
        As `UnitSpec`; also if ``product_rounding`` is ``exact`` and ``product`` cannot hold every product, or if an
        exact product has a rounding.

    Notes
    -----
    If product and sum both round stochastically, each has its own source of the kind ``random``. Examples of texts:
    ``mac e5m2*e5m2+e6m5.sr10@lfsr16``, ``mac e5m2*e5m2=e5m2.rz+e6m5.rn.sat``, ``mac posit8*posit8+exact=posit8.rn``;
    the name ``mac`` is optional.

    The product of two compound numbers takes a step for each of the `pairs` of their parts. Its steps add products of
    parts, so an infinite operand makes a NaN with a part that is zero.
    """

    COMPOUND = ("a", "b")
    FLAGS = True

    a: Format
    b: Format
    acc: Format | Literal["exact"]
    product: Format | None = None
    product_rounding: Rounding = None  # type: ignore[assignment]  # after construction it is a rounding
    o: Format = None  # type: ignore[assignment]  # None asks for the default; after construction it is a format
    carry: int = CARRY_BITS
    interleave: int = 1

    def __post_init__(self) -> None:
        if self.product_rounding is None:
            object.__setattr__(self, "product_rounding", EXACT if self.product is None else RN)
        super().__post_init__()

    def check(self) -> None:
        super().check()
        if self.product_rounding.is_port:
            raise ValueError(f"the rounding {self.product_rounding} is not possible for a product; choose one mode")
        if self.product is None:
            if self.product_rounding != EXACT:
                raise ValueError(
                    f"product rounding {self.product_rounding} does nothing without a product format; "
                    "add the format or omit the rounding"
                )
        elif self.product_rounding == EXACT:
            self._products.check_fits(self.product, f"product of {self.a} and {self.b}")

    @classmethod
    def defaults(cls, a: Format) -> dict[str, Callable[[], Any]]:
        return super().defaults(a) | {"acc": a.default_accumulator}

    @property
    def word_ports(self) -> tuple[Port, ...]:
        bits = self.product_rounding.bits
        return (*super().word_ports, *((Port("random_product", bits, Role.RANDOM),) if bits else ()))

    @property
    def factors(self) -> tuple[Factor, Factor]:
        """Factors of the product of a step."""
        self.check_one_step()
        return "a", "b"

    @property
    def formula(self) -> Formula:
        if self.product is None:
            return self.added(term(*self.factors))
        word = "random_product" if self.product_rounding.bits else None
        product = Sum("product", (term(*self.factors),), self.product_rounding, self.product, word)
        return self.added(term("product"), before=(product,))

    @property
    def _products(self) -> ValueRange:
        return ValueRange.of(self.a.part_format) * ValueRange.of(self.b.part_format)

    @property
    def terms(self) -> ValueRange:
        """Range of the products that a step adds, after their rounding."""
        return self._products if self.product is None else ValueRange.of(self.product)

    @property
    def term_name(self) -> str:
        return "a product"

    @property
    def entries(self) -> dict[str, dict[str, Format]]:
        """Ports ``a`` and ``b``; an entry is a number."""
        return {"a": {"a": self.a}, "b": {"b": self.b}}

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Parts of ``a`` and ``b`` that each step of a product multiplies, in ascending significance.

        Parts count from 0, the largest. Products with i + j beyond the last part are omitted: they are below the last
        place of the others (Henry, Tang and Heinecke, ARITH 2019). Among equal i + j the smaller part of ``a`` is
        first: for two parts low * high, high * low, high * high.
        """
        n, m = self.a.parts, self.b.parts
        held = [(i, j) for i in range(n) for j in range(m) if i + j < max(n, m)]
        return tuple(sorted(held, key=lambda pair: (-sum(pair), -pair[0])))

    @property
    def of_parts(self) -> "MacSpec":
        """Multiply-accumulate of one step of a product."""
        return MacSpec(**(vars(self) | {"a": self.a.part_format, "b": self.b.part_format}))

    def check_one_step(self) -> None:
        """Raise ValueError if a product takes several steps, for units that compute it in one."""
        if len(self.pairs) > 1:
            raise ValueError(
                f"a product of {self.a} and {self.b} takes {len(self.pairs)} steps; use the unit partmac, or "
                f"{self.of_parts.expression} on their parts"
            )


def ports_of(name: str, fmt: Format) -> dict[str, Format]:
    """Return the ports of an operand with their formats: one for each part of a compound format."""
    return {f"{name}{place}": fmt.part_format for place in range(fmt.parts)} if fmt.parts > 1 else {name: fmt}


@dataclass(frozen=True)
class PartMacSpec(MacSpec, form="partmac a*b[=product]+acc[=o]", summary="a * b of compound numbers, in steps"):
    """Multiply-accumulate of compound numbers, one product of parts per step; fields as in `MacSpec`."""

    FLAGS = False
    NO_FLAGS = UNEVALUATED

    def check(self) -> None:
        super().check()
        if len(self.pairs) == 1:
            raise ValueError(f"{self.a} and {self.b} have one part; partmac needs a compound format, such as bf16x2")

    @property
    def operand_ports(self) -> tuple[Port, ...]:
        parts = (
            Port(port, part, Role.OPERAND, name if fmt.parts > 1 else "")
            for name, fmt in self.operands.items()
            for port, part in ports_of(name, fmt).items()
        )
        return (*parts, Port("step", self.step_bits, Role.INDEX))

    @property
    def factors(self) -> tuple[Factor, Factor]:
        """Parts that the number of the step selects."""
        a, b = (
            Pick(name, "step", tuple(f"{name}{pair[side]}" for pair in self.pairs)) if fmt.parts > 1 else name
            for side, (name, fmt) in enumerate(self.operands.items())
        )
        return a, b

    @property
    def step_bits(self) -> int:
        """Width of the number of a step."""
        return (len(self.pairs) - 1).bit_length()

    @classmethod
    def takes(cls, fmt: Format, rounding: Rounding | None) -> bool:
        """Return True for the format of a part, which the short form takes."""
        return Compound.is_part(fmt)

    @classmethod
    def filled(cls, a: Format, **given: Any) -> Self:
        """Fill the short form, in which a float is the part of a sum of two."""
        return super().filled(Compound.pair(a), **given)


@dataclass(frozen=True)
class QuireSpec(AccumulatorSpec, form="quire a*b[=o]", summary="exact sum of products"):
    """Exact multiply-accumulate: q <- q + a * b or q - a * b; other fields as in `AccumulatorSpec`.

    Parameters
    ----------
    a, b : Format
        Formats of the operands.
    o : Format
        Format of results and start values; default: format of ``a``.
    """

    a: Format
    b: Format
    o: Format = None  # type: ignore[assignment]  # None asks for the default; after construction it is a format
    carry: int = CARRY_BITS
    interleave: int = 1

    NO_FLAGS = "its steps do not round"

    acc: ClassVar[str] = EXACT_SUM  # type: ignore[misc]  # a constant, not a field
    CONTROLS = ("subtract",)
    TERMS = (term("a", "b", negated_by="subtract"),)

    @classmethod
    def takes(cls, fmt: Format, rounding: Rounding | None) -> bool:
        """Return True if code 0 of the format is zero, because sums start from it."""
        return super().takes(fmt, rounding) and fmt.decode(0) == 0

    @property
    def terms(self) -> ValueRange:
        """Range of the products."""
        return ValueRange.of(self.a) * ValueRange.of(self.b)
