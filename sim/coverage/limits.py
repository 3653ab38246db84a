"""Unreachable bins of a sum, proved by bounds on its terms and on its results."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from halfulp.hdl.formats import Format
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs import ValueRange
from halfulp.sim.fields import Grid

from .bins import Group
from .stages import RESTS, Stage

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Sums:
    """Range and length of all sums of a stage.

    Attributes
    ----------
    stage : Stage
    span : ValueRange
        Range of the sums.
    """

    stage: Stage
    span: ValueRange

    @property
    def o(self) -> Format:
        """Result format."""
        return self.stage.o

    @cached_property
    def normal(self) -> Fraction:
        """Smallest normal number of the result format."""
        return Fraction(2) ** Grid.of(self.o).first_normal

    @cached_property
    def whole(self) -> bool:
        """True if sums are multiples of the last place of subnormal results."""
        return self.span.quantum >= self.o.quantum

    @cached_property
    def exact(self) -> bool:
        """True if all sums are numbers of the result format, but for its upper end."""
        return self.span.precision <= self.o.precision and (self.whole or self.span.smallest >= self.normal)

    @cached_property
    def exponents(self) -> tuple[int, int]:
        """Lowest and highest exponent of a sum that is not zero."""
        return floor_log2(self.span.smallest), floor_log2(self.span.magnitude)

    @cached_property
    def results(self) -> tuple[Fraction, Fraction]:
        """Smallest and largest result that is not zero: rounding does not move a number over a power of two."""
        if self.exact:
            return self.span.smallest, self.span.magnitude
        bottom, top = self.exponents
        return max(Fraction(2) ** bottom, self.o.smallest), Fraction(2) ** (top + 1)

    def excludes(self, group: Group, index: int) -> bool:
        """Return True if no sum reaches a bin."""
        parts = group.label(index).split(", ")
        if self.exact and _is_inexact(parts):
            return True
        match group.name.rpartition(": ")[2].split():
            case ["range"]:
                return self._excludes_range(group, index, parts)
            case ["rounding", _]:
                return self._excludes_rounding(parts)
            case ["random", "words"]:
                return self.exact and parts[0] != "zeros"
            case ["random", "edge"]:
                return self.exact and parts[0] == "carry"
            case ["result"]:
                return self._excludes_result(parts[0])
        return False

    def _excludes_range(self, group: Group, index: int, parts: Sequence[str]) -> bool:
        (bottom, top), bounds = self.exponents, self.stage.bounds(group.name, index)
        exact_below = self.whole and _is_inexact(parts) and bounds.until <= Grid.of(self.o).first_normal
        return bounds.since > top or bounds.until < bottom or exact_below

    def _excludes_rounding(self, parts: Sequence[str]) -> bool:
        if parts[-1] == "subnormal" and ((self.whole and _is_inexact(parts)) or self.results[0] >= self.normal):
            return True
        short = self.exact and self.span.precision < self.o.precision and self.span.smallest >= self.normal
        return short and parts[0] == "odd"

    def _excludes_result(self, kind: str) -> bool:
        low, high = self.results
        if kind == "-zero":
            return self.exact and True not in self.stage.zero_signs
        if kind == "NaN" or "infinite" in kind:
            return high <= self.o.largest and not self.span.inf and not (self.span.nan and kind == "NaN")
        first, last = _interval(self.o, self.normal, kind.lstrip("+-"))
        return last < low or first > high


def _is_inexact(parts: Sequence[str]) -> bool:
    """Return True if the label of a bin has discarded bits that are not zero."""
    return any(rest in parts for rest in RESTS[1:])


def of_sums(stage: Stage) -> Iterator[tuple[Group, Flags, str]]:
    """Yield groups with the bins that no sum reaches, by the range and the length of all sums, and the proof.

    Sums that are multiples of the last place of subnormal results are exact in this range, and in the first binade
    above it.
    """
    if stage.sums is None or stage.o.spacing != "relative" or stage.o.flushes:
        return
    sums = _Sums(stage, stage.sums)
    bottom, top = sums.exponents
    proof = f"all sums: magnitudes from 2^{bottom} to 2^{top + 1}, of up to {sums.span.precision} bits"
    for group in stage.groups:
        yield group, np.array([sums.excludes(group, index) for index in range(group.size)]), proof


def of_common_factor(stage: Stage) -> Iterator[tuple[Group, Flags, str]]:
    """Yield groups with the bins that no terms with a common factor reach, such as the scale of a block.

    Exponents of two terms differ as those of the terms without the factor, and a sum is a multiple of the factor times
    the last place of these. If the factor is no power of two, a product with it may have one bit more.
    """
    if stage.common is None or len(stage.terms) < 2:
        return
    terms, factor = stage.common
    carry = int(factor.precision > 1)
    top = floor_log2(terms.magnitude)
    apart, down = top - floor_log2(terms.smallest) + carry, top - terms.quantum + carry
    proof = f"all terms: a common factor, and magnitudes of multiples of 2^{terms.quantum} up to 2^{top + 1}"
    for group in stage.groups:
        if group.name.endswith("alignment"):
            distances = [stage.distance(int(place)) for place in range(group.size)]
            yield group, np.array([distance > apart for distance in distances]), proof
        elif group.name.endswith("normalisation"):
            moves = [stage.bounds(group.name, place).least for place in range(group.size)]
            yield group, np.array([move > down for move in moves]), proof


def of_accumulator(stage: Stage) -> Iterator[tuple[Group, Flags, str]]:
    """Yield groups with the bins that no sum of a term and a number of the result format reaches.

    A sum of zero and a number is exact. If the term is not zero and the number is less than half of the smallest term,
    the sum is half of it at least; otherwise it is a multiple of the last places of the two, as after cancellation.
    Terms of less than a quarter of the last place of the largest number change it by less than a tie.
    If the larger of two numbers has an exponent that the other one cannot have, a difference is at least the distance
    between the ranges of both.
    """
    o = stage.o
    if len(stage.terms) != 2 or stage.terms[1].span.source != o or o.spacing != "relative" or o.flushes:
        return
    term, grid = stage.terms[0].span, Grid.of(o)
    bottom, top = floor_log2(term.smallest), floor_log2(term.magnitude)
    least = bottom - 1
    lowest = min(least, term.quantum, max(least - (o.precision - 1), o.quantum))
    ulp = grid.emax - (o.precision - 1)
    small = top + 1 <= ulp - 2
    apart = Fraction(2) ** (top + 1) - term.magnitude
    shared = max(min(top, grid.emax) - term.quantum, top + 1 - floor_log2(apart))
    longest = max(o.precision, min(term.precision, shared))
    proof = f"all terms: 0, or magnitudes from 2^{bottom} to 2^{top + 1}"
    proof += f", of up to {term.precision} bits"

    def excluded(group: Group, index: int) -> bool:
        parts, bounds = group.label(index).split(", "), stage.bounds(group.name, index)
        inexact = _is_inexact(parts)
        match group.name.rpartition(": ")[2].split():
            case ["alignment"]:
                return not bottom - grid.emax <= stage.difference(index) <= top - o.quantum
            case ["normalisation"]:
                return bounds.least > longest
            case ["rounding", _]:
                return inexact and parts[-1] == "subnormal" and lowest >= grid.first_normal
            case ["range"] if parts[0][1:] in ("the largest", "the second largest"):
                far = RESTS[2:] if parts[0][1:] == "the largest" else RESTS[2:3]
                return small and parts[1] in far
            case ["range"]:
                return (inexact and bounds.until < lowest) or (small and parts[0][1:] == "beyond the largest")
        return False

    for group in stage.groups:
        yield group, np.array([excluded(group, index) for index in range(group.size)]), proof


def _interval(o: Format, normal: Fraction, kind: str) -> tuple[Fraction, Fraction]:
    """Return the smallest and the largest magnitude of a class of results; zero has all."""
    below = normal - Fraction(2) ** o.quantum
    ends = {
        "smallest subnormal": (o.smallest, o.smallest),
        "subnormal": (o.smallest, below),
        "largest subnormal": (below, below),
        "smallest normal": (normal, normal),
        "power of two": (normal, o.largest),
        "other": (normal, o.largest),
        "largest": (o.largest, o.largest),
    }
    return ends.get(kind, (Fraction(0), o.largest))
