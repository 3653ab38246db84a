"""Fixed-point register of exact sums (Kulisch, Computer Arithmetic and Validity, 2013; Posit Standard, 2022, 3.4)."""

from dataclasses import dataclass
from fractions import Fraction

from halfulp.hdl.formats.base import Format, floor_log2
from halfulp.hdl.formats.checks import check_int

from .ranges import ValueRange

CARRY_BITS, MAX_CARRY = 31, 64


@dataclass(frozen=True)
class QuireRegister:
    """Two's-complement fixed-point register that holds a sum of up to 2^carry - 1 numbers exactly.

    Parameters
    ----------
    quantum : int
        Exponent of the last place.
    top : int
        Exponent of the bound: no number that is added exceeds 2^top in magnitude.
    carry : int
        Carry guard bits above ``top``, 1 to 64. A sum of fewer than 2^carry numbers cannot overflow.

    Raises
    ------
    TypeError, ValueError
        If a parameter has the wrong type or is out of range.

    Notes
    -----
    ``QuireRegister.of(ValueRange.of(posit) * ValueRange.of(posit))`` is the quire of the posit standard: 16 n bits for
    posits of n bits. After an overflow of the carry guard the result stays infinite: an infinity of its sign in a
    float, NaR in a posit, the end of the range in fixed point.
    """

    quantum: int
    top: int
    carry: int = CARRY_BITS

    def __post_init__(self) -> None:
        check_int("quantum", self.quantum, "quire")
        check_int("top", self.top, "quire")
        check_int("carry", self.carry, "quire", 1, MAX_CARRY)
        if self.top < self.quantum:
            raise ValueError(f"top of a quire must be at least its quantum {self.quantum}, not {self.top}")

    @classmethod
    def of(cls, terms: ValueRange, start: Format | None = None, carry: int = CARRY_BITS) -> "QuireRegister":
        """Return the quire for sums of ``terms``, optionally with start values in the format ``start``."""
        held = terms if start is None else terms | ValueRange.of(start)
        magnitude = held.magnitude or Fraction(2) ** held.quantum
        top = floor_log2(magnitude)
        return cls(held.quantum, top if magnitude == Fraction(2) ** top else top + 1, carry)

    @property
    def width(self) -> int:
        """Width of the register: sign, carry guard, integer and fraction bits."""
        return 1 + self.carry + self.top - self.quantum

    @property
    def sums(self) -> ValueRange:
        """Range of the sums in the register."""
        end = Fraction(2) ** (self.top + self.carry)
        last = Fraction(2) ** self.quantum
        return ValueRange(self.quantum, -end, end - last, last, self.width - 1, inf=True, nan=True)
