"""Lines of a piecewise-linear function, and the formats that hold their coefficients."""

from dataclasses import dataclass, fields
from fractions import Fraction

from halfulp.hdl.formats import EXACT, RU, Format
from halfulp.hdl.formats.base import significand_bits
from halfulp.hdl.formats.checks import check_int

MAX_TERMS, MAX_BITS = 8, 62
"""Most powers of two in a slope, and bits of a coefficient."""


@dataclass(frozen=True)
class PowerSum:
    """Slopes that are sums of a few signed powers of two, so that a product is a few shifts and additions.

    Parameters
    ----------
    terms : int
        Most powers of a slope, 1 to 8.
    """

    terms: int = 1

    def __post_init__(self) -> None:
        check_int("terms", self.terms, "slope", 1, MAX_TERMS)

    def __str__(self) -> str:
        return f"pow2x{self.terms}"

    @staticmethod
    def powers(slope: Fraction) -> list[tuple[int, int]]:
        """The fewest signed powers of two that a slope is the sum of: signs, 1 or -1, and exponents.

        Raises
        ------
        ValueError
            If it is no sum of powers of two.
        """
        if slope.denominator & (slope.denominator - 1):
            raise ValueError(f"{slope} is no sum of powers of two")
        rest, exponent, powers = slope.numerator, 1 - slope.denominator.bit_length(), []
        # The non-adjacent form: no other has fewer terms (Reitwiesner, 1960).
        while rest:
            if rest & 1:
                sign = 2 - (rest & 3)
                powers.append((sign, exponent))
                rest -= sign
            rest >>= 1
            exponent += 1
        return powers

    def check(self, slope: Fraction) -> None:
        """Raise ValueError unless the slope has so few powers of two."""
        if (count := len(self.powers(slope))) > self.terms:
            raise ValueError(f"a slope of {slope} takes {count} powers of two; {self} allows {self.terms}")


@dataclass(frozen=True)
class Piece:
    """A line ``slope * t + intercept``, of which ``start`` is the first argument."""

    start: Fraction
    slope: Fraction
    intercept: Fraction

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not isinstance(value, Fraction):
                raise TypeError(f"the {item.name} of a piece is a Fraction, not {type(value).__name__}")

    def at(self, t: Fraction) -> Fraction:
        """The line's value."""
        return self.slope * t + self.intercept


def ceiling(fmt: Format, value: Fraction) -> Fraction | None:
    """The least number of a format that is not below a value; None where there is none."""
    if value > fmt.largest:
        return None
    if value <= fmt.lowest:
        return fmt.lowest
    found = fmt.decode(fmt.encode(value, RU))
    assert isinstance(found, Fraction)
    # What is too small for a format that flushes it, or for a posit, goes to the next number up.
    return found if found >= value else Fraction(0) if value <= 0 else fmt.smallest


def last_place(value: Fraction) -> int:
    """Exponent of the last one of a binary fraction other than zero."""
    numerator = abs(value.numerator)
    return (numerator & -numerator).bit_length() - value.denominator.bit_length()


def check_bits(value: Fraction) -> None:
    """Raise ValueError where a coefficient is no binary fraction of so many bits as hardware is made for."""
    if value.denominator & (value.denominator - 1):
        raise ValueError(f"{value} has no finite number of bits")
    if (bits := significand_bits(value)) > MAX_BITS:
        raise ValueError(f"{float(value):.9g} as a coefficient has {bits} bits; {MAX_BITS} are the most")


def check_holds(fmt: Format, value: Fraction, what: str) -> None:
    """Raise ValueError unless a format holds a coefficient."""
    try:
        held = fmt.decode(fmt.encode(value, EXACT))
    except ValueError:
        held = None
    if held != value:
        raise ValueError(f"{fmt} cannot hold the {what} {float(value):.9g} ({value})")
