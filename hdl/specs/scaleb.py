"""Description of the product of a number and a power of two."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from halfulp.hdl.formats.base import Format, floor_log2
from halfulp.hdl.formats.fixed import Fixed
from halfulp.hdl.formats.rounding import EXACT

from .unit import UnitSpec

MAX_WIDTH = 32
"""Largest width of the exponent of the power of two."""


@dataclass(frozen=True)
class ScalebSpec(UnitSpec, form="scaleb a,b[=o]", summary="a * 2^b"):
    """Product of a number and a power of two (IEEE 754-2019, 5.3.3).

    Parameters
    ----------
    a : Format
        Format of the number.
    b : Fixed
        Format of the exponent of the power of two: an integer of up to 32 bits.
    o : Format
        Format of the result; default: ``a``.
    """

    FLAGS = True
    INTEGERS = ("b",)

    a: Format
    b: Fixed
    o: Format = None  # type: ignore[assignment]  # None asks for the default; after construction it is a format

    @classmethod
    def defaults(cls, a: Format) -> dict[str, Callable[[], Any]]:
        """Return the default of ``b``: an integer of at least 8 bits that moves each number beyond the range."""
        return {"b": lambda: Fixed(max(8, _limit(a, a, 0).bit_length() + 1), 0)}

    def check(self) -> None:
        if self.b.spacing != "uniform":
            raise TypeError(f"b of scaleb must be an integer, such as int8, not {self.b}")
        if self.b.frac_bits or self.b.width > MAX_WIDTH:
            raise ValueError(f"b of scaleb must be an integer of up to {MAX_WIDTH} bits, such as int8, not {self.b}")
        if self.rounding == EXACT:
            raise ValueError("rounding exact is not possible for scaleb; choose a rounding mode")

    @property
    def exponent_bits(self) -> int:
        """Bits of a signed exponent that are enough: with larger ones, results are those of its ends."""
        return _limit(self.a, self.o, self.unit_rounding.places).bit_length() + 1


def _limit(a: Format, o: Format, places: int) -> int:
    """Return an exponent from which on all results overflow, and from whose negative on all are tiny.

    Results in a format that wraps are then multiples of 2^width last places.
    """
    largest, smallest = (floor_log2(number) for number in (max(a.largest, -a.lowest), a.smallest))
    highest, lowest = floor_log2(max(o.largest, -o.lowest)), floor_log2(o.smallest)
    return max(highest + 2 - smallest, largest + places + 4 - lowest, 1)
