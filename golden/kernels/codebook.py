"""Tables of codebooks as C++."""

from collections.abc import Iterable
from fractions import Fraction

from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.formats.codebook import Codebook

WIDEST = 86
"""Bits from the last place to the largest magnitude, so that 128 bits hold what any rounding looks at, too."""


def type_of(fmt: Codebook) -> str:
    """C++ type of a format."""
    return f"Codebook<Values_{fmt.name}>"


def holds(fmt: Codebook) -> bool:
    """True if integers of 128 bits hold the numbers."""
    highest = max(rung.magnitude for side in fmt.rungs for rung in side)
    return floor_log2(highest) - fmt.quantum < WIDEST and fmt.precision <= 64


def define(fmt: Codebook) -> str:
    """Tables of a format."""
    significands, exponents, flags = [], [], []
    for code, value in enumerate(fmt.values):
        number = abs(value) if isinstance(value, Fraction) else Fraction(0)
        place = floor_log2(number) - fmt.precision + 1 if number else 0
        special = isinstance(value, float) and value != 0
        significands.append(f"{int(number / Fraction(2) ** place) if not special else 1}ull")
        exponents.append(place)
        flags.append(fmt.negative(code) + 2 * (value != value) + 4 * (special and value == value))
    sides = []
    for sign, side in zip(("positive", "negative"), fmt.rungs, strict=True):
        codes = [rung.odd if rung.code is None else rung.code for rung in side]
        sides += [
            f"static constexpr u128 {sign}_rungs[] = {_row(_u128(rung.units) for rung in side)};",
            f"static constexpr u64 {sign}_codes[] = {_row(codes)};",
        ]
    lines = [
        f"static constexpr int width = {fmt.width}, quantum = {fmt.quantum};",
        f"static constexpr bool floors = {int(fmt.rounds == 'floor')};",
        f"static constexpr bool has_threshold = {int(fmt.threshold is not None)};",
        f"static constexpr u64 nan_code = {fmt.nan_code};",
        f"static constexpr u64 infinities[] = {_row([fmt.infinity(False), fmt.infinity(True)])};",
        f"static constexpr int lasts[] = {_row(len(side) - 1 for side in fmt.rungs)};",
        f"static constexpr u64 significands[] = {_row(significands)};",
        f"static constexpr int exponents[] = {_row(exponents)};",
        f"static constexpr unsigned char flags[] = {_row(flags)};",
        *sides,
        "static const u128* rungs(bool sign) { return sign ? negative_rungs : positive_rungs; }",
        "static const u64* codes(bool sign) { return sign ? negative_codes : positive_codes; }",
    ]
    return "\n".join([f"namespace halfulp {{ struct Values_{fmt.name} {{", *lines, "}; }"])


def _row(values: Iterable[object]) -> str:
    return "{" + ", ".join(map(str, values)) + "}"


def _u128(value: int) -> str:
    return f"(u128({value >> 64}ull) << 64 | {value & ((1 << 64) - 1)}ull)"
