"""Internal random sources of units."""

import re

from amaranth.hdl import Cat, Const, Value

from halfulp.hdl.formats.source import Stream

SOURCE = "random"
"""Prefix of the names of registers of internal random sources; a number follows."""


def word_of(stream: Stream, word: Value, bits: int) -> Value:
    """Return the random word of a stream, in ``bits`` bits, from the word of its source."""
    zeros, places = stream.bits_of(bits)
    picked = Cat(*(word[place] for place in places))
    return Cat(Const(0, zeros), ~picked if stream.complemented else picked)


def is_source(register: str) -> bool:
    """Return True for the register name of an internal random source."""
    return re.match(rf"{SOURCE}\d", register) is not None
