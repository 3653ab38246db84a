"""Line segments in hardware: selection of the piece of an argument and of its coefficients.

Coefficients are constants selected by an index, as are shifted multiples of the argument.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Value

from .fixed import FixedRaw, add
from .formats import RN
from .formats.base import floor_log2
from .product import plus_is_smaller, product, product_plus
from .raw import LeadingZeros, Promises, Raw
from .specs.pieces import Piece, PowerSum, last_place
from .wire import NEVER, extended, lookup, shifted_up, wire

LONGEST_SINGLE_INDEX = 4
"""Maximum width of an index from `search` that reads a single table. A longer one reads two tables with its upper bits,
and its lowest bit, which is found last, selects a value. With a single table, Yosys would repeat parts of it in the
logic that reads it."""

Line = tuple[Fraction, Fraction]
"""Slope and intercept of a line."""

SHORT_KEY = 7
"""Maximum width of keys that are looked up in a table; each result bit is then two LUTs."""


@dataclass(frozen=True)
class Choice:
    """Selection of one of several lines.

    Attributes
    ----------
    index : Value
        Index of the selected line; it may have no bits.
    lines : sequence of Line
        One line for each value of the index.
    searched : bool
        The lowest bit of the index is the last one that a search finds.
    """

    index: Value
    lines: Sequence[Line]
    searched: bool = False

    @property
    def slopes(self) -> list[Fraction]:
        """Slopes of all lines."""
        return [slope for slope, _ in self.lines]

    @property
    def intercepts(self) -> list[Fraction]:
        """Intercepts of all lines."""
        return [intercept for _, intercept in self.lines]


def search(m: Module, key: Value, thresholds: Sequence[int], name: str, *, fast: bool = False) -> Value:
    """Return the number of ascending thresholds that are at most ``key``, or any larger number for all of them.

    Key bits below all thresholds are ignored. A short key is looked up. A longer one uses binary search with one
    comparator per result bit; the previous bits select the threshold to compare with. Of a number of thresholds that is
    a power of two, the last one is compared beside the search of the others. With ``fast``, the last step does not wait
    for the previous bit: it compares with the thresholds for both values of this bit, which needs one more comparator.
    """
    if not thresholds:
        return Const(0, 0)
    low = low_bits(len(key), thresholds)
    key, thresholds = _upper(key, low), [threshold >> low for threshold in thresholds]
    if len(key) <= SHORT_KEY:
        reached = [sum(threshold <= start for threshold in thresholds) for start in _all_of(key)]
        return wire(m, table(key[:], reached), name)
    *others, last = thresholds
    highest: Value = Const(0, 0)
    if len(thresholds) & len(others) == 0:
        highest = wire(m, _reaches(key, highest, [last]), f"{name}_last")
        thresholds = others
        if not key.shape().signed:
            # If the last threshold is reached, the other comparisons do not matter: they ignore the upper bits.
            key = key[: max(last - 1, 1).bit_length()]
    bits = len(thresholds).bit_length()
    never = 1 << len(key)
    padded = [*thresholds, *[never] * ((1 << bits) - 1 - len(thresholds))]
    index: Value = Const(0, 0)
    for level in range(bits):
        half = 1 << (bits - level - 1)
        against = [padded[(2 * prefix + 1) * half - 1] for prefix in range(1 << level)]
        if fast and 0 < level == bits - 1:
            both = [_reaches(key, index[1:], against[bit::2]) for bit in (0, 1)]
            if_0, if_1 = (wire(m, reached, f"{name}_{level}_if_{bit}") for bit, reached in enumerate(both))
            reached = Mux(index[0], if_1, if_0)
        else:
            reached = _reaches(key, index, against)
        index = Cat(wire(m, reached, f"{name}_{level}"), index)
    return wire(m, Cat(index, highest), name)


def _reaches(key: Value, index: Value, thresholds: Sequence[int]) -> Value:
    """Return whether the threshold at an index is at most ``key``; key bits below all thresholds are ignored."""
    low = low_bits(len(key), thresholds)
    return _upper(key, low) > table(index, [(threshold >> low) - 1 for threshold in thresholds])


def _upper(key: Value, low: int) -> Value:
    """Return a key, signed or not, without its ``low`` lowest bits."""
    return key[low:].as_signed() if key.shape().signed else key[low:]


def _all_of(key: Value) -> list[int]:
    """Return all values of a key in order of their codes."""
    count = 1 << len(key)
    return [code - count if key.shape().signed and code >= count // 2 else code for code in range(count)]


@dataclass(frozen=True)
class Blocks:
    """Division of a key's range into the largest blocks of equal size that no threshold splits.

    Attributes
    ----------
    index : Value
        Index of the block.
    low : int
        Number of key bits below the index.
    starts : list of int
        First key of each block, by index.
    places : list of int
        Number of thresholds that are at most the first key of each block.
    """

    index: Value
    low: int
    starts: list[int]
    places: list[int]

    @classmethod
    def of(cls, key: Value, thresholds: Sequence[int]) -> "Blocks":
        """Return the blocks of a key, signed or not."""
        low = low_bits(len(key), thresholds)
        upper = _upper(key, low)
        starts = [start << low for start in _all_of(upper)]
        return cls(upper[:], low, starts, [sum(threshold <= start for threshold in thresholds) for start in starts])


def low_bits(width: int, thresholds: Sequence[int]) -> int:
    """Return the number of low bits that are zero in all thresholds, at most ``width - 1``."""
    low = width - 1
    for threshold in thresholds:
        if threshold:
            low = min(low, (threshold & -threshold).bit_length() - 1)
    return low


def by_sign(
    m: Module, index: Value, sign: Value, sides: Sequence[Sequence[Piece]], *, searched: bool = False
) -> Choice:
    """Return the line of an index, which may be that of a `search`; if there are two sides, the sign selects one."""
    padded = [[side[min(place, len(side) - 1)] for place in range(1 << len(index))] for side in sides]
    lines = [(piece.slope, piece.intercept) for side in padded for piece in side]
    return Choice(wire(m, Cat(index, sign), "line") if len(sides) > 1 else index, lines, searched)


def by_address(
    m: Module, x: FixedRaw, thresholds: Sequence[int], sides: Sequence[Sequence[Piece]]
) -> tuple[Choice, FixedRaw]:
    """Return the line of a number's block, and the distance of the number from the start of the block.

    A second side is for negative numbers, where a piece includes its threshold at the other end. Thresholds are starts
    of blocks, where the distance is zero and only the intercept matters; one more index bit selects another intercept
    there.
    """
    blocks = Blocks.of(x.integer, thresholds)
    unit = Fraction(2) ** x.quantum
    inside, at_start = [], []
    for start, place in zip(blocks.starts, blocks.places, strict=True):
        piece = edge = sides[0][min(place, len(sides[0]) - 1)]
        if start < 0 and len(sides) > 1:
            piece = sides[1][sum(threshold < -start for threshold in thresholds)]
            edge = sides[1][sum(threshold <= -start for threshold in thresholds)]
        inside.append((piece.slope, piece.at(start * unit)))
        at_start.append((piece.slope, edge.at(start * unit)))
    low = wire(m, x.integer[: blocks.low], "distance") if blocks.low else Const(0, 1)
    index = wire(m, blocks.index, "block")
    if inside != at_start:
        index = wire(m, Cat(index, ~low.any()), "line")
        inside += at_start
    return Choice(index, inside), replace(x, integer=low, sign=NEVER)


def with_values(m: Module, choice: Choice, taken: Any) -> Choice:
    """Add special values to the lines as constant lines, selected by ``taken.where``."""
    if not taken.values:
        return choice
    any_taken = taken.where.any()
    number: Value = Const(0, 1)
    for place in range(1, len(taken.values)):
        number = Mux(taken.where[place], place, number)
    width = max(len(choice.index), (len(taken.values) - 1).bit_length())
    mixed = Mux(any_taken, number, choice.index)[:width]
    lines = [choice.lines[min(place, len(choice.lines) - 1)] for place in range(1 << width)]
    lines += [(Fraction(0), value) for value in taken.values]
    return replace(choice, index=wire(m, Cat(mixed, any_taken), "line_or_value"), lines=lines)


def raised_by(choice: Choice, amount: Fraction) -> Choice:
    """Add a constant to all lines."""
    return replace(choice, lines=[(slope, intercept + amount) for slope, intercept in choice.lines])


def table(index: Value, values: Sequence[int], *, searched: bool = False) -> Value:
    """Return the value at an index, which may have no bits or be that of a `search`."""
    if len(set(values)) == 1:
        index, values = Const(0, 1), [values[0]]
    if searched and len(index) > LONGEST_SINGLE_INDEX:
        return Mux(index[0], lookup(index[1:], list(values[1::2])), lookup(index[1:], list(values[::2])))
    return lookup(index, list(values))


def as_fixed_raw(m: Module, index: Value, values: Sequence[Fraction], name: str, *, searched: bool = False) -> FixedRaw:
    """Return constants selected by an index, as fixed-point numbers on the coarsest exact scale."""
    quantum = min((last_place(value) for value in values if value), default=0)
    integers = [int(value / Fraction(2) ** quantum) for value in values]
    integer = wire(m, table(index, integers, searched=searched), name)
    sign = integer[-1] if integer.shape().signed else NEVER
    return FixedRaw(integer, sign, quantum)


def as_raw(m: Module, index: Value, values: Sequence[Fraction], name: str) -> Raw:
    """Return constants selected by an index, as raw numbers without leading zeros.

    The lowest exponent field is 1, as that of a float, because small products subtract 2 from that of the other factor.
    """
    exponents = [floor_log2(abs(value)) for value in values if value] or [0]
    emin, emax = min(exponents), max(exponents)
    places = max((floor_log2(abs(value)) - last_place(value) for value in values if value), default=0)
    fields, significands = [], []
    for value in values:
        first = floor_log2(abs(value)) if value else emin
        fields.append(first - emin + 1)
        significands.append(int(abs(value) / Fraction(2) ** (first - places)))
    width = (emax - emin + 1).bit_length()
    return Raw(
        sign=wire(m, table(index, [int(value < 0) for value in values])[:1], f"{name}_sign"),
        exponent=wire(m, table(index, fields)[:width], f"{name}_exponent"),
        significand=wire(m, extended(table(index, significands), places + 1)[: places + 1], f"{name}_significand"),
        zero=wire(m, table(index, [int(value == 0) for value in values])[:1], f"{name}_zero"),
        base=emin - 1,
        promises=Promises(emin=emin, emax=emax, leading=LeadingZeros.NONE, zero_at_floor=True),
    )


def value_of(
    m: Module, x: FixedRaw, choice: Choice, low: Fraction, high: Fraction, *, dsp: bool, shifts: bool
) -> FixedRaw:
    """Return slope times x plus intercept, in the bits that results from ``low`` to ``high`` need.

    The product is an integer product; its first row adds the intercept if that needs fewer adder bits. With ``shifts``,
    it is a sum of shifted copies of x.
    """
    intercept = as_fixed_raw(m, choice.index, choice.intercepts, "intercept", searched=choice.searched)
    if shifts:
        return trimmed(m, add(m, intercept, _shifted(m, x, choice), RN), low, high)
    slope = as_fixed_raw(m, choice.index, choice.slopes, "slope", searched=choice.searched)
    quantum = x.quantum + slope.quantum
    # Bits of the intercept below the last place of the product, or zeros to append to it. A sum modulo 2**width is
    # enough for results from low to high.
    below, zeros = max(quantum - intercept.quantum, 0), max(intercept.quantum - quantum, 0)
    width = max(_width_of(low, high, quantum - below), below + 1)
    if dsp or not plus_is_smaller(x.integer, slope.integer, width - below, zeros):
        whole = wire(m, product(m, x.integer, slope.integer, "partial_product", dsp=dsp), "product")
        return trimmed(m, add(m, intercept, replace(x, integer=whole, sign=NEVER, quantum=quantum), RN), low, high)
    addend = extended(shifted_up(intercept.integer, zeros), width)[:width]
    upper = product_plus(m, x.integer, slope.integer, addend[below:], "partial_sum")
    total = Cat(addend[:below], upper).as_signed()
    return trimmed(m, replace(x, integer=total, quantum=quantum - below), low, high)


def _width_of(low: Fraction, high: Fraction, quantum: int) -> int:
    """Return the width of integers for multiples of ``2**quantum`` from ``low`` to ``high``, signed below zero."""
    unit = Fraction(2) ** quantum
    least, most = math.ceil(low / unit), math.floor(high / unit)
    return max(most.bit_length(), (~least).bit_length() if least < 0 else 0, 1) + (low < 0)


def trimmed(m: Module, x: FixedRaw, low: Fraction, high: Fraction) -> FixedRaw:
    """Reduce a number to the bits that numbers from ``low`` to ``high`` need."""
    width = min(_width_of(low, high, x.quantum), len(x.integer))
    signed = x.integer.shape().signed and low < 0
    integer = x.integer[:width]
    integer = wire(m, integer.as_signed() if signed else integer, "value")
    return replace(x, integer=integer, sign=integer[-1] if signed else NEVER)


def _shifted(m: Module, x: FixedRaw, choice: Choice) -> FixedRaw:
    """Return a sum of signed powers of two times x. A single term may be negated by the following addition."""
    powers = [PowerSum.powers(slope) for slope in choice.slopes]
    terms = max(len(of_one) for of_one in powers)
    quantum = min((exponent for of_one in powers for _, exponent in of_one), default=0)
    total: Value = Const(0, 1)
    negative: Value = NEVER
    signed = x.integer.shape().signed
    for term in range(terms):
        places = [of_one[term][1] - quantum if term < len(of_one) else None for of_one in powers]
        minus = [int(term < len(of_one) and of_one[term][0] < 0) for of_one in powers]
        width = len(x.integer) + max((place for place in places if place is not None), default=0)
        options = [
            Const(0, width) if place is None else extended(shifted_up(x.integer, place), width) for place in places
        ]
        shifted = wire(m, _chosen(choice.index, options), f"shifted_{term}")
        negative = wire(m, table(choice.index, minus)[:1], f"negative_{term}") if any(minus) else NEVER
        if terms == 1:
            total = shifted.as_signed() if signed else shifted
            break
        # One more bit for the sign. The negative of a term is its inverse plus one, a carry from the bit below.
        added = Cat(shifted, shifted[-1] if signed else NEVER) ^ negative.replicate(width + 1)
        below = Cat(Const(1, 1), total)
        below = below.as_signed() if term else below
        total = wire(m, (below + Cat(negative, added).as_signed())[1:].as_signed(), f"multiple_{term}")
        negative = NEVER
    return replace(x, integer=total, sign=NEVER, negated=negative, quantum=x.quantum + quantum)


def _chosen(index: Value, options: Sequence[Value]) -> Value:
    """Return the option at an index."""
    if len(index) == 0:
        return options[0]
    if len(options) == 2:
        return Mux(index[0], options[1], options[0])
    return Array(options)[index]
