"""The register that holds exact sums (Kulisch, Computer Arithmetic and Validity, 2013; Standard for Posit Arithmetic,
2022, 3.4)."""

from dataclasses import dataclass
from fractions import Fraction

from halfulp.hdl.formats.base import Format, floor_log2
from halfulp.hdl.formats.checks import check_int

from .ranges import ValueRange

CARRY_BITS, MAX_CARRY = 31, 64


@dataclass(frozen=True)
class Quire:
    """A two's-complement fixed-point register that holds every sum of so many numbers exactly.

    Parameters
    ----------
    quantum : int
        Exponent of its last place.
    top : int
        No number that is added exceeds 2^top in magnitude.
    carry : int
        Carry guard: bits above these, 1 to 64. Fewer than 2^carry numbers cannot overflow the register.

    Raises
    ------
    TypeError, ValueError
        If a parameter is of the wrong kind, or out of range.

    Notes
    -----
    ``Quire.of(ValueRange.of(posit) * ValueRange.of(posit))`` is the quire of the posit standard: 16 n bits for posits
    of n bits. What overflows the carry guard is infinite from then on: inf of its sign in a float, NaR in a posit, the
    end of the range in fixed point.
    """

    quantum: int
    top: int
    carry: int = CARRY_BITS

    def __post_init__(self) -> None:
        check_int("quantum", self.quantum, "quire")
        check_int("top", self.top, "quire")
        check_int("carry", self.carry, "quire", 1, MAX_CARRY)
        if self.top < self.quantum:
            raise ValueError(f"a quire from 2^{self.quantum} up does not reach down to 2^{self.top}")

    @classmethod
    def of(cls, terms: ValueRange, start: Format | None = None, carry: int = CARRY_BITS) -> "Quire":
        """The quire of some terms, and of start values in a format."""
        held = terms if start is None else terms | ValueRange.of(start)
        magnitude = held.magnitude or Fraction(2) ** held.quantum
        top = floor_log2(magnitude)
        return cls(held.quantum, top if magnitude == Fraction(2) ** top else top + 1, carry)

    @property
    def width(self) -> int:
        """Bits of the register: sign, carry guard, integer and fraction."""
        return 1 + self.carry + self.top - self.quantum

    @property
    def sums(self) -> ValueRange:
        """Range of its content."""
        end = Fraction(2) ** (self.top + self.carry)
        last = Fraction(2) ** self.quantum
        return ValueRange(self.quantum, -end, end - last, last, self.width - 1, inf=True, nan=True)
