"""The general kernel: 128-bit integers, with formats, roundings and sources as run-time parameters."""

import ctypes
import functools

from halfulp.hdl.formats import Format, Rounding, Saturation
from halfulp.hdl.formats.rounding import ALL_MODES
from halfulp.hdl.specs import MacSpec

from . import build
from .launch import I64, POINTER
from .text import PHILOX, TYPES

KINDS = ("none", "given", "register", "inverting", PHILOX)
"""Sources of random words, in the order of words.h."""


class Parameters(ctypes.Structure):
    """Struct ``Parameters`` of exact.h: a format."""

    _fields_ = (("family", I64), ("members", I64 * 5), ("codebook", POINTER))


class Rounded(ctypes.Structure):
    """Struct ``Rounding`` of number.h."""

    _fields_ = tuple((name, ctypes.c_int) for name in ("mode", "bits", "places"))


class Source(ctypes.Structure):
    """Struct ``Source`` of words.h: a source of random words."""

    _fields_ = (
        *((name, I64) for name in ("kind", "sum", "bits", "width", "dropped", "taken", "repeated")),
        ("taps", ctypes.c_uint64),
    )


class Conversion(ctypes.Structure):
    """Struct ``Conversion`` of exact.h."""

    _fields_ = (("a", Parameters), ("o", Parameters), ("rounding", Rounded), ("saturation", I64), ("bytes", I64))


class MacStep(ctypes.Structure):
    """Struct ``MacStep`` of exact.h: a multiply-accumulate step."""

    _fields_ = (
        *((name, Parameters) for name in ("a", "b", "o", "product")),
        *((name, Rounded) for name in ("rounding", "product_rounding", "leading")),
        *((name, I64) for name in ("saturation", "rounds_product", "quire_width", "quire_quantum", "parts")),
        *((name, Source) for name in ("sum_words", "product_words")),
    )


KERNEL = "exact", '#include "exact.h"\n'
"""Name and source of the kernel."""


def library(seconds: float) -> ctypes.CDLL | None:
    """Compile or load the kernel; None if it cannot be compiled, or is not worth it yet (see `build.library`)."""
    return build.library(*KERNEL, seconds)


@functools.lru_cache(maxsize=1024)
def conversion(a: Format, o: Format, rounding: Rounding, saturate: Saturation, size: int) -> Conversion:
    """Return the arguments of a conversion of elements with ``size`` bytes."""
    return Conversion(_format(a), _format(o), _rounding(rounding), saturate, size)


@functools.lru_cache(maxsize=1024)
def step(spec: MacSpec, source: str | None) -> MacStep:
    """Return the arguments of a multiply-accumulate step; ``source`` is ``philox`` for counter-based words."""
    quire, part = spec.quire, spec.o.part_format
    return MacStep(
        *(_format(fmt) for fmt in (spec.a, spec.b, part, spec.product or part)),
        _rounding(spec.rounding),
        _rounding(spec.product_rounding),
        _rounding(spec.o.leading(spec.rounding) if spec.o.parts > 1 else spec.rounding),
        spec.saturate,
        spec.product is not None,
        quire.width if quire else 0,
        quire.quantum if quire else 0,
        spec.o.parts,
        _source(spec, source, "random"),
        _source(spec, source, "random_product"),
    )


@functools.lru_cache(maxsize=1024)
def _format(fmt: Format) -> Parameters:
    cpp = TYPES[type(fmt)]
    table, members = cpp.tables(fmt), (I64 * 5)(*cpp.members(fmt))
    made = Parameters(list(TYPES).index(type(fmt)), members, None if table is None else ctypes.addressof(table))
    made.table = table
    return made


def _rounding(rounding: Rounding) -> Rounded:
    return Rounded(ALL_MODES.index(rounding.mode), rounding.bits, rounding.places)


def _source(spec: MacSpec, source: str | None, name: str) -> Source:
    bits, of_sum, register = spec.words.get(name, 0), name == "random", spec.random
    if not bits:
        return Source()
    if source == PHILOX or register is None:
        return Source(KINDS.index(source or "given"), of_sum, bits)
    kind, part = "inverting" if register.inverting else "register", register.part(bits)
    taps = sum(1 << (tap - 1) for tap in register.taps)
    return Source(KINDS.index(kind), of_sum, bits, register.register, part.dropped, part.taken, part.repeated, taps)
