"""Quotients, square roots and their reciprocals, by digit recurrences with one row of adders per bit.

The recurrences are non-restoring: a row adds if the remainder is negative and subtracts otherwise, and the inverse of
the new remainder's sign is a bit of the result. (Ercegovac and Lang, Digital Arithmetic, 2004, chapters 5 and 6.)
"""

from dataclasses import replace
from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Value

from .internals import Concat
from .raw import LeadingZeros, OperationFlags, Promises, Raw, normalise
from .rows import Rows
from .wire import NEVER, wire

ONE = Raw(
    sign=NEVER,
    exponent=Const(0, 1),
    significand=Const(1, 1),
    zero=NEVER,
    base=0,
    promises=Promises(emin=0, emax=0, leading=LeadingZeros.NONE),
)
"""The number 1, the dividend of a reciprocal."""


class Quotient(NamedTuple):
    """State of a division between two rows: its remainder, doubled, and the bits of the quotient."""

    doubled: Value
    quotient: Value


class Rest(NamedTuple):
    """State of the division of a remainder between two rows; ``odd`` is the last bit of the quotient."""

    rest: Value
    odd: Value


class Root(NamedTuple):
    """State of a square root between two rows; ``unused`` are the bits of the radicand that no row took yet."""

    remainder: Value
    unused: Value
    root: Value


class Digits(NamedTuple):
    """State of a division or of a square root between two rows.

    ``rest`` is the remainder, with a sign and two bits before its point; ``digits`` are those of the result, the first
    one at the top; ``place`` has a one at the next digit; ``exact`` is True if a remainder was zero.
    """

    rest: Value
    digits: Value
    place: Value
    exact: Value


class InverseRoot(NamedTuple):
    """State of the root of a reciprocal between two rows: those of a division and of the root of its quotient.

    ``first`` is the first one of the two bits of the quotient that the next row of the root takes.
    """

    doubled: Value
    first: Value
    remainder: Value
    root: Value


def divide(m: Module, x: Raw, y: Raw, rows: Rows) -> Raw:
    """Return the quotient x / y, one bit less than ``rows`` at least; lower bits are merged into sticky."""
    x, y = _without_leading_zeros(m, x, "x"), _without_leading_zeros(m, y, "y")
    of_x, of_y = x.promises, y.promises
    zero = rows.held(m, x.zero | y.inf, "quotient_zero")
    width = max(len(x.significand), len(y.significand))
    dividend, divisor = (Cat(Const(0, width - len(r.significand)), r.significand) for r in (x, y))
    # A quotient that is zero has no ones.
    dividend = wire(m, dividend & (~(x.zero | y.inf)).replicate(width), "dividend")
    divisor = Cat(rows.held(m, divisor, "divisor"), NEVER)

    def row(m: Module, state: Quotient, place: int) -> Quotient:
        remainder = _divided(m, state.doubled, divisor, f"remainder_{place}")
        return Quotient(Cat(NEVER, remainder), _appended(state.quotient, ~remainder[-1]))

    # The first bit of a quotient is zero if it is less than 1. It is more than 1/2.
    end = rows.run(m, Quotient(Cat(dividend, NEVER), Const(0, 0)), row)
    return Raw(
        sign=rows.held(m, x.sign ^ y.sign, "quotient_sign"),
        # The inverse of an exponent is its negative plus a constant.
        exponent=rows.held(m, x.exponent + ~y.exponent, "quotient_exponent"),
        significand=wire(m, end.quotient, "quotient"),
        nan=rows.held(m, x.nan | y.nan | (x.zero & y.zero) | (x.inf & y.inf), "quotient_nan"),
        inf=rows.held(m, x.inf | y.zero, "quotient_inf"),
        zero=zero,
        sticky=wire(m, _inexact(end.doubled[1:], divisor), "quotient_sticky"),
        base=x.base - y.base - ((1 << len(y.exponent)) - 1),
        promises=Promises(
            emin=of_x.emin - of_y.emax,
            emax=of_x.emax - of_y.emin,
            leading=LeadingZeros.AT_MOST_ONE,
            # The exponent of a zero divided by a small number can be that of an overflow.
            zero_emax=of_x.emax - of_y.emin,
        ),
        flags=OperationFlags(
            invalid=x.flags.invalid | y.flags.invalid | (((x.zero & y.zero) | (x.inf & y.inf)) & ~x.nan & ~y.nan),
            by_zero=y.zero & ~y.nan & ~x.zero & ~x.inf & ~x.nan,
        ),
    )


def remainder(m: Module, x: Raw, y: Raw, rows: Rows) -> Raw:
    """Return the remainder of x / y to the nearest integer quotient, the even one of two.

    The recurrence is restoring. A row doubles the rest, which is zero until the significand of x is added to it in the
    row of its last place; so the last row is that of the quotient's last bit, for all differences of the exponents.
    ``rows`` are at least the largest difference and one.
    """
    x, y = _without_leading_zeros(m, x, "x"), _without_leading_zeros(m, y, "y")
    width = max(len(x.significand), len(y.significand))
    dividend, divisor = (
        rows.held(m, Cat(Const(0, width - len(r.significand)), r.significand), name)
        for r, name in ((x, "dividend"), (y, "divisor"))
    )
    difference = wire(m, x.exponent - y.exponent + (x.base - y.base), "exponent_difference")
    distance = rows.held(m, difference, "distance")
    nan = x.nan | y.nan | x.inf | y.zero
    is_x = x.zero | y.inf | (difference < -1)
    x_held = rows.held(m, is_x, "remainder_is_x")
    base = min(x.base, y.base - 1)
    exponent = Mux(is_x, x.exponent + (x.base - base), y.exponent + (y.base - 1 - base))

    def doubled(rest: Value, begins: Value) -> Value:
        return Cat(NEVER, rest) | (dividend & begins.replicate(width))

    def row(m: Module, state: Rest, place: int) -> Rest:
        twice = wire(m, doubled(state.rest, distance == rows.after(place)), f"doubled_{place}")
        less = wire(m, twice - divisor, f"difference_{place}")
        return Rest(wire(m, Mux(less[-1], twice, less)[:width], f"rest_{place}"), ~less[-1])

    end = rows.run(m, Rest(Const(0, width), NEVER), row)
    # In halves of the last place: the rest is more than half of y, or half of it and the quotient odd.
    halves = wire(m, doubled(end.rest, distance == -1), "halves")
    less = wire(m, halves - divisor, "halves_difference")
    up = wire(m, ~less[-1] & (less.any() | end.odd) & ~x_held, "quotient_up")
    significand = Mux(x_held, dividend, Mux(up, divisor - less, halves)[:width])
    significand = wire(m, significand, "remainder")
    return Raw(
        sign=wire(m, rows.held(m, x.sign, "dividend_sign") ^ up, "remainder_sign"),
        exponent=rows.held(m, exponent, "remainder_exponent"),
        significand=significand,
        nan=rows.held(m, nan, "remainder_nan"),
        zero=wire(m, ~significand.any(), "remainder_zero"),
        base=base,
        promises=Promises(
            emin=min(x.promises.emin, y.promises.emin - 1),
            emax=max(x.promises.emax, y.promises.emax - 1),
            leading=LeadingZeros.ANY,
        ),
        flags=OperationFlags(invalid=x.flags.invalid | y.flags.invalid | ((x.inf | y.zero) & ~x.nan & ~y.nan)),
    )


def square_root(m: Module, x: Raw, rows: Rows) -> Raw:
    """Return the square root, of as many bits as ``rows`` at least; lower bits are merged into sticky."""
    x, exponent, even_base = _with_even_exponent(m, x)
    # A root that is zero has no ones.
    radicand = wire(m, x.significand & (~x.zero).replicate(len(x.significand)), "radicand")
    radicand = Cat(Const(0, len(radicand) % 2), radicand)

    def row(m: Module, state: Root, place: int) -> Root:
        remainder = _rooted(m, state.remainder, state.unused[-2:], state.root, f"remainder_{place}")
        unused = wire(m, Cat(Const(0, 2), state.unused[:-2]), f"unused_{place}")
        return Root(remainder, unused, _appended(state.root, ~remainder[-1]))

    end = rows.run(m, Root(Const(0, 1), radicand, Const(0, 0)), row)
    root = wire(m, end.root, "root")
    return Raw(
        sign=rows.held(m, x.sign, "root_sign"),
        exponent=rows.held(m, exponent, "root_exponent"),
        significand=root,
        nan=rows.held(m, x.nan | (x.sign & ~x.zero), "root_nan"),
        inf=rows.held(m, x.inf, "root_inf"),
        zero=rows.held(m, x.zero, "root_zero"),
        sticky=wire(m, _inexact(end.remainder, Cat(Const(1, 1), root)) | end.unused.any(), "root_sticky"),
        base=even_base // 2,
        promises=Promises(emin=x.promises.emin // 2, emax=x.promises.emax // 2, leading=LeadingZeros.NONE),
        flags=OperationFlags(invalid=x.flags.invalid | (x.sign & ~x.zero & ~x.nan)),
    )


def divide_or_root(m: Module, x: Raw, y: Raw, is_root: Value, rows: Rows) -> Raw:
    """Return the quotient x / y, or the square root of x, by one recurrence.

    The result has as many digits as ``rows``, of which the first may be zero, at least two more than x; lower ones are
    merged into sticky. After fewer rows it has their digits and zeros below them. Both numbers have the same bases.
    """
    x, y = _without_leading_zeros(m, x, "x"), _without_leading_zeros(m, y, "y")
    count, size, exponent_bits = rows.count, len(x.significand), len(x.exponent)
    assert (x.base, size, exponent_bits) == (y.base, len(y.significand), len(y.exponent))
    assert count >= size + 2, "the rest holds all bits of x"
    odd_base = x.base & 1
    even = wire(m, x.exponent + odd_base, "even_or_odd_exponent")
    # A quotient by infinity is zero, and has no ones.
    significand = wire(m, x.significand & (is_root | ~y.inf).replicate(size), "dividend_or_radicand")
    # A rest is half of the number: of a quotient in [1/2, 1), of a root in [1/2, 2).
    doubled = Mux(is_root & even[0], Cat(NEVER, significand), Cat(significand, NEVER))
    first = wire(m, Cat(Const(0, count - size - 1), doubled, Const(0, 2)), "first_rest")
    roots = rows.held(m, is_root, "computes_root")
    divisor = rows.held(m, y.significand & (~is_root).replicate(size), "divisor")
    divisor = Cat(Const(0, count - size), divisor)

    def row(m: Module, state: Digits, place: int) -> Digits:
        negative = state.rest[-1]
        # With q as the digits so far and u as the place of the next one, 2q + u is subtracted or 2q + 3u added.
        taken = Cat(state.place, NEVER) | Cat(NEVER, state.digits | (state.place & negative.replicate(count)))
        other = Cat(divisor, NEVER) | (taken & roots.replicate(count + 1))
        rest = wire(m, _next(Cat(NEVER, state.rest), Cat(other, NEVER), negative), f"rest_{place}")
        digits = wire(m, state.digits | (state.place & (~rest[-1]).replicate(count)), f"digits_{place}")
        return Digits(rest, digits, Cat(state.place[1:], NEVER), state.exact | ~state.rest.any())

    top = Const(1 << (count - 1), count)
    end = rows.run(m, Digits(first, Const(0, count), top, NEVER), row, grows=False)
    # The sum of the exponents counts from the lowest one of a quotient; half of an exponent from half of its base.
    lowest = -((1 << exponent_bits) - 1)
    half = Const((x.base - odd_base) // 2 - lowest)
    exponent = Mux(is_root, even[1:], x.exponent) + Mux(is_root, half, ~y.exponent)
    invalid_root, invalid_quotient = x.sign & ~x.zero, (x.zero & y.zero) | (x.inf & y.inf)
    nan = x.nan | Mux(is_root, invalid_root, y.nan | invalid_quotient)
    signalling = x.flags.invalid | (y.flags.invalid & ~is_root)
    invalid = signalling | (Mux(is_root, invalid_root, invalid_quotient & ~y.nan) & ~x.nan)
    return Raw(
        sign=rows.held(m, x.sign ^ (y.sign & ~is_root), "result_sign"),
        exponent=rows.held(m, exponent, "result_exponent"),
        significand=wire(m, end.digits, "result_digits"),
        nan=rows.held(m, nan, "result_nan"),
        inf=rows.held(m, x.inf | (y.zero & ~is_root), "result_inf"),
        zero=rows.held(m, x.zero | (y.inf & ~is_root), "result_zero"),
        sticky=wire(m, end.rest.any() & ~end.exact, "result_sticky"),
        base=lowest,
        promises=Promises(
            emin=x.promises.emin - y.promises.emax,
            emax=x.promises.emax - y.promises.emin,
            leading=LeadingZeros.AT_MOST_ONE,
        ),
        flags=OperationFlags(
            invalid=rows.held(m, invalid, "result_invalid"),
            by_zero=rows.held(m, y.zero & ~y.nan & ~(x.zero | x.inf | x.nan | is_root), "divides_by_zero"),
        ),
    )


def inverse_square_root(m: Module, x: Raw, rows: Rows) -> Raw:
    """Return the reciprocal of the square root, one bit less than ``rows`` at least; lower bits are merged into sticky.

    It is the root of the reciprocal, because the floor of a root is that of the floor's root. Each row of the root
    takes the two bits that two rows of the division give.
    """
    x, exponent, even_base = _with_even_exponent(m, x)
    width = len(x.significand)
    # The significand has two bits before its point. A root that is zero has no ones.
    dividend = Cat(Const(0, width - 2), ~x.inf, NEVER, NEVER)
    divisor = Cat(rows.held(m, x.significand, "divisor"), NEVER)

    def row(m: Module, state: InverseRoot, place: int) -> InverseRoot:
        second = _divided(m, state.doubled, divisor, f"second_{place}")
        pair = Cat(~second[-1], state.first)
        remainder = _rooted(m, state.remainder, pair, state.root, f"remainder_{place}")
        first = _divided(m, Cat(NEVER, second), divisor, f"first_{place}")
        return InverseRoot(Cat(NEVER, first), ~first[-1], remainder, _appended(state.root, ~remainder[-1]))

    end = rows.run(m, InverseRoot(dividend, NEVER, Const(0, 1), Const(0, 0)), row)
    root = wire(m, end.root, "root")
    zero = rows.held(m, x.inf, "root_zero")
    return Raw(
        sign=rows.held(m, x.sign, "root_sign"),
        # The inverse of an exponent is its negative plus a constant.
        exponent=rows.held(m, ~exponent, "root_exponent"),
        significand=root,
        nan=rows.held(m, x.nan | (x.sign & ~x.zero), "root_nan"),
        inf=rows.held(m, x.zero, "root_inf"),
        zero=zero,
        # The result is 1 for the significand 1; all others have endless digits.
        sticky=wire(m, ~root[-1] & ~zero, "root_sticky"),
        base=-(even_base // 2) - ((1 << len(exponent)) - 1),
        promises=Promises(emin=-(x.promises.emax // 2), emax=-(x.promises.emin // 2), leading=LeadingZeros.AT_MOST_ONE),
        flags=OperationFlags(invalid=x.flags.invalid | (x.sign & ~x.zero & ~x.nan), by_zero=x.zero & ~x.nan),
    )


def _without_leading_zeros(m: Module, x: Raw, name: str) -> Raw:
    """Return the number with a significand whose first bit is one, unless it is zero."""
    return normalise(m, x, name, x.quantum, x.base)


def _with_even_exponent(m: Module, x: Raw) -> tuple[Raw, Value, int]:
    """Return a number without leading zeros with two bits before the point, half its exponent, and twice its base.

    The exponent is halved to its floor; with an odd exponent, the significand is doubled.
    """
    x = _without_leading_zeros(m, x, "x")
    odd_base = x.base & 1
    exponent = wire(m, x.exponent + odd_base, "even_or_odd_exponent")
    significand = Mux(exponent[0], Cat(NEVER, x.significand), Cat(x.significand, NEVER))
    return replace(x, significand=wire(m, significand, "even_significand")), exponent[1:], x.base - odd_base


def _appended(bits: Value, last: Value) -> Value:
    """Return bits with one more below them, in one concatenation: hundreds of nested ones exceed Python's stack."""
    return Cat(last, *(bits.parts if isinstance(bits, Concat) else (bits,)))


def _divided(m: Module, doubled: Value, divisor: Value, name: str) -> Value:
    """Return the next remainder of a division, at least ``-divisor`` and less than the divisor."""
    return wire(m, _next(doubled, divisor, doubled[-1]), name)


def _rooted(m: Module, remainder: Value, pair: Value, root: Value, name: str) -> Value:
    """Return the next remainder of a root, for the next two bits of the radicand and the bits of the root so far."""
    negative = remainder[-1]
    # With q as the root's bits so far, 4q + 1 is subtracted or 4q + 3 added.
    return wire(m, _next(Cat(pair, remainder), Cat(Const(1, 1), negative, root, NEVER), negative), name)


def _next(shifted: Value, other: Value, negative: Value) -> Value:
    """Return the next remainder: ``shifted`` plus ``other`` if the remainder was negative, else minus it.

    The result has as many bits as ``other``, of which the last is its sign.
    """
    width = len(other)
    addend = other ^ (~negative).replicate(width)
    # A carry from the bit below completes the negation.
    return (Cat(Const(1, 1), shifted) + Cat(~negative, addend))[1 : width + 1]


def _inexact(remainder: Value, other: Value) -> Value:
    """Return True unless the last remainder is 0 or ``-other``, which are those of exact results."""
    width = max(len(remainder), len(other))
    x, y = (Cat(value, Const(0, width - len(value)))[:width] for value in (remainder, other))
    # The sum of two words is zero if the exclusive or equals the carries that a sum of zero has.
    return x.any() & ((x ^ y) ^ Cat(NEVER, (x | y)[:-1])).any()
