"""Descriptions of conversions to and from compound formats."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from halfulp.hdl.formats.base import Format
from halfulp.hdl.formats.compound import Compound
from halfulp.hdl.formats.floating import MIN_EXP, Float
from halfulp.hdl.formats.rounding import Rounding

from .formula import Formula, Port, Sum, term, vector
from .ranges import ValueRange
from .unit import UNEVALUATED, UnitSpec


@dataclass(frozen=True)
class SplitSpec(UnitSpec, form="split a>o", summary="a float to the parts of a sum"):
    """Conversion of a float to the parts of a compound format, which are rounded as `Compound` says.

    Parameters
    ----------
    a : Float
        Format of the operand.
    o : Compound
        Format of the result.
    """

    COMPOUND = ("o",)
    OWN_RESULTS = True
    TERMS = (term("a"),)
    PORT = False
    NO_FLAGS = UNEVALUATED

    a: Float
    o: Compound

    def check(self) -> None:
        if not self.a.is_floating_point:
            raise TypeError(f"a of split must be a float format, not {self.a}")
        if self.o.parts == 1:
            raise TypeError(f"o of split must be a compound format, not {self.o}")

    @classmethod
    def takes(cls, fmt: Format, rounding: Rounding | None) -> bool:
        return fmt.is_floating_point and cls.takes_rounding(rounding)

    @classmethod
    def defaults(cls, a: Format) -> dict[str, Callable[[], Any]]:
        """Return the default result: two parts with the exponent and a third of the precision, bf16x2 for fp32."""
        return {"o": lambda: Compound(Float(max(getattr(a, "exp", 8), MIN_EXP), max(a.precision // 3 - 1, 1)), 2)}


@dataclass(frozen=True)
class JoinSpec(UnitSpec, form="join a>o", summary="the parts of a sum to any format"):
    """Sum of the parts of a compound number, from the smallest part up, rounded after each addition.

    The sums of the parts of a number are exact in a float with the number's precision, so this order loses nothing; a
    sum of two parts is rounded once in any case.

    Parameters
    ----------
    a : Compound
        Format of the operand.
    o : Format
        Format of the result.
    """

    COMPOUND = ("a",)
    PORT = False
    NO_FLAGS = UNEVALUATED

    a: Compound
    o: Format

    def check(self) -> None:
        if self.a.parts == 1:
            raise TypeError(f"a of join must be a compound format, such as bf16x2, not {self.a}")

    @classmethod
    def takes(cls, fmt: Format, rounding: Rounding | None) -> bool:
        """Return True for the format of a part, which the short form takes."""
        return Compound.is_part(fmt) and cls.takes_rounding(rounding)

    @classmethod
    def filled(cls, a: Format, **given: Any) -> Self:
        """Fill the short form, in which a float is the part of a sum of two."""
        a = Compound.pair(a)
        return super().filled(a, **({"o": a.default_accumulator()} | given))

    @property
    def operand_ports(self) -> tuple[Port, ...]:
        return vector("a", self.a.parts, self.a.part)

    @property
    def word_ports(self) -> tuple[Port, ...]:
        """Ports of random words, one for each addition."""
        return self.words_of(self.a.parts - 1)

    @property
    def formula(self) -> Formula:
        *parts, total = (f"a{place}" for place in range(self.a.parts))
        steps: list[Sum] = []
        for place, part in enumerate(reversed(parts)):
            name = "o" if part == parts[0] else f"sum{place}"
            steps.append(self.rounded(term(part), term(total), name=name, word=f"random{place}"))
            total = name
        return Formula(tuple(steps))

    @property
    def results(self) -> tuple[ValueRange, str]:
        """Range of the sums before rounding."""
        first, *later = [self.sums_of(place) for place in range(self.a.parts - 1)]
        return later[-1] | first if later else first, f"sum of parts of {self.a}"

    def sums_of(self, place: int) -> ValueRange:
        """Return the range of the sums that addition ``place`` rounds."""
        part = ValueRange.of(self.a.part)
        return part + (ValueRange.of(self.o) if place else part)
