"""Descriptions of rounded sums of products."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from halfulp.hdl.formats.base import Format

from .formula import Formula, Sum, term
from .unit import UnitSpec


@dataclass(frozen=True)
class BinarySpec(UnitSpec):
    """Base class of functions of two numbers.

    Parameters
    ----------
    a, b : Format
        Formats of the operands.
    o : Format
        Format of the result; default: format of ``a``.
    """

    FLAGS = True

    a: Format
    b: Format
    o: Format = None  # type: ignore[assignment]  # None asks for the default; after construction it is a format


@dataclass(frozen=True)
class MulSpec(BinarySpec, form="mul a*b[=o]", summary="a * b"):
    """Product of two numbers; fields as in `BinarySpec`."""

    COMPOUND = ("a", "b", "o")
    TERMS = (term("a", "b"),)


@dataclass(frozen=True)
class AddSpec(BinarySpec, form="add a+b[=o]", summary="a + b, a - b"):
    """Sum or difference of two numbers; fields as in `BinarySpec`."""

    COMPOUND = ("a", "b", "o")
    CONTROLS = ("subtract",)
    TERMS = term("a"), term("b", negated_by="subtract")


@dataclass(frozen=True)
class FmaSpec(UnitSpec, form="fma a*b+c[=o]", summary="a * b + c, rounded once"):
    """Fused multiply-add.

    Parameters
    ----------
    a, b, c : Format
        Formats of the operands.
    o : Format
        Format of the result; default: format of ``c``.
    """

    COMPOUND = ("a", "b", "c", "o")
    FLAGS = True
    TERMS = term("a", "b"), term("c")

    a: Format
    b: Format
    c: Format
    o: Format = None  # type: ignore[assignment]  # None asks for the default; after construction it is a format

    @classmethod
    def defaults(cls, a: Format) -> dict[str, Callable[[], Any]]:
        return super().defaults(a) | {"c": lambda: a}

    @property
    def default_result(self) -> Format:
        """Format of the addend."""
        return self.c


@dataclass(frozen=True)
class LerpSpec(UnitSpec, form="lerp a,b,t[=o]", summary="a + t * (b - a), rounded once"):
    """Linear interpolation.

    Parameters
    ----------
    a, b : Format
        Formats of the results for ``t`` = 0 and ``t`` = 1.
    t : Format
        Format of the parameter.
    o : Format
        Format of the result; default: format of ``a``.
    """

    FLAGS = True
    OPERANDS = ("a", "b", "t")
    TERMS = term("a"), term("t", "d")

    a: Format
    b: Format
    t: Format
    o: Format = None  # type: ignore[assignment]  # None asks for the default; after construction it is a format

    @classmethod
    def defaults(cls, a: Format) -> dict[str, Callable[[], Any]]:
        return super().defaults(a) | {"t": lambda: a}

    @property
    def formula(self) -> Formula:
        difference = Sum("d", (term("b"), -term("a")), self.rounding)
        return Formula((difference, self.rounded(*self.TERMS)))
