"""Tables of codebooks, as C++ source and as ctypes structures."""

import ctypes
from collections.abc import Iterable
from fractions import Fraction

from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.formats.codebook import Codebook

WIDEST = 86
"""Limit on the bits from the last place to the largest magnitude; with the discarded bits they fit 128 bits."""

SIGNED = frozenset({"lasts", "exponents", "flags"})
"""Tables of signed integers."""


class Tables(ctypes.Structure):
    """Struct ``Codebook`` of codebook.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("width", "quantum", "floors", "has_threshold")),
        ("nan_code", ctypes.c_uint64),
        *((name, ctypes.c_void_p) for name in ("infinities", "lasts", "significands", "exponents", "flags")),
        *((name, ctypes.c_void_p * 2) for name in ("magnitudes", "codes")),
    )


def name_of(fmt: Codebook) -> str:
    """Return the name of a format's C++ object."""
    return f"codebook_{fmt.name}"


def holds(fmt: Codebook) -> bool:
    """Return True if the kernels can compute with a format in 128-bit integers."""
    highest = max(entry.magnitude for side in fmt.rounding_tables for entry in side)
    return floor_log2(highest) - fmt.quantum < WIDEST and fmt.precision <= 64


def define(fmt: Codebook) -> str:
    """Return the C++ definition of a format's object and its tables."""
    tables, space = _tables(fmt), f"tables_{fmt.name}"
    lines = [
        f"static constexpr {'i64' if name in SIGNED else 'u64'} {name}[] = {{{_row(tables[name], name)}}};"
        for name in tables
    ]
    singles = ", ".join(f"{space}::{name}" for name in list(tables)[:5])
    pairs = ", ".join(f"{{{space}::positive_{name}, {space}::negative_{name}}}" for name in ("magnitudes", "codes"))
    members = f"{', '.join(map(str, _scalars(fmt)))}, {singles}, {pairs}"
    return "\n".join(
        [
            f"namespace halfulp {{ namespace {space} {{",
            *lines,
            f"}} static constexpr Codebook {name_of(fmt)}{{{members}}}; }}",
        ]
    )


def structure(fmt: Codebook) -> Tables:
    """Make the ctypes structure of a format, with its tables."""
    arrays = {
        name: ((ctypes.c_int64 if name in SIGNED else ctypes.c_uint64) * len(row))(*row)
        for name, row in _tables(fmt).items()
    }
    addresses = [ctypes.addressof(array) for array in arrays.values()]
    pair = ctypes.c_void_p * 2
    made = Tables(*_scalars(fmt), *addresses[:5], pair(*addresses[5:7]), pair(*addresses[7:]))
    made.arrays = arrays
    return made


def _row(values: Iterable[int], name: str) -> str:
    return ", ".join(str(value) if name in SIGNED else f"{value}ull" for value in values)


def _scalars(fmt: Codebook) -> tuple[int, ...]:
    return fmt.width, fmt.quantum, int(fmt.rounds == "floor"), int(fmt.threshold is not None), fmt.nan_code


def _tables(fmt: Codebook) -> dict[str, list[int]]:
    """Return the tables of a format, in the order of codebook.h."""
    significands, exponents, flags = [], [], []
    for code, value in enumerate(fmt.values):
        number = abs(value) if isinstance(value, Fraction) else Fraction(0)
        place = floor_log2(number) - fmt.precision + 1 if number else 0
        special = isinstance(value, float) and value != 0
        significands.append(int(number / Fraction(2) ** place) if not special else 1)
        exponents.append(place)
        flags.append(fmt.negative(code) + 2 * (value != value) + 4 * (special and value == value))
    tables = {
        "infinities": [fmt.infinity(False), fmt.infinity(True)],
        "lasts": [len(side) - 1 for side in fmt.rounding_tables],
        "significands": significands,
        "exponents": exponents,
        "flags": flags,
    }
    sides = dict(zip(("positive", "negative"), fmt.rounding_tables, strict=True))
    for sign, side in sides.items():
        tables[f"{sign}_magnitudes"] = [
            half for entry in side for half in (entry.units >> 64, entry.units & (1 << 64) - 1)
        ]
    for sign, side in sides.items():
        tables[f"{sign}_codes"] = [entry.odd if entry.code is None else entry.code for entry in side]
    return tables
