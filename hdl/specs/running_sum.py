"""Base of the descriptions of units with an accumulator."""

from typing import Any

from halfulp.hdl.formats.base import Format
from halfulp.hdl.formats.catalogue import parse
from halfulp.hdl.formats.checks import check_int
from halfulp.hdl.formats.rounding import Rounding

from .formula import Formula, Port, Role, Sum, Term, term
from .ranges import ValueRange
from .register import CARRY_BITS, MAX_CARRY, QuireRegister
from .unit import UnitSpec

MAX_INTERLEAVE = 64
"""Maximum number of sums in turn on one accumulator."""

EXACT_SUM = "exact"
"""Name of an exact accumulator: a quire."""


class RunningSumSpec(UnitSpec):
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

    @classmethod
    def gives(cls, fmt: Format, rounding: Rounding | None) -> bool:
        return super().gives(fmt, rounding) and fmt.decode(0) == 0

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
