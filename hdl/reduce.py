"""Argument reduction: a number as a power of two times a short fixed-point number."""

from dataclasses import dataclass, replace

from amaranth.hdl import Cat, Const, Module, Mux, Value

from .fixed import FixedRaw, of_raw, to_raw
from .formats import Rounding
from .lines import as_fixed_raw, as_raw
from .multiply import multiply
from .number import Number
from .product import product
from .raw import Raw, normalise
from .specs.segments import Segments
from .wire import NEVER, shifted_up, wire


@dataclass(frozen=True)
class Reduced:
    """Argument of the pieces, and an exponent of two: ``power``, signed or not, plus ``base``.

    ``lowest`` and ``highest`` are bounds on the exponent.
    """

    argument: FixedRaw
    power: Value
    base: int
    lowest: int
    highest: int


def reduce(m: Module, x: Number, table: Segments, rounding: Rounding, *, dsp: bool) -> Reduced:
    """Reduce a finite number in the function's domain, for a table with a reduction."""
    if table.reduction == "exp2":
        return _exp2(m, x, table, rounding, dsp)
    number = to_raw(m, x, "x") if isinstance(x, FixedRaw) else x
    number = normalise(m, number, "x", number.quantum, number.quantum)
    if table.reduction == "rsqrt":
        return _negated(_by_fours(m, number))
    argument = FixedRaw(number.significand, NEVER, 1 - len(number.significand))
    reduced = Reduced(argument, number.exponent, number.base, number.promises.emin, number.promises.emax)
    return reduced if table.reduction == "log2" else _negated(reduced)


def _exp2(m: Module, x: Number, table: Segments, rounding: Rounding, dsp: bool) -> Reduced:
    """Split ``x * factor`` into an integer and a fraction; the integer saturates beyond the range of results."""
    limit = table.exponent_limit(rounding.places).bit_length() - 1
    none = Const(0, 0)
    if isinstance(x, FixedRaw):
        factor = as_fixed_raw(m, none, [table.factor], "factor")
        integer = x.integer
        if table.factor != 1:
            integer = wire(m, product(m, integer, factor.integer, "factor_product", dsp=dsp), "scaled_exact")
        places_up = x.quantum + factor.quantum + table.fraction
        scaled = shifted_up(integer, places_up) if places_up > 0 else integer[min(-places_up, len(integer) - 1) :]
        scaled = wire(m, scaled.as_signed() if integer.shape().signed else scaled, "scaled")
    else:
        multiplied = x
        if table.factor != 1:
            multiplied = multiply(m, x, as_raw(m, none, [table.factor], "factor"), dsp=dsp)
        scaled = of_raw(m, multiplied, -table.fraction, limit, "scaled").integer
    fraction = table.fraction
    power = scaled[fraction:] if len(scaled) > fraction else Const(0, 1)
    signed = scaled.shape().signed
    if signed:
        power = scaled[min(fraction, len(scaled) - 1) :].as_signed()
    rest = Cat(scaled, (scaled[-1] if signed else NEVER).replicate(fraction))[:fraction]
    most = len(power) - signed
    return Reduced(
        argument=FixedRaw(wire(m, rest, "rest") if fraction else NEVER, NEVER, -fraction),
        power=wire(m, power, "power"),
        base=0,
        lowest=-(1 << most) if signed else 0,
        highest=(1 << most) - 1,
    )


def _by_fours(m: Module, x: Raw) -> Reduced:
    """Reduce a number to [1, 4) and half of its exponent, for powers of four."""
    odd = x.exponent[0] ^ (x.base & 1) if len(x.exponent) else Const(x.base & 1, 1)
    significand = Mux(odd, Cat(Const(0, 1), x.significand), Cat(x.significand, Const(0, 1)))
    # With an even base, halving the exponent is an exact floor.
    half = (x.exponent + (x.base & 1)) >> 1
    return Reduced(
        argument=FixedRaw(wire(m, significand, "argument"), NEVER, 1 - len(x.significand)),
        power=wire(m, half, "half_exponent"),
        base=(x.base - (x.base & 1)) // 2,
        lowest=x.promises.emin // 2,
        highest=x.promises.emax // 2,
    )


def scale(m: Module, value: FixedRaw, by: Reduced) -> Raw:
    """Multiply a value by the power of two of its argument."""
    number = to_raw(m, value, "value")
    width = (by.highest - by.lowest).bit_length()
    return replace(
        number,
        exponent=wire(m, (by.power + (by.base - by.lowest))[:width], "scaled_exponent"),
        base=number.base + by.lowest,
        promises=number.promises.moved(by.lowest, by.highest),
    )


def unscaled_where(x: Reduced, condition: Value) -> Reduced:
    """Replace the power by zero if the condition holds."""
    power = Mux(condition, -x.base, x.power)
    return replace(x, power=power, lowest=min(x.lowest, 0), highest=max(x.highest, 0))


def power_of(m: Module, x: Reduced) -> FixedRaw:
    """Return the power as a number, which the logarithm adds."""
    power = wire(m, (x.power + x.base)[: max(x.highest, ~x.lowest).bit_length() + 1].as_signed(), "integer_part")
    return FixedRaw(power, NEVER, 0)


def _negated(x: Reduced) -> Reduced:
    """Negate the power."""
    return replace(x, power=-x.power, base=-x.base, lowest=-x.highest, highest=-x.lowest)
