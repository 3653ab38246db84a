"""What the exact results of an operation span, so that ``exact`` can be refused before any hardware is built."""

from dataclasses import dataclass
from fractions import Fraction

from .base import Format, decimal_text
from .floating import Float, floor_log2


@dataclass(frozen=True)
class Span:
    """Bounds on a set of numbers.

    Parameters
    ----------
    quantum : int
        Every number is a multiple of 2^quantum.
    largest : Fraction
        No magnitude exceeds it.
    smallest : Fraction
        No magnitude above zero is less.
    precision : int
        Bits between the first and the last one of any number, both included.
    inf, nan : bool
        Whether the set has them.
    """

    quantum: int
    largest: Fraction
    smallest: Fraction
    precision: int
    inf: bool
    nan: bool

    @classmethod
    def of(cls, fmt: Format) -> "Span":
        """The numbers of a format."""
        assert isinstance(fmt, Float)
        quantum = fmt.quantum
        return cls(quantum, fmt.largest, fmt.smallest, fmt.precision, fmt.has_inf, fmt.has_nan)

    def __mul__(self, other: "Span") -> "Span":
        one_bit = min(self.precision, other.precision) == 1
        return Span(
            quantum=self.quantum + other.quantum,
            largest=self.largest * other.largest,
            smallest=self.smallest * other.smallest,
            # (2^p - 1)(2^q - 1) fills p + q bits once both have two; a power of two adds none.
            precision=max(self.precision, other.precision) if one_bit else self.precision + other.precision,
            inf=self.inf or other.inf,
            nan=self.nan or other.nan or self.inf or other.inf,
        )

    def __add__(self, other: "Span") -> "Span":
        # The longest sum joins the largest number of one set to the longest odd tail of the other.
        tails = [
            _length(x.largest + ((1 << y.precision) - 1) * Fraction(2) ** y.quantum)
            for x, y in ((self, other), (other, self))
        ]
        return Span(
            quantum=min(self.quantum, other.quantum),
            largest=self.largest + other.largest,
            smallest=_closest(self, other),
            precision=max(self.precision, other.precision, *tails),
            inf=self.inf or other.inf,
            nan=self.nan or other.nan or (self.inf and other.inf),
        )

    def __or__(self, other: "Span") -> "Span":
        return Span(
            quantum=min(self.quantum, other.quantum),
            largest=max(self.largest, other.largest),
            smallest=min(self.smallest, other.smallest),
            precision=max(self.precision, other.precision),
            inf=self.inf or other.inf,
            nan=self.nan or other.nan,
        )

    def check_fits(self, fmt: Format, what: str) -> None:
        """Raise ValueError unless ``fmt`` holds every number of the span.

        The span of a sum of a product is a bound: it may ask one bit more than the products that really occur.
        """
        room = Span.of(fmt)
        lacks = None
        if self.precision > room.precision:
            lacks = f"it has {room.precision} significand bits and {self.precision} are needed"
        elif self.largest > room.largest:
            lacks = f"it ends at {decimal_text(room.largest, 6)} and the results at {decimal_text(self.largest, 6)}"
        elif self.quantum < room.quantum or self.smallest < room.smallest:
            smallest, needed = decimal_text(room.smallest, 6), decimal_text(self.smallest, 6)
            lacks = f"its smallest number is {smallest} and the results' is {needed}"
        elif self.inf and not room.inf:
            lacks = "it has no infinity"
        elif self.nan and not room.nan:
            lacks = "it has no NaN"
        if lacks:
            raise ValueError(
                f"rounding exact is refused: {fmt} cannot hold every {what}, for {lacks}; "
                "name a rounding mode or a wider result format"
            )


def _closest(x: Span, y: Span) -> Fraction:
    """Least sum or difference above zero."""
    low, high = sorted((x, y), key=lambda span: span.smallest)
    if low.largest < high.smallest:
        return min(low.smallest, high.smallest - low.largest)
    # Both sets have high.smallest, a power of two, and are densest there: what differs from it least is the number
    # above it in the high set, or the one below it in the low set.
    below = max(low.quantum, floor_log2(high.smallest) - low.precision)
    return min(low.smallest, Fraction(2) ** high.quantum, Fraction(2) ** below)


def _length(value: Fraction) -> int:
    """Bits between the first and the last one of a dyadic fraction."""
    numerator = value.numerator
    return (numerator // (numerator & -numerator)).bit_length()
