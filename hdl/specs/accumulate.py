"""Description of an accumulation without multiplier."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from halfulp.hdl.formats.base import Format

from .formula import term
from .register import CARRY_BITS
from .running_sum import RunningSumSpec


@dataclass(frozen=True)
class AccumulateSpec(RunningSumSpec, form="accumulate a+acc[=o]", summary="accumulator <- accumulator + a"):
    """Accumulation without multiplier: acc <- acc + a; other fields as in `RunningSumSpec`.

    Parameters
    ----------
    a : Format
        Format of the operand.
    """

    COMPOUND = ("a", "acc", "o")
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
