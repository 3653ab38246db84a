"""Lines of a piecewise-linear function, and limits of their coefficients."""

from dataclasses import dataclass, fields
from fractions import Fraction

from halfulp.hdl.formats import EXACT, RU, Format
from halfulp.hdl.formats.base import significand_bits
from halfulp.hdl.formats.checks import check_int

MAX_TERMS, MAX_BITS = 8, 62
"""Maximum number of powers of two in a slope, and of bits in a coefficient."""


@dataclass(frozen=True)
class PowerSum:
    """Slopes that are sums of a few signed powers of two, so that a product is a few shifts and additions.

    Parameters
    ----------
    terms : int
        Maximum number of powers per slope, 1 to 8.
    """

    terms: int = 1

    def __post_init__(self) -> None:
        check_int("terms", self.terms, "slope", 1, MAX_TERMS)

    def __str__(self) -> str:
        return f"pow2x{self.terms}"

    @staticmethod
    def powers(slope: Fraction) -> list[tuple[int, int]]:
        """Return the shortest sum of signed powers of two that equals a slope: signs, 1 or -1, and exponents.

        Raises
        ------
        ValueError
            If the slope is not a binary fraction.
        """
        if slope.denominator & (slope.denominator - 1):
            raise ValueError(f"slope {slope} must be a sum of powers of two")
        rest, exponent, powers = slope.numerator, 1 - slope.denominator.bit_length(), []
        # Non-adjacent form, which has the fewest terms (Reitwiesner, 1960).
        while rest:
            if rest & 1:
                sign = 2 - (rest & 3)
                powers.append((sign, exponent))
                rest -= sign
            rest >>= 1
            exponent += 1
        return powers

    def check(self, slope: Fraction) -> None:
        """Raise ValueError if the slope needs more powers of two than allowed."""
        if (count := len(self.powers(slope))) > self.terms:
            raise ValueError(f"slope {slope} needs {count} powers of two, and {self} allows {self.terms}")


@dataclass(frozen=True)
class Piece:
    """Line ``slope * t + intercept`` for arguments from ``start``."""

    start: Fraction
    slope: Fraction
    intercept: Fraction

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not isinstance(value, Fraction):
                raise TypeError(f"the {item.name} of a piece must be a Fraction, not {type(value).__name__}")

    def at(self, t: Fraction) -> Fraction:
        """Return the value of the line at t."""
        return self.slope * t + self.intercept


def ceiling(fmt: Format, value: Fraction) -> Fraction | None:
    """Return the least number of a format that is at least ``value``; None if there is none."""
    if value > fmt.largest:
        return None
    if value <= fmt.lowest_result:
        return fmt.lowest_result
    nearest = fmt.decode(fmt.encode(value, RU))
    assert isinstance(nearest, Fraction)
    # Values too small for a format that flushes, or for a posit, round up to the next number.
    return nearest if nearest >= value else Fraction(0) if value <= 0 else fmt.smallest


def last_place(value: Fraction) -> int:
    """Return the exponent of the last 1 bit of a nonzero binary fraction."""
    numerator = abs(value.numerator)
    return (numerator & -numerator).bit_length() - value.denominator.bit_length()


def check_bits(value: Fraction) -> None:
    """Raise ValueError unless a coefficient is a binary fraction with at most MAX_BITS bits."""
    if value.denominator & (value.denominator - 1):
        raise ValueError(f"coefficient {value} must be a binary fraction")
    if (bits := significand_bits(value)) > MAX_BITS:
        raise ValueError(f"coefficient {float(value):.9g} has {bits} bits, and at most {MAX_BITS} are possible")


def check_holds(fmt: Format, value: Fraction, what: str) -> None:
    """Raise ValueError unless a format holds a coefficient exactly."""
    try:
        held = fmt.decode(fmt.encode(value, EXACT))
    except ValueError:
        held = None
    if held != value:
        raise ValueError(f"{fmt} cannot hold the {what} {float(value):.9g} ({value})")
