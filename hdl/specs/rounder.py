"""Description of a stochastic rounder."""

from dataclasses import dataclass, field, replace
from typing import Any, Self

from halfulp.hdl.formats.base import Format
from halfulp.hdl.formats.checks import check_bool, check_int, check_one_of
from halfulp.hdl.formats.fixed import Fixed
from halfulp.hdl.formats.rounding import Rounding, stochastic

from .ranges import ValueRange
from .unit import UnitSpec

SHARINGS = ("own", "rotated")
MAX_LANES = 4096


@dataclass(frozen=True)
class RounderSpec(UnitSpec, form="sru a>o", summary="fixed point, truncated at random"):
    """Wide fixed-point numbers truncated to narrow ones, each up or down at random.

    Parameters
    ----------
    a, o : Fixed
        Formats of the wide and of the narrow numbers.
    rounding : Rounding
        A stochastic one; default: sr3.
    lanes : int
        Numbers at once, 1 to 4096.
    sharing : str
        ``own``: each lane has a source. ``rotated``: all lanes share one; lane i has its words rotated by i places, and
        those of a plateau source complemented in every second turn, which changes no frequency of any word.
    increment : bool
        Whether the unit adds the carry of the rounding decision. If not, ``o`` is the floor, wraps, and the carry is a
        result of its own.
    """

    a: Fixed
    o: Fixed
    lanes: int = 1
    sharing: str = "own"
    increment: bool = True
    rounding: Rounding = field(default=stochastic(3), kw_only=True)

    def check(self) -> None:
        for name, fmt in (("a", self.a), ("o", self.o)):
            if not isinstance(fmt, Fixed):
                raise TypeError(f"{name} of a stochastic rounder is fixed point, such as int16 or fxp8.8, not {fmt}")
        check_int("lanes", self.lanes, "stochastic rounder", 1, MAX_LANES)
        if self.rounding.mode != "sr":
            raise ValueError(f"a stochastic rounder rounds by sr1 to sr32, not by {self.rounding}")
        check_bool("increment", self.increment, "stochastic rounder")
        if not self.increment:
            self.o.check_wraps(self.saturate)
        check_one_of("sharing", self.sharing, SHARINGS)
        if self.sharing != "own" and self.random is None:
            raise ValueError(f"sharing {self.sharing} does nothing where random words are an input; name a source")
        if self.sharing != "own" and self.lanes == 1:
            raise ValueError(f"sharing {self.sharing} does nothing in one lane; name two lanes or more")

    @classmethod
    def filled(cls, a: Format, **given: Any) -> Self:
        """Description with the defaults of the short form: 8 bits, as many before the point as ``a`` has; they wrap if
        they must."""
        if isinstance(a, Fixed) and given.get("o") is None:
            o = replace(a, int_bits=min(a.int_bits, a.width), frac_bits=8 - min(a.int_bits, a.width))
            given["o"] = o if given.get("increment", True) else replace(o, overflow="wrap")
        return super().filled(a, **({"o": a} | given))

    @classmethod
    def takes(cls, fmt: Format, rounding: Rounding | None) -> bool:
        return isinstance(fmt, Fixed) and (rounding is None or rounding.mode == "sr")

    @property
    def results(self) -> tuple[ValueRange, str]:
        """Numbers of the wide format."""
        return ValueRange.of(self.a), f"number of {self.a}"

    @property
    def words(self) -> dict[str, int]:
        """Random words of an operation and their bits: one for each lane."""
        return {f"random{lane}": self.rounding.bits for lane in range(self.lanes)}
