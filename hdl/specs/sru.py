"""Description of a stochastic rounder."""

from dataclasses import dataclass, field, replace
from typing import Any, Self

from halfulp.hdl.formats.base import Format
from halfulp.hdl.formats.checks import check_bool, check_int, check_one_of
from halfulp.hdl.formats.fixed import Fixed
from halfulp.hdl.formats.rounding import Rounding, stochastic
from halfulp.hdl.formats.source import SHARINGS

from .formula import Call, Formula, Function, Port, term, vector
from .ranges import ValueRange
from .unit import UnitSpec

MAX_LANES = 4096


@dataclass(frozen=True)
class SruSpec(UnitSpec, form="sru a>o", summary="stochastic rounding of fixed point"):
    """Description of a stochastic rounder from wide to narrow fixed-point numbers.

    Parameters
    ----------
    a, o : Fixed
        Wide and narrow format.
    rounding : Rounding
        Stochastic rounding; default: ``sr3``.
    lanes : int
        Numbers per cycle, 1 to 4096.
    sharing : str
        ``own``: one random source per lane. ``rotated``: one source for all lanes; lane i rotates the bits by
        i places, and every second full rotation of a plateau source also complements them. Each word stays equally
        frequent.
    increment : bool
        If true, the unit adds the carry of the rounding decision. If false, ``o`` is the floor, which wraps, and the
        carry is a separate result.
    """

    NO_FLAGS = "convert has them, which rounds a number stochastically too"

    a: Fixed
    o: Fixed
    lanes: int = 1
    sharing: str = "own"
    increment: bool = True
    rounding: Rounding = field(default=stochastic(3), kw_only=True)

    def check(self) -> None:
        for name, fmt in (("a", self.a), ("o", self.o)):
            if not isinstance(fmt, Fixed):
                raise TypeError(
                    f"{name} of a stochastic rounder must be fixed point, such as int16 or fxp8.8, not {fmt}"
                )
        check_int("lanes", self.lanes, "stochastic rounder", 1, MAX_LANES)
        if self.rounding.mode != "sr":
            raise ValueError(f"rounding of a stochastic rounder must be sr1 to sr32, not {self.rounding}")
        check_bool("increment", self.increment, "stochastic rounder")
        if not self.increment:
            self.o.check_wraps(self.saturate)
        check_one_of("sharing", self.sharing, SHARINGS)
        if self.sharing != "own" and self.random is None:
            raise ValueError(f"sharing {self.sharing} does nothing without a random source; add one: @lfsr16")
        if self.sharing != "own" and self.lanes == 1:
            raise ValueError(f"sharing {self.sharing} does nothing with one lane; use at least 2 lanes")

    @classmethod
    def filled(cls, a: Format, **given: Any) -> Self:
        """Fill the short form; the default result has 8 bits, with the integer bits of ``a``."""
        if isinstance(a, Fixed) and given.get("o") is None:
            o = replace(a, int_bits=min(a.int_bits, a.width), frac_bits=8 - min(a.int_bits, a.width))
            given["o"] = o if given.get("increment", True) else replace(o, overflow="wrap")
        return super().filled(a, **({"o": a} | given))

    @classmethod
    def takes(cls, fmt: Format, rounding: Rounding | None) -> bool:
        return isinstance(fmt, Fixed) and (rounding is None or rounding.mode == "sr")

    @classmethod
    def gives(cls, fmt: Format, rounding: Rounding | None) -> bool:
        return isinstance(fmt, Fixed)

    @property
    def results(self) -> tuple[ValueRange, str]:
        """Range of the wide format, and its name in errors."""
        return ValueRange.of(self.a), f"number of {self.a}"

    @property
    def operand_ports(self) -> tuple[Port, ...]:
        return vector("a", self.lanes, self.a)

    @property
    def word_ports(self) -> tuple[Port, ...]:
        """Ports of random words, one for each lane."""
        return self.words_of(self.lanes)

    @property
    def formula(self) -> Formula:
        lanes = range(self.lanes)
        if not self.increment:
            names = (*(f"o{lane}" for lane in lanes), *(f"up{lane}" for lane in lanes))
            return Formula((Function(names, Call("sru", tuple(port.name for port in self.operand_ports))),))
        return Formula(tuple(self.rounded(term(f"a{lane}"), name=f"o{lane}", word=f"random{lane}") for lane in lanes))
