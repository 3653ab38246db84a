"""Unreachable bins of a sum, proved by bounds on its terms and on its results."""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from halfulp.hdl.formats import Format
from halfulp.hdl.formats.base import floor_log2
from halfulp.sim.fields import Grid

from .bins import Group
from .stages import RESTS, Stage

Flags = npt.NDArray[np.bool_]


def of_sums(stage: Stage) -> Iterator[tuple[Group, Flags, str]]:
    """Yield groups with the bins that no sum reaches, by the range and the length of all sums, and the proof.

    Sums that are multiples of the last place of subnormal results are exact in this range, and in the first binade
    above it.
    """
    sums, o = stage.sums, stage.o
    if sums is None or o.spacing != "relative" or o.flushes:
        return
    first_normal = Grid.of(o).first_normal
    normal, whole = Fraction(2) ** first_normal, sums.quantum >= o.quantum
    exact = sums.precision <= o.precision and (sums.quantum >= o.quantum or sums.smallest >= normal)
    bottom, top = floor_log2(sums.smallest), floor_log2(sums.magnitude)
    # Rounding does not move a number over a power of two.
    low = sums.smallest if exact else max(Fraction(2) ** bottom, o.smallest)
    high = sums.magnitude if exact else Fraction(2) ** (top + 1)
    short = exact and sums.precision < o.precision and sums.smallest >= normal
    proof = f"all sums: magnitudes from 2^{bottom} to 2^{top + 1}, of up to {sums.precision} bits"

    def excluded(group: Group, index: int) -> bool:
        parts = group.label(index).split(", ")
        inexact = any(rest in parts for rest in RESTS[1:])
        if exact and inexact:
            return True
        match group.name.rpartition(": ")[2].split():
            case ["range"]:
                bounds = stage.bounds(group.name, index)
                return (
                    bounds.since > top or bounds.until < bottom or (whole and inexact and bounds.until <= first_normal)
                )
            case ["rounding", _] if whole and inexact and parts[-1] == "subnormal":
                return True
            case ["rounding", _]:
                return (parts[-1] == "subnormal" and low >= normal) or (short and parts[0] == "odd")
            case ["random", "words"]:
                return exact and parts[0] != "zeros"
            case ["random", "edge"]:
                return exact and parts[0] == "carry"
            case ["result"] if parts[0] == "-zero":
                return exact and True not in stage.zero_signs
            case ["result"] if parts[0] == "NaN" or "infinite" in parts[0]:
                return high <= o.largest and not sums.inf and not (sums.nan and parts[0] == "NaN")
            case ["result"]:
                first, last = _interval(o, normal, parts[0].lstrip("+-"))
                return last < low or first > high
        return False

    for group in stage.groups:
        yield group, np.array([excluded(group, index) for index in range(group.size)]), proof


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
        inexact = any(rest in parts for rest in RESTS[1:])
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
