"""Functions of one number by tables of polynomials, and by a table of all results.

Reductions of the argument: Payne and Hanek, ACM SIGNUM Newsletter 18(1), 1983, for angles; Muller, Elementary
Functions, 2016, chapters 6 and 11, for the others.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Value

from .fixed import FixedRaw, of_raw, to_raw
from .formats.base import floor_log2, significand_bits
from .product import product
from .raw import LeadingZeros, OperationFlags, Promises, Raw, normalise
from .specs.polynomials import ANGLE, LOGARITHM, ODD, POWER, RATIO, TURN, Polynomials, Result
from .wire import NEVER, extended, lookup, shift_up, wire


def function_of(m: Module, x: Raw, name: str, table: Polynomials, *, dsp: bool) -> Raw:
    """Return the exact value of a function, with bits below the rounding position merged into sticky."""
    x = normalise(m, x, "x", x.quantum, x.base)
    significand = x.significand[max(len(x.significand) - table.precision, 0) :]
    significand = Cat(Const(0, table.precision - len(significand)), significand)
    # A zero has no ones.
    significand = wire(m, significand & (~x.zero).replicate(table.precision), "argument")
    x = replace(x, significand=significand)
    if table.reduction == POWER:
        return _power(m, x, table, dsp)
    if table.reduction == LOGARITHM:
        return _logarithm(m, x, table, dsp)
    if table.reduction == ANGLE:
        return _angle(m, x, name == "cos", table, dsp)
    if table.reduction == RATIO:
        return _ratio(m, x, table, dsp)
    if table.reduction == TURN:
        return _turn(m, x, name == "cos", table, dsp)
    return _binades(m, x, name, table, dsp)


def _evaluated(m: Module, index: Value, rest: Value, table: Polynomials, dsp: bool) -> Value:
    """Return v of `Polynomials`."""
    constant, *others = (
        wire(m, lookup(index, list(column)), f"coefficient_{place}")
        for place, column in enumerate(zip(*table.rows, strict=True))
    )
    if not table.rest:
        return constant
    bits = (table.rest, *table.inner)
    slope = others[-1]
    for place in reversed(range(len(others))):
        upper = rest[table.rest - bits[place] :]
        moved = wire(m, product(m, slope, upper, f"product_{place}", dsp=dsp), f"moved_{place}")
        slope = wire(m, (others[place - 1] if place else constant) + (moved >> bits[place]), f"polynomial_{place}")
    return slope


def _power(m: Module, x: Raw, table: Polynomials, dsp: bool) -> Raw:
    """Return ``2^(x * factor)``; it is exact for an integer product, which only zero has unless the factor is 1."""
    multiple = x.significand
    if table.factor != 1:
        width = table.precision + table.factor.bit_length()
        multiple = wire(m, product(m, multiple, Const(table.factor), "factor_product", dsp=dsp)[:width], "multiple")
    up = len(multiple) - table.precision - table.places
    leading = LeadingZeros.NONE if table.factor == 1 else LeadingZeros.AT_MOST_ONE
    bounds = Promises(emin=x.promises.emin + up, emax=x.promises.emax + up, leading=leading)
    scaled = of_raw(
        m, replace(x, significand=multiple, base=x.base + up, promises=bounds), -table.fraction, table.high, "scaled"
    )
    fraction, whole = _parts(m, scaled.integer, table.fraction)
    value = _evaluated(m, *_split(fraction, table.segments), table, dsp)
    offset = 1 << (len(whole) - 1)
    exact = x.zero if table.factor != 1 else ~fraction.any() & ~scaled.sticky
    zero = wire(m, x.inf & x.sign, "value_zero")
    return Raw(
        sign=NEVER,
        exponent=wire(m, (whole + offset)[: len(whole)], "value_exponent"),
        significand=_unless(m, zero, value[: table.value + 1]),
        sticky=wire(m, ~exact & ~zero, "is_inexact"),
        nan=x.nan,
        inf=wire(m, x.inf & ~x.sign, "value_inf"),
        zero=zero,
        base=-offset,
        promises=Promises(emin=-offset, emax=offset - 1, leading=LeadingZeros.NONE, zero_emax=offset - 1),
        flags=OperationFlags(invalid=x.flags.invalid),
    )


def _unless(m: Module, zero: Value, value: Value) -> Value:
    """Return a significand; that of a zero has no ones."""
    return wire(m, value & (~zero).replicate(len(value)), "value")


def _parts(m: Module, integer: Value, places: int) -> tuple[Value, Value]:
    """Return the lowest bits of a signed integer, and the others."""
    integer = extended(integer, places + 1)
    return wire(m, integer[:places], "fraction"), wire(m, integer[places:].as_signed(), "power")


def _split(bits: Value, segments: int) -> tuple[Value, Value]:
    """Return the leading bits and the others."""
    return bits[len(bits) - segments :], bits[: len(bits) - segments]


def _logarithm(m: Module, x: Raw, table: Polynomials, dsp: bool) -> Raw:
    """Return ``e * factor + v`` for a number ``2^e * m``."""
    fraction = x.significand[:-1]
    value = _evaluated(m, *_split(fraction, table.segments), table, dsp)
    exponent = wire(m, (x.exponent + x.base).as_signed(), "exponent")
    multiple = wire(m, product(m, exponent, Const(table.factor), "factor_product", dsp=dsp), "multiple")
    total = wire(m, (multiple + value).as_signed(), "logarithm")
    inexact = fraction.any() if table.factor == 1 << table.value else fraction.any() | exponent.any()
    return _of_logarithm(m, x, total, -table.value, inexact)


def _ratio(m: Module, x: Raw, table: Polynomials, dsp: bool) -> Raw:
    """Return ``e * factor + (m - 1) * v`` for a number ``2^e * m`` with 3/4 <= m < 3/2."""
    fraction = x.significand[:-1]
    value = _evaluated(m, *_split(fraction, table.segments), table, dsp)
    # A number from 3/2 on is halved.
    upper = fraction[-1]
    distance = wire(m, Mux(upper, Cat(fraction, upper), Cat(NEVER, fraction)).as_signed(), "distance")
    exponent = wire(m, (x.exponent + x.base + upper).as_signed(), "exponent")
    multiple = wire(m, product(m, exponent, Const(table.factor), "factor_product", dsp=dsp), "multiple")
    near = wire(m, product(m, distance, value, "distance_product", dsp=dsp), "near")
    scale = table.precision + table.value
    total = wire(m, ((multiple << (scale - table.places)) + near).as_signed(), "logarithm")
    return _of_logarithm(m, x, total, -scale, NEVER)


def _of_logarithm(m: Module, x: Raw, total: Value, quantum: int, inexact: Value) -> Raw:
    """Return the logarithm of a number from its value in fixed point, which the special values replace."""
    number = FixedRaw(
        integer=total,
        sign=wire(m, x.zero | (~x.inf & total[-1]), "logarithm_sign"),
        quantum=quantum,
        sticky=inexact,
        nan=wire(m, x.nan | (x.sign & ~x.zero), "logarithm_nan"),
        inf=wire(m, x.inf | x.zero, "logarithm_inf"),
    )
    negative = x.sign & ~x.zero & ~x.nan
    flags = OperationFlags(invalid=x.flags.invalid | negative, by_zero=x.zero & ~x.nan)
    return replace(to_raw(m, number, "logarithm"), flags=flags)


class Turned(NamedTuple):
    """Angle in the first quadrant as a fraction of it; ``small`` angles have none."""

    small: Value
    quadrant: Value
    fraction: Value


def _turned(m: Module, x: Raw, cosine: bool, table: Polynomials, dsp: bool) -> Turned:
    """Return the quadrant of an angle, one later for cosines, and the fraction whose sine is that of the angle."""
    place = wire(m, (x.exponent + (x.base - table.low)).as_signed(), "place")
    small = wire(m, place[-1], "is_small")
    multiple = wire(m, lookup(place[: len(table.multiples).bit_length()], list(table.multiples)), "multiple")
    turned = product(m, multiple, x.significand, "turned_product", dsp=dsp)
    turned = wire(m, extended(turned, table.fraction + 2)[: table.fraction + 2], "turned")
    quadrant = wire(m, (turned[table.fraction :] + cosine)[:2], "quadrant")
    fraction = wire(m, turned[: table.fraction] ^ quadrant[0].replicate(table.fraction), "fraction")
    return Turned(small, quadrant, fraction)


def _turn(m: Module, x: Raw, cosine: bool, table: Polynomials, dsp: bool) -> Raw:
    """Return the sine or cosine as a multiple of the angle in the first quadrant; of a small angle, the angle or 1."""
    small, quadrant, fraction = _turned(m, x, cosine, table, dsp)
    value = _evaluated(m, *_split(fraction[-table.value - 2 :], table.segments), table, dsp)[: table.value + 1]
    # A small angle takes part as a fraction, so that one shifter normalises both.
    bounds = Promises(emin=0, emax=0, leading=LeadingZeros.ANY)
    angle = Raw(sign=NEVER, exponent=Const(0, 1), significand=fraction, zero=NEVER, base=0, promises=bounds)
    angle = normalise(m, angle, "fraction", 1 - len(fraction), 0)
    first = angle.significand[-table.leading :]
    width, least = table.leading + table.value + 1, min(x.promises.emin, angle.base)
    multiple = product(m, first, value, "angle_product", dsp=dsp)[:width]
    near = Const(1 << (width - 1), width) if cosine else Cat(Const(0, width - table.precision), x.significand)
    near_exponent = Const(-least) if cosine else x.exponent + (x.base - least)
    exponent = Mux(small, near_exponent, angle.exponent + (angle.base - least))
    top = 0 if cosine else max(0, min(table.low, x.promises.emax))
    negative = (~small & quadrant[1] & ~x.zero) ^ (NEVER if cosine else x.sign)
    significand = wire(m, Mux(small, near, multiple), "sine")
    return Raw(
        sign=wire(m, negative, "value_sign"),
        exponent=wire(m, exponent[: max((top - least).bit_length(), 1)], "value_exponent"),
        significand=significand if cosine else _unless(m, x.zero, significand),
        nan=wire(m, x.nan | x.inf, "angle_nan"),
        zero=NEVER if cosine else x.zero,
        base=least,
        promises=Promises(emin=least, emax=top, leading=LeadingZeros.AT_MOST_ONE, zero_emax=top),
        flags=OperationFlags(invalid=x.flags.invalid | (x.inf & ~x.nan)),
    )


def _angle(m: Module, x: Raw, cosine: bool, table: Polynomials, dsp: bool) -> Raw:
    """Return the sine or cosine by that of an angle in the first quadrant, and of a small angle by a constant."""
    small, quadrant, fraction = _turned(m, x, cosine, table, dsp)
    value = _evaluated(m, *_split(fraction, table.segments), table, dsp)[: table.value]
    width = max(table.value, table.precision)
    value, least = Cat(Const(0, width - table.value), value), x.promises.emin
    if cosine:
        near, exponent = Const((1 << width) - 1, width), Const(-1 - min(least, -1))
    else:
        near = (Cat(Const(0, width - table.precision), x.significand) - 1)[:width]
        exponent = wire(m, Mux(small, x.exponent + (x.base - min(least, -1)), -1 - min(least, -1)), "angle_exponent")
    value = wire(m, Mux(small, near, value), "sine")
    if cosine:
        exponent = Mux(x.zero, exponent + 1, exponent)
        value = Mux(x.zero, Const(1 << (width - 1), width), value)
    nan = wire(m, x.nan | x.inf, "angle_nan")
    negative = (~small & quadrant[1] & ~x.zero) ^ (NEVER if cosine else x.sign)
    return Raw(
        sign=wire(m, negative, "value_sign"),
        exponent=wire(m, exponent[: (0 - min(least, -1)).bit_length()], "value_exponent"),
        significand=value if cosine else _unless(m, x.zero, value),
        sticky=wire(m, ~x.zero, "is_inexact"),
        nan=nan,
        zero=NEVER if cosine else x.zero,
        base=min(least, -1),
        promises=Promises(emin=min(least, -1), emax=0, leading=LeadingZeros.ANY),
        flags=OperationFlags(invalid=x.flags.invalid | (x.inf & ~x.nan)),
    )


def _binades(m: Module, x: Raw, name: str, table: Polynomials, dsp: bool) -> Raw:
    """Return the value of the polynomial of a binade; values at zero and infinities are constants."""
    place = (x.exponent + (x.base - table.low + 1)).as_signed()
    last = table.high - table.low + 1
    cluster = wire(m, Mux(place[-1], 0, Mux(place > last, last, place))[: last.bit_length()], "binade")
    group = cluster if name in ODD else Cat(cluster, x.sign)
    segments, first = (wire(m, lookup(group, list(column)), "group") for column in zip(*table.groups, strict=True))
    width = table.precision - 1
    most = max(count for count, _ in table.groups)
    shifted = shift_up(m, x.significand[:-1], segments, width + most, "fraction")
    # The bits of an index that are those of the fraction are zero in the first one of a group.
    index = wire(m, (first | shifted[width:])[: (len(table.rows) - 1).bit_length()], "index")
    value = _evaluated(m, index, shifted[:width], table, dsp)[: table.value + 1]
    relative = wire(m, lookup(index, [int(added) for _, added in table.exponents]), "is_relative")
    rows = [exponent for exponent, _ in table.exponents]
    low = min(*rows, -1) + min(x.promises.emin, 0)
    own = wire(m, lookup(index, [exponent - min(rows) for exponent in rows]), "row_exponent")
    high = max(*rows, 0) + max(x.promises.emax, 0)
    exponent = own + (min(rows) - low) + Mux(relative, x.exponent + x.base, 0)
    # The value at zero is exact, and so is a finite limit, which is 1.
    is_zero, constant, its_exponent = x.zero, NEVER, 0
    if name == "sigmoid":
        is_zero, constant, its_exponent = x.inf & x.sign, x.zero | x.inf, Mux(x.zero, -1, 0)
    elif name in ODD:
        constant = x.inf
    else:
        is_zero = x.zero | (x.inf & x.sign)
    return Raw(
        sign=NEVER if name == "sigmoid" else x.sign,
        exponent=wire(m, Mux(constant, its_exponent - low, exponent)[: (high - low).bit_length()], "value_exponent"),
        significand=_unless(m, is_zero, Mux(constant, 1 << table.value, value)[: table.value + 1]),
        sticky=wire(m, ~constant & ~is_zero, "is_inexact"),
        nan=x.nan,
        inf=x.inf & ~x.sign if name in ("gelu", "silu") else NEVER,
        zero=is_zero,
        base=low,
        promises=Promises(emin=low, emax=high, leading=LeadingZeros.ANY, zero_emax=high),
        flags=OperationFlags(invalid=x.flags.invalid),
    )


def tabulated(m: Module, code: Value, results: Sequence[Result]) -> Raw:
    """Return the result at a code, from a table of all results."""
    finite = [result.magnitude for result in results if isinstance(result.magnitude, Fraction) and result.magnitude]
    exponents = [floor_log2(magnitude) for magnitude in finite] or [0]
    low, high = min(exponents), max(exponents)
    width = max((significand_bits(magnitude) for magnitude in finite), default=1)

    def parts(magnitude: Fraction | float) -> tuple[int, int]:
        """Return the exponent less the lowest, and the significand."""
        if not isinstance(magnitude, Fraction):
            return 0, 1 << (width - 1)
        if not magnitude:
            return 0, 0
        exponent = floor_log2(magnitude)
        return exponent - low, int(magnitude / Fraction(2) ** (exponent - width + 1))

    def looked_up(name: str, values: Iterable[int]) -> Value:
        return wire(m, lookup(code, list(values)), f"value_{name}")

    nan, inf = ([result.magnitude is special for result in results] for special in (math.nan, math.inf))
    return Raw(
        sign=looked_up("sign", (result.negative for result in results)),
        exponent=looked_up("exponent", (parts(result.magnitude)[0] for result in results)),
        significand=looked_up("significand", (parts(result.magnitude)[1] for result in results)),
        nan=looked_up("nan", nan),
        inf=looked_up("inf", inf),
        zero=looked_up("zero", (result.magnitude == 0 for result in results)),
        base=low,
        promises=Promises(emin=low, emax=high, leading=LeadingZeros.NONE, zero_at_floor=True),
        flags=OperationFlags(
            invalid=looked_up("invalid", (result.invalid for result in results)),
            by_zero=looked_up("pole", (result.pole for result in results)),
        ),
    )
