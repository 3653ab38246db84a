"""Ranges of exact results, used to reject rounding ``exact`` before hardware is built."""

from dataclasses import dataclass, replace
from fractions import Fraction

from halfulp.hdl.formats.base import Format, decimal_text, floor_log2, significand_bits
from halfulp.hdl.formats.rounding import Rounding


@dataclass(frozen=True)
class ValueRange:
    """Bounds on a set of numbers.

    Parameters
    ----------
    quantum : int
        Every number is a multiple of 2^quantum.
    lowest, largest : Fraction
        Bounds on all numbers.
    smallest : Fraction
        Lower bound on the nonzero magnitudes.
    precision : int
        Upper bound on the significand bits from the first to the last one, both included.
    inf, nan : bool
        True if the set contains infinities or NaN.
    source : Format, optional
        Format, if the set is exactly the values of one.
    """

    quantum: int
    lowest: Fraction
    largest: Fraction
    smallest: Fraction
    precision: int
    inf: bool
    nan: bool
    source: Format | None = None

    @classmethod
    def of(cls, fmt: Format) -> "ValueRange":
        """Return the range of a format."""
        return cls(fmt.quantum, fmt.lowest, fmt.largest, fmt.smallest, fmt.precision, fmt.has_inf, fmt.has_nan, fmt)

    @property
    def magnitude(self) -> Fraction:
        """Upper bound on the magnitudes."""
        return max(-self.lowest, self.largest)

    def __mul__(self, other: "ValueRange") -> "ValueRange":
        one_bit = min(self.precision, other.precision) == 1
        corners = [x * y for x in (self.lowest, self.largest) for y in (other.lowest, other.largest)]
        return ValueRange(
            quantum=self.quantum + other.quantum,
            lowest=min(corners),
            largest=max(corners),
            smallest=self.smallest * other.smallest,
            # (2^p - 1)(2^q - 1) has p + q bits if p, q >= 2; multiplication by a power of two adds none.
            precision=max(self.precision, other.precision) if one_bit else self.precision + other.precision,
            inf=self.inf or other.inf,
            nan=self.nan or other.nan or self.inf or other.inf,
        )

    def __add__(self, other: "ValueRange") -> "ValueRange":
        tails = [_longest(x, y) for x, y in ((self, other), (other, self))]
        return ValueRange(
            quantum=min(self.quantum, other.quantum),
            lowest=self.lowest + other.lowest,
            largest=self.largest + other.largest,
            smallest=_closest(self, other),
            precision=max(self.precision, other.precision, *tails),
            inf=self.inf or other.inf,
            nan=self.nan or other.nan or (self.inf and other.inf),
        )

    def __neg__(self) -> "ValueRange":
        return replace(self, lowest=-self.largest, largest=-self.lowest, source=None)

    def plus_or_minus(self, other: "ValueRange") -> "ValueRange":
        """Return the range of sums and differences."""
        return (self + other) | (self + -other)

    def times(self, count: int) -> "ValueRange":
        """Return the range of sums of ``count`` numbers of the set."""
        lowest, largest = self.lowest * count, self.largest * count
        return ValueRange(
            quantum=self.quantum,
            lowest=lowest,
            largest=largest,
            smallest=Fraction(2) ** self.quantum if count > 1 else self.smallest,
            precision=self.precision if count == 1 else floor_log2(max(-lowest, largest)) - self.quantum + 1,
            inf=self.inf,
            nan=self.nan or (self.inf and count > 1),
        )

    def __or__(self, other: "ValueRange") -> "ValueRange":
        return ValueRange(
            quantum=min(self.quantum, other.quantum),
            lowest=min(self.lowest, other.lowest),
            largest=max(self.largest, other.largest),
            smallest=min(self.smallest, other.smallest),
            precision=max(self.precision, other.precision),
            inf=self.inf or other.inf,
            nan=self.nan or other.nan,
        )

    def check_fits(self, fmt: Format, what: str) -> None:
        """Raise ValueError unless ``fmt`` holds every number of the range.

        The range is a bound: for a sum with a product it may have one bit more than the real results.
        """
        room = replace(ValueRange.of(fmt), lowest=fmt.lowest_result)
        lacks = None
        if self.source is not None and fmt.holds(self.source):
            return
        if self.largest > room.largest:
            lacks = f"it ends at {decimal_text(room.largest, 6)} and the results at {decimal_text(self.largest, 6)}"
        elif self.lowest < room.lowest:
            lacks = f"it starts at {decimal_text(room.lowest, 6)} and the results at {decimal_text(self.lowest, 6)}"
        elif self.quantum < room.quantum or self.smallest < room.smallest:
            smallest, needed = decimal_text(room.smallest, 6), decimal_text(self.smallest, 6)
            lacks = f"its smallest number is {smallest} and that of the results {needed}"
        elif self.inf and not room.inf:
            lacks = "it has no infinity"
        elif self.nan and not room.nan:
            lacks = "it has no NaN"
        if fmt.spacing != "uniform" and self.precision > room.precision:
            lacks = f"it has {room.precision} significand bits and the results have {self.precision}"
        elif lacks is None and fmt.spacing == "tapered":
            lacks = self._lacks_in(fmt)
        if lacks:
            raise ValueError(
                f"rounding exact is not possible: {fmt} cannot hold every {what}, because {lacks}; "
                "choose a rounding mode or a wider result format"
            )

    def _lacks_in(self, fmt: Format) -> str | None:
        """Return the first exponent at which significands of ``fmt`` are too short for the set, as a sentence."""
        for scale in range(floor_log2(self.smallest), floor_log2(self.magnitude) + 1):
            needed, there = min(self.precision, scale - self.quantum + 1), fmt.precision_at(scale)
            if needed > there:
                return f"at 2^{scale} it has {there} significand bits and the results have {needed}"
        return None


def window_of(o: Format, rounding: Rounding, largest: Fraction) -> int:
    """Return the number of leading bits of results up to ``largest`` that must be exact for their rounding to ``o``.

    Lower bits only count as zero or not.
    """
    if o.spacing != "uniform":
        return o.window + rounding.places
    top = floor_log2(largest) if largest else o.quantum
    if not o.wraps:
        # Larger results saturate.
        top = min(top, o.quantum + o.width)
    return max(top - o.quantum + 1, 0) + rounding.places


def _closest(x: ValueRange, y: ValueRange) -> Fraction:
    """Return the least nonzero magnitude of a sum or difference."""
    low, high = sorted((x, y), key=lambda span: span.smallest)
    if low.magnitude < high.smallest:
        return min(low.smallest, high.smallest - low.magnitude)
    # Both sets contain high.smallest, a power of two, and are densest there. The nearest number is the one above it in
    # the high set, or the one below it in the low set.
    below = max(low.quantum, floor_log2(high.smallest) - low.precision)
    return min(low.smallest, Fraction(2) ** high.quantum, Fraction(2) ** below)


def _longest(x: ValueRange, y: ValueRange) -> int:
    """Return the significand bits of the longest sum of a number of x and one of y with y's quantum."""
    unit = Fraction(2) ** y.quantum
    # The longest sum adds x's largest number to y's longest odd significand, or to the one before if both are odd.
    joined = x.magnitude + ((1 << y.precision) - 1) * unit
    return max(significand_bits(joined), significand_bits(joined - unit) if y.precision > 1 else 1)
