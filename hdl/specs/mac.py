"""Description of a multiply-accumulate."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from halfulp.hdl.formats.base import Format
from halfulp.hdl.formats.rounding import EXACT, RN, Rounding

from .formula import Factor, Formula, Port, Role, Sum, term
from .ranges import ValueRange
from .register import CARRY_BITS
from .running_sum import RunningSumSpec


@dataclass(frozen=True)
class MacSpec(RunningSumSpec, form="mac a*b[=product]+acc[=o]", summary="accumulator <- accumulator + a * b"):
    """Multiply-accumulate: acc <- acc + a * b; other fields as in `RunningSumSpec`.

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

    COMPOUND = ("a", "b", "acc", "o")
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
