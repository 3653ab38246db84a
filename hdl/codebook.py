"""Codebooks in hardware: tables decode the codes, and results are searched among the magnitudes of their sign."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Value

from . import fixed
from .fixed import FixedRaw
from .formats import RN, RZ, Rounding, Saturation
from .formats.base import floor_log2
from .formats.codebook import Codebook
from .lines import search
from .raw import LeadingZeros, Promises, Raw
from .round import ChosenRounding, RoundingBits, round_outward, to_largest
from .wire import lookup, shifted_up, wire

MAX_WIDTH = 8
"""Maximum width of a codebook in hardware; larger tables would exceed every other part of a unit."""


def _check(fmt: Codebook) -> None:
    if fmt.width > MAX_WIDTH:
        raise ValueError(f"{fmt} has {fmt.width} bits; codebooks in hardware have at most {MAX_WIDTH}")


def unpack(m: Module, bits: Value, fmt: Codebook, name: str) -> Raw:
    """Unpack a code to a raw number."""
    _check(fmt)
    exponents = [floor_log2(abs(value)) for value in fmt.values if isinstance(value, Fraction) and value]
    emin, emax = min(exponents), max(exponents)
    codes = range(1 << fmt.width)

    def parts(code: int) -> tuple[int, int]:
        """Return the exponent minus ``emin``, and the significand with its leading one at the top.

        Infinities have a leading one like those of floats, because zero divided by one is the result of ``x / inf``.
        """
        value = fmt.decode(code)
        if not isinstance(value, Fraction):
            return 0, 1 << (fmt.precision - 1)
        if value == 0:
            return 0, 0
        exponent = floor_log2(abs(value))
        return exponent - emin, int(abs(value) / Fraction(2) ** (exponent - fmt.precision + 1))

    def flags(values: Sequence[bool], text: str) -> Value:
        return wire(m, lookup(bits, [int(value) for value in values]), f"{name}_{text}")

    return Raw(
        sign=flags([fmt.negative(code) for code in codes], "sign"),
        exponent=wire(m, lookup(bits, [parts(code)[0] for code in codes]), f"{name}_exponent"),
        significand=wire(m, lookup(bits, [parts(code)[1] for code in codes]), f"{name}_significand"),
        nan=flags([value != value for value in fmt.values], "nan"),
        inf=flags([value in (float("inf"), -float("inf")) for value in fmt.values], "inf"),
        zero=flags([value == 0 for value in fmt.values], "zero"),
        base=emin,
        promises=Promises(emin=emin, emax=emax, leading=LeadingZeros.NONE, zero_at_floor=True),
    )


@dataclass(frozen=True)
class TruncatedCodebook:
    """Magnitude between two entries of a rounding table.

    ``index`` is the index of the lower entry, ``discarded`` the distance from it as a binary fraction of the gap. A
    ``final`` entry never rounds up.
    """

    sign: Value
    index: Value
    last: Value
    discarded: Value
    sticky: Value
    final: Value
    nan: Value
    inf: Value


def truncate(m: Module, x: Any, o: Codebook, rounding: Rounding) -> TruncatedCodebook:
    """Find the entry at or below the magnitude, and the distance to it as a fraction of the gap."""
    _check(o)
    places = rounding.places
    x = _placed(m, x, o, o.quantum - places)
    magnitude = wire(m, fixed.magnitude_of(x), "magnitude")

    indices = [
        search(m, magnitude, [entry.units << places for entry in table[1:]], name)
        for table, name in zip(o.rounding_tables, ("positive_rung", "negative_rung"), strict=True)
    ]
    index = wire(m, Mux(x.sign, indices[1], indices[0])[: max(1, *map(len, indices))], "rung")

    def chosen(values: list[list[int]], name: str) -> Value:
        return wire(m, _of_side(Cat(index, x.sign), values), name)

    steps = [[high.units - low.units for low, high in itertools.pairwise(table)] for table in o.rounding_tables]
    parities = [[entry.odd for entry in table] for table in o.rounding_tables]
    inner = chosen([[entry.units for entry in table] for table in o.rounding_tables], "inner")
    gap = chosen([[*side, 1] for side in steps], "gap")
    final = chosen([[*(0 for _ in side), 1] for side in steps], "final")
    # Long division: each step gives one bit of the distance to the next entry.
    rest = wire(m, (magnitude - Cat(Const(0, places), inner))[: len(magnitude)], "beyond_inner")
    quotient = []
    for place in reversed(range(places)):
        step = Cat(Const(0, place), gap)
        reached = wire(m, rest >= step, f"way_{place}")
        rest = wire(m, Mux(reached, rest - step, rest)[: len(magnitude)], f"rest_{place}")
        quotient.append(reached)
    return TruncatedCodebook(
        sign=x.sign,
        index=index,
        last=chosen(parities, "last"),
        discarded=Cat(*reversed(quotient)),
        sticky=wire(m, rest.any() | x.sticky, "sticky"),
        final=final,
        nan=x.nan,
        inf=x.inf,
    )


def _placed(m: Module, x: Any, o: Codebook, quantum: int) -> FixedRaw:
    """Convert a number to fixed point on a scale that holds all entries, clipped above the largest."""
    if isinstance(x, FixedRaw):
        placed = fixed.truncate_below(m, x, quantum)
    else:
        highest = max(entry.magnitude for table in o.rounding_tables for entry in table)
        placed = fixed.of_raw(m, x, max(quantum, x.quantum), floor_log2(highest) + 1, "result")
    return replace(placed, integer=shifted_up(placed.integer, placed.quantum - quantum), quantum=quantum)


def pack(
    m: Module, x: TruncatedCodebook, o: Codebook, rounding: Rounding, saturating: Saturation, random: Value | None
) -> Value:
    """Round a number once to a code."""
    bits = RoundingBits(x.sign, x.last, x.discarded, x.sticky)
    outward = round_outward(rounding, bits, random, floors=o.rounds == "floor")
    outward = wire(m, outward & ~x.final, "outward")
    place = wire(m, (x.index + outward)[: len(x.index) + 1], "place")

    def code_at_place(rounding: Rounding) -> Value:
        codes = [
            [o.overflowed(bool(sign), rounding, saturating) if entry.code is None else entry.code for entry in table]
            for sign, table in enumerate(o.rounding_tables)
        ]
        return _of_side(Cat(place, x.sign), codes)

    if isinstance(rounding, ChosenRounding):
        # The results of an overflow are those of rz or rn.
        code = Mux(to_largest(rounding, x.sign, saturating), code_at_place(RZ), code_at_place(RN))
    else:
        code = code_at_place(rounding)
    code = Mux(x.inf, Mux(x.sign, *(o.infinite(negative, saturating) for negative in (True, False))), code)
    return Mux(x.nan, Const(o.nan_code, o.width), code)[: o.width]


def _of_side(index: Value, values: list[list[int]]) -> Value:
    """Return an entry of one of two lists, selected by the sign bit above the index; the last entry repeats."""
    length = 1 << (len(index) - 1)
    return lookup(index, [entry for side in values for entry in (side + side[-1:] * length)[:length]])
