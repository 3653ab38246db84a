"""Rounding of lane words to formats of few numbers, by a table."""

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from halfulp.hdl.formats import EXACT, RZ, Format, Rounding, Saturation

from .lane import Lane, Rounder, need
from .text import boolean

WIDEST = 12
"""Largest width of a format with a table."""

ENTRIES = 2048
"""Largest number of entries for numbers of one sign, which the processor's first cache holds."""


def table_rounder(name: str, fmt: Format, rounding: Rounding, saturate: Saturation, lane: Lane) -> Rounder:
    """Return the rounder of a format with a table of its numbers; raise `Refused` if the table is too large.

    A magnitude's number follows from the boundary of its entry, because the result of a rounding changes once between
    two numbers: at one of them, at their middle, or just above one of these. Not so that of stochastic rounding, and of
    rounding to odd, whose even results are single numbers. Sums are exact, or rounded in the
    direction of ``rounding``, or to odd; so boundaries have one bit less than the lane.
    """
    need(fmt.width <= WIDEST and not fmt.wraps, f"it does not round to {fmt}")
    need(not rounding.bits and rounding.mode != "ro", f"it does not round to {fmt} in the mode {rounding}")
    mode = RZ if rounding == EXACT else rounding
    sides = [_boundaries(fmt, negative, mode, saturate, lane) for negative in (False, True)]
    # Where all numbers above zero have another result than zero, the entries do not hold zero.
    zero = any(map(_skips_zero, sides))
    if zero:
        sides = [[(0, side[1][1]), *side[2:]] if _skips_zero(side) else side for side in sides]
    words = [[word for word, _ in side[1:]] for side in sides]
    apart = [(low ^ high).bit_length() - 1 for side in words for low, high in itertools.pairwise(side)]
    shift = min([lane.mantissa, *apart])
    places = [word >> shift for side in words for word in side] or [0]
    first, count = min(places), max(places) - min(places) + 1
    need(count <= ENTRIES, f"it does not round to {fmt}, whose table has more than {ENTRIES} entries")

    boundaries, values = [], []
    for side in sides:
        for boundary, before, after in _entries(fmt, side, shift, range(first, first + count), lane):
            boundaries.append(boundary)
            values += [before, after]
    ends = [
        *(fmt.infinite(sign, saturate) for sign in (False, True)),
        *(fmt.encode_magnitude(Fraction(0), sign, mode) for sign in (False, True)),
    ]
    tables = {
        f"{name}_boundaries": boundaries,
        f"{name}_values": values,
        f"{name}_specials": [_word(fmt, code, lane) for code in ends],
    }
    text = f"TableRounder<{lane.bits}, {shift}, {first}, {count}, {boolean(zero)}, {', '.join(tables)}>"
    return Rounder(0, lane.precision, False, text, tables)


def _skips_zero(side: Sequence[tuple[int, int]]) -> bool:
    return len(side) > 1 and side[1][0] == 1


def _entries(
    fmt: Format, side: Sequence[tuple[int, int]], shift: int, places: range, lane: Lane
) -> Iterator[tuple[int, int, int]]:
    """Return boundary, result below and result from the boundary on, of each entry for magnitudes of one sign."""
    changes = {boundary >> shift: (boundary, _word(fmt, code, lane)) for boundary, code in side[1:]}
    word = _word(fmt, side[0][1], lane)
    for place in places:
        boundary, after = changes.get(place, (_never(lane), word))
        yield boundary, word, after
        word = after


def _boundaries(
    fmt: Format, negative: bool, rounding: Rounding, saturate: Saturation, lane: Lane
) -> list[tuple[int, int]]:
    """Return the words of magnitudes from which on the code of the result is another one, with these codes."""
    values = [value for value in map(fmt.decode, range(1 << fmt.width)) if isinstance(value, Fraction)]
    numbers = sorted({abs(value) for value in values if value and (value < 0) == negative})
    if fmt.threshold is not None:
        numbers.append(fmt.threshold)
    boundaries = [(0, fmt.encode_magnitude(Fraction(0), negative, rounding, saturate=saturate))]
    for low, high in itertools.pairwise([Fraction(0), *numbers]):
        middle = fmt.middle(low, high)
        held = all(lane.holds(value, lane.mantissa) for value in (low, middle, high))
        need(held, f"the numbers of {fmt}, or the middles between them, have more digits than it has")
        points = [
            (lane.word(low) + 1, (low + middle) / 2),
            (lane.word(middle), middle),
            (lane.word(middle) + 1, (middle + high) / 2),
            (lane.word(high), high),
        ]
        for word, magnitude in points:
            code = fmt.encode_magnitude(magnitude, negative, rounding, saturate=saturate)
            if code != boundaries[-1][1]:
                boundaries.append((word, code))
    return boundaries


def _never(lane: Lane) -> int:
    """Return a word above that of infinity."""
    return (1 << (lane.bits - 1)) - 1


def _word(fmt: Format, code: int, lane: Lane) -> int:
    """Return the word of the number of a code."""
    value, sign = fmt.decode(code), 1 << (lane.bits - 1)
    infinity = (2 * lane.bias + 1) << lane.mantissa
    if isinstance(value, Fraction):
        return lane.word(abs(value)) | (sign if fmt.negative(code) else 0)
    if math.isnan(value):
        return infinity | 1 << (lane.mantissa - 1)
    return infinity | (sign if value < 0 else 0)
