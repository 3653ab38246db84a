"""Wide sums of terms, split into words that are added without waiting for the carries of lower words.

The carries out of the adders of a word are counted, and the count is added to the next word. The longest path then
holds the carry chains of one word, and one LUT or two for each word above it.

Source: words whose carry comes last, as in carry-select and conditional-sum adders (Bedrij, IRE Trans. Electronic
Computers EC-11(3), 1962; Sklansky, EC-9(2), 1960). Full adders that count conditions: Wallace, EC-13(1), 1964.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Value

from .tree import Sum, Term, first_part, with_flags
from .wire import NEVER, added_in_tables, extended, incremented, wire

WIDTHS = range(61, 201)
"""Numbers of bits of a term for which words are used. Sums of e5m2*e4m3fn, 50 bits, have no shorter path with words.
The Verilog of sums of 500 bits and more, as of bf16 and takums, would be more than twice as long."""

WORD = 19
"""Bits of a word: with its carry, an adder fills five carry cells of four bits. The lowest word has one bit less, as a
carry-in takes one. Words of 15 bits are so many that the path through their carries is longer."""


class Word(NamedTuple):
    """Part of a sum, and carries into the next word, each of the weight of its lowest bit."""

    bits: Value
    carries: list[Value]


def total(m: Module, terms: Sequence[Term], *, chained: bool) -> Sum:
    """Return the sum of two or more terms relative to the first one; ``inverted`` of the others is relative to it too.

    ``chained`` is that of `tree.total`.
    """
    return with_flags(m, terms, _joined(m, _words(m, terms, chained), "total"), terms[0].negative)


def _words(m: Module, terms: Sequence[Term], chained: bool) -> list[Word]:
    """Return the sum of terms as words. The last one is the number of negative terms, negated: their sign bits."""
    width = max(len(term.integer) - term.integer.shape().signed for term in terms)
    integers = [extended(term.integer, width + 1) for term in terms]
    lows = _lowest_bits(width)
    words = []
    for low, high in zip(lows, [*lows[1:], width], strict=True):
        parts = [integer[low:high] for integer in integers]
        # The ones' complement of a number is its negative after an increment.
        increments = [NEVER if low else term.inverted for term in terms]
        words.append(_added(m, parts, increments, f"total_from_{low}", chained))
    signs = counted(m, [integer[width] for integer in integers[1:]], "total_signs")
    # From -(n - 1) to n - 1 are the words above those of n terms, with their carries.
    bits = 1 + (len(terms) - 1).bit_length()
    return [*words, Word(wire(m, (~extended(signs, bits) + 1)[:bits], "total_from_signs"), [])]


def _lowest_bits(width: int) -> list[int]:
    """Return the lowest bit of each word. The highest word also has the bits that are too few for another one."""
    return [0, *range(WORD - 1, width - WORD + 1, WORD)]


def _added(m: Module, parts: Sequence[Value], increments: Sequence[Value], name: str, chained: bool) -> Word:
    """Return the sum of unsigned parts of one width, and of the increments of all but the first."""
    if len(parts) == 1:
        return Word(parts[0], [])
    half = first_part(len(parts), chained)
    x = _added(m, parts[:half], increments[:half], f"{name}_low", chained)
    y = _added(m, parts[half:], increments[half:], f"{name}_high", chained)
    if isinstance(increments[half], Const):
        added = x.bits + y.bits
    else:
        added = (Cat(Const(1, 1), x.bits) + Cat(increments[half], y.bits))[1:]
    added = wire(m, added, name)
    return Word(added[:-1], [*x.carries, *y.carries, added[-1]])


def _joined(m: Module, words: Sequence[Word], name: str) -> Value:
    """Return the signed integer of words, lowest first, to each of which the carries of the one below are added."""
    joined, carry = [words[0].bits], NEVER
    for index, (below, word) in enumerate(pairwise(words), 1):
        bits, carry = _increased(m, word.bits, below.carries, carry, f"{name}_word_{index}")
        joined.append(bits)
    return wire(m, Cat(*joined).as_signed(), name)


def _increased(m: Module, word: Value, carries: Sequence[Value], carry: Value, name: str) -> tuple[Value, Value]:
    """Return a word plus carries, of which ``carry`` is ready last and the last of ``carries`` before it.

    A word gets fewer carries than there are terms, ``carry`` included. So they carry out of the lowest bits, which are
    as many as those of their number, at most once.
    """
    places = len(carries).bit_length()
    count = extended(counted(m, carries[:-1], f"{name}_count"), places)
    low, out = added_in_tables(word[:places], count)
    low, out_of_late = added_in_tables(low, extended(carries[-1], places))
    low = wire(m, low, f"{name}_low")
    out = wire(m, out | out_of_late, f"{name}_out")
    through = wire(m, low.all(), f"{name}_through")
    upper = word[places:]
    up = wire(m, out | (through & carry), f"{name}_up")
    bits = [incremented(m, low, carry, f"{name}_low_sum"), incremented(m, upper, up, f"{name}_upper")]
    ones = wire(m, upper.all(), f"{name}_ones")
    return Cat(*bits), wire(m, (out & ones) | (through & ones & carry), f"{name}_carry")


def counted(m: Module, conditions: Sequence[Value], name: str) -> Value:
    """Return the number of true conditions, which full adders reduce to a bit for each power of two."""
    columns, count = [list(conditions)], []
    for column in columns:
        carries = []
        while len(column) > 1:
            x, y, z = [*column[:3], NEVER][:3]
            del column[:3]
            column.append(wire(m, x ^ y ^ z, f"{name}_sum"))
            carries.append(wire(m, (x & y) | ((x | y) & z), f"{name}_carry"))
        count += column
        if carries:
            columns.append(carries)
    return Cat(*count)
