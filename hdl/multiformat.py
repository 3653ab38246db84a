"""Floats whose format is chosen by a signal: decoding to one common format, and rounding to a chosen one.

Every number of the formats is one of the common format too, which has the longest exponent and the longest significand.
Subnormal numbers of formats with shorter exponents are normal there if their exponents are long enough, so that one
data path computes in all formats.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Value

from . import floating
from .formats import Float, Rounding
from .formats.saturation import OFF
from .raw import LeadingZeros, OperationFlags, Promises, Raw, normalise
from .round import ChosenRounding, RoundingBits, round_up, to_largest
from .wire import NEVER, leading_zeros, shift_left, shift_right_sticky, wire

Selection = Mapping[Float, Value]
"""Formats with the conditions that select them, one of which is true; the last one is not read."""


def common(formats: Selection) -> Float:
    """Return the format that has all numbers of some formats."""
    return Float(max(fmt.exp for fmt in formats), max(fmt.man for fmt in formats))


def choose(selection: Selection, value: Callable[[Float], Value | int]) -> Value:
    """Return a value of the selected format."""
    *others, last = selection
    chosen = Value.cast(value(last))
    for fmt in others:
        chosen = Mux(selection[fmt], value(fmt), chosen)
    return chosen


def decode(m: Module, codes: Mapping[Float, Value], selection: Selection, name: str) -> Raw:
    """Unpack the code of the selected format to a number of the common format; a signalling NaN is invalid.

    Parameters
    ----------
    m : Module
    codes : mapping of Float to Value
        Code in each format.
    selection : Selection
    name : str
    """
    o = common(selection)
    numbers = {
        fmt: floating.unpack(m, codes[fmt], fmt, f"{name}_of_format{place}") for place, fmt in enumerate(selection)
    }

    def of_selected(value: Callable[[Raw], Value]) -> Value:
        return choose(selection, lambda fmt: value(numbers[fmt]))

    shorter = {fmt: condition for fmt, condition in selection.items() if fmt.emin > o.emin}
    equal = {fmt: condition for fmt, condition in selection.items() if fmt.emin == o.emin}
    exponent, significand = choose(equal, lambda fmt: numbers[fmt].exponent), _at_top(numbers, equal, o.precision)
    if shorter:
        precision = max(fmt.precision for fmt in shorter)
        short = wire(m, _at_top(numbers, shorter, precision), f"{name}_short_significand")
        count = leading_zeros(m, short, f"{name}_leading_zeros")
        moved = choose(shorter, lambda fmt: numbers[fmt].exponent)
        moved = moved + choose(shorter, lambda fmt: Const(o.bias - fmt.bias, o.exp))
        if any(fmt.quantum < o.emin for fmt in shorter):
            # Numbers below the smallest normal one of the common format are subnormal there, too.
            count = wire(m, Mux(count < moved, count, moved - 1)[: len(count)], f"{name}_places_up")
        moved = moved - count
        # A zero has the exponent of subnormal numbers.
        moved = wire(m, Mux(short.any(), moved, 1)[: o.exp], f"{name}_moved_exponent")
        short = shift_left(m, short, count, f"{name}_shifted_up")
        is_shorter = wire(m, reduce(or_, shorter.values()), f"{name}_is_short")
        exponent = Mux(is_shorter, moved, exponent)
        significand = Mux(is_shorter, Cat(Const(0, o.precision - precision), short), significand)
    significand = wire(m, significand, f"{name}_significand")
    signalling = choose(selection, lambda fmt: floating.is_signalling(codes[fmt], fmt))
    return Raw(
        sign=wire(m, of_selected(lambda number: number.sign), f"{name}_sign"),
        exponent=wire(m, exponent, f"{name}_exponent"),
        significand=significand,
        nan=wire(m, of_selected(lambda number: number.nan), f"{name}_nan"),
        inf=wire(m, of_selected(lambda number: number.inf), f"{name}_inf"),
        zero=wire(m, ~significand.any(), f"{name}_zero"),
        base=-o.bias,
        promises=Promises(
            emin=o.emin,
            emax=max(fmt.emax for fmt in selection),
            leading=LeadingZeros.AT_FLOOR,
            zero_at_floor=True,
        ),
        flags=OperationFlags(invalid=wire(m, signalling, f"{name}_signalling")),
    )


def _at_top(numbers: Mapping[Float, Raw], selection: Selection, precision: int) -> Value:
    """Return the significand of the selected format, with zeros below it."""
    return choose(selection, lambda fmt: Cat(Const(0, precision - fmt.precision), numbers[fmt].significand))


def normal_or_at_floor(m: Module, x: Raw, selection: Selection) -> Raw:
    """Return a number whose exponent is not below that of subnormal numbers of the common format, ready for `encode`.

    Leading zeros remain at the lowest exponent of the common format only.
    """
    emin = common(selection).emin
    return normalise(m, x, "sum", emin, emin)


def encode(m: Module, x: Raw, selection: Selection, rounding: Rounding) -> tuple[Value, Value, Value]:
    """Round a number once to the selected format.

    Parameters
    ----------
    m : Module
    x : Raw
        Number without leading zeros, except at the lowest exponent of the common format.
    selection : Selection
    rounding : Rounding
        Rounding without random words.

    Returns
    -------
    tuple of Value
        Code without its sign bit, sign, and exception flags in the order of `halfulp.hdl.specs.unit.FLAGS`.
    """
    o = common(selection)
    above = x.exponent + (x.base - o.emin)
    first = x.significand[-1]
    # One more than the places above the lowest exponent of the format: its exponent field, if that is positive.
    field = above - choose(selection, lambda fmt: Const(fmt.emin - o.emin, o.exp + 1)) + 1
    field = wire(m, field, "signed_field")
    below = wire(m, field <= 0, "is_below_normal")
    # The last place of the format is moved to that of the common one.
    down = choose(selection, lambda fmt: Const(o.man - fmt.man, o.man.bit_length())) + Mux(below, 1 - field, 0)
    down = wire(m, down[: len(field)], "places_down")
    keep = o.precision + rounding.places
    missing = max(keep - len(x.significand), 0)
    value = Cat(Const(0, missing), x.significand)
    lost = value[: len(value) - keep].any() | x.sticky
    shifted, more = shift_right_sticky(m, value[len(value) - keep :], down, "shifted_down")
    sticky = wire(m, lost | more, "sticky")
    discarded, kept = wire(m, shifted[: rounding.places], "discarded"), wire(m, shifted[rounding.places :], "kept")
    field = wire(m, Mux(below | ~first, 0, field)[:-1], "field")
    up = wire(m, round_up(rounding, RoundingBits(x.sign, kept[0], discarded, sticky), None), "round_up")

    def reaches(fmt: Float, code: int) -> Value:
        upper, lower = divmod(code, 1 << fmt.man)
        if upper >> len(field):
            return NEVER
        mantissa = kept[: fmt.man]
        return field >= upper if lower == 0 else (field > upper) | ((field == upper) & (mantissa >= lower))

    over = wire(m, choose(selection, lambda fmt: reaches(fmt, fmt.max_code + 1)), "overflow")
    at_largest = wire(m, choose(selection, lambda fmt: reaches(fmt, fmt.max_code)) & ~over, "at_largest")
    has_inf = choose(selection, lambda fmt: Const(int(fmt.has_inf), 1))
    if isinstance(rounding, ChosenRounding):
        to_odd = rounding.is_mode("ro")
    else:
        to_odd = Const(int(rounding.mode == "ro"), 1)
    exceeds = over | (at_largest & up)
    # Rounding to odd leaves the largest number, also if its code is even.
    up = up & ~(at_largest & to_odd)
    stays_finite = to_largest(rounding, x.sign, OFF)
    largest, infinite = over & stays_finite, x.inf | (over & ~stays_finite)
    nan = wire(m, x.nan | (~has_inf & (infinite | (at_largest & up))), "result_nan")
    given = wire(m, nan | infinite | largest, "given")
    special = Mux(nan, choose(selection, lambda fmt: fmt.nan_code), choose(selection, lambda fmt: fmt.max_code))
    special = Mux(infinite & ~nan, choose(selection, lambda fmt: fmt.infinity(False)), special)
    finite = choose(selection, lambda fmt: Cat(kept[: fmt.man], field[: fmt.exp]))
    width = max(fmt.width for fmt in selection) - 1
    magnitude = wire(m, (Mux(given, special, finite) + (up & ~given))[:width], "magnitude")

    regular = ~(x.nan | x.inf | x.zero)
    inexact = wire(m, regular & (discarded.any() | sticky | exceeds), "inexact")
    tiny = field == 0
    if rounding.guard:
        # A result is tiny after its rounding if it is below the smallest normal number with one more bit too.
        last = discarded[-1]
        more_bits = RoundingBits(x.sign, last, discarded[:-1], sticky)
        ones = choose(selection, lambda fmt: kept[: fmt.man].all())
        tiny = tiny & ~(ones & last & round_up(rounding, more_bits, None))
    by_zero = x.flags.by_zero
    lost_inf = x.inf & ~x.nan & ~has_inf
    invalid = x.flags.invalid | (lost_inf if by_zero is NEVER else lost_inf & ~by_zero)
    flags = Cat(inexact, inexact & tiny, regular & exceeds, by_zero, invalid)
    return magnitude, wire(m, x.sign & ~nan, "result_sign"), wire(m, flags, "rounding_flags")


def either(m: Module, condition: Value, x: Raw, integer: Value, negative: Value) -> Raw:
    """Return an integer of a magnitude and a sign if the condition holds, and else a sum."""
    width = max(len(x.significand), len(integer))
    exponent = len(integer) - 1
    assert x.base <= exponent, "the integer has an exponent of the sum"
    padded = Cat(Const(0, width - len(x.significand)), x.significand)
    significand = Mux(condition, Cat(Const(0, width - len(integer)), integer), padded)
    chosen = Mux(condition, exponent - x.base, x.exponent)
    zero = Mux(condition, ~integer.any(), x.zero)
    # Either the sum or the padding of the integer has these zeros.
    tail = min(x.promises.tail + width - len(x.significand), width - len(integer))
    return replace(
        x,
        sign=wire(m, Mux(condition, negative, x.sign), "either_sign"),
        exponent=wire(m, chosen, "either_exponent"),
        significand=wire(m, significand, "either_significand"),
        sticky=x.sticky & ~condition,
        zero=wire(m, zero, "either_zero"),
        inf=x.inf & ~condition,
        nan=x.nan & ~condition,
        promises=replace(x.promises, emax=max(x.promises.emax, exponent), tail=tail),
        flags=OperationFlags(invalid=x.flags.invalid & ~condition),
    )


def one_of_two(m: Module, condition: Value, x: Raw, y: Raw, name: str) -> Raw:
    """Return x if the condition holds, and else y, both without leading zeros except at the lowest exponent of one."""
    width, base = max(len(x.significand), len(y.significand)), min(x.base, y.base)

    def chosen(value: Callable[[Raw], Value], part: str) -> Value:
        return wire(m, Mux(condition, value(x), value(y)), f"{name}_{part}")

    return Raw(
        sign=chosen(lambda number: number.sign, "sign"),
        exponent=chosen(lambda number: number.exponent + (number.base - base), "exponent"),
        significand=chosen(lambda r: Cat(Const(0, width - len(r.significand)), r.significand), "significand"),
        sticky=chosen(lambda number: number.sticky, "sticky"),
        zero=chosen(lambda number: number.zero, "zero"),
        inf=chosen(lambda number: number.inf, "inf"),
        nan=chosen(lambda number: number.nan, "nan"),
        base=base,
        promises=Promises(
            emin=min(x.promises.emin, y.promises.emin),
            emax=max(x.promises.emax, y.promises.emax),
            leading=LeadingZeros.AT_FLOOR,
        ),
        flags=OperationFlags(
            invalid=chosen(lambda number: number.flags.invalid, "invalid"),
            by_zero=chosen(lambda number: number.flags.by_zero, "by_zero"),
        ),
    )
