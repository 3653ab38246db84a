"""Description of a quire."""

from dataclasses import dataclass
from typing import ClassVar

from halfulp.hdl.formats.base import Format
from halfulp.hdl.formats.rounding import Rounding

from .formula import term
from .ranges import ValueRange
from .register import CARRY_BITS
from .running_sum import EXACT_SUM, RunningSumSpec


@dataclass(frozen=True)
class QuireSpec(RunningSumSpec, form="quire a*b[=o]", summary="exact sum of products"):
    """Exact multiply-accumulate: q <- q + a * b or q - a * b; other fields as in `RunningSumSpec`.

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
