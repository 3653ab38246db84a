"""Description of a conversion between formats."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from halfulp.hdl.formats.base import Format
from halfulp.hdl.formats.catalogue import parse

from .formula import term
from .unit import UnitSpec


@dataclass(frozen=True)
class ConvertSpec(UnitSpec, form="convert a>o", summary="any format to any format"):
    """Conversion of a number to another format.

    Parameters
    ----------
    a, o : Format
        Formats of operand and result.
    """

    COMPOUND = ("a", "o")
    SCALES = True
    FLAGS = True
    TERMS = (term("a"),)

    a: Format
    o: Format

    @classmethod
    def defaults(cls, a: Format) -> dict[str, Callable[[], Any]]:
        return {"o": lambda: parse("e4m3fn")}
