"""Quotients and square roots of raw numbers, by digit recurrences with one row of adders per bit.

The recurrences are non-restoring: a row adds if the remainder is negative and subtracts otherwise, and the inverse of
the new remainder's sign is a bit of the result. (Ercegovac and Lang, Digital Arithmetic, 2004, chapters 5 and 6.)
"""

from amaranth.hdl import Cat, Const, Module, Mux, Value

from .raw import Raw, normalise
from .wire import NEVER, wire

ONE = Raw(
    sign=NEVER,
    exponent=Const(0, 1),
    significand=Const(1, 1),
    zero=NEVER,
    base=0,
    emin=0,
    emax=0,
    leading="one",
    zero_at_floor=False,
)
"""The number 1, the dividend of a reciprocal."""


def divide(m: Module, x: Raw, y: Raw, window: int) -> Raw:
    """Return the quotient x / y with at least its first ``window`` bits; lower bits are merged into sticky."""
    x, y = _without_leading_zeros(m, x, "x"), _without_leading_zeros(m, y, "y")
    zero = wire(m, x.zero | y.inf, "quotient_zero")
    width = max(len(x.significand), len(y.significand))
    dividend, divisor = (Cat(Const(0, width - len(r.significand)), r.significand) for r in (x, y))
    # A quotient that is zero has no ones.
    remainder = wire(m, dividend & (~zero).replicate(width), "dividend")
    divisor = Cat(divisor, Const(0, 1))
    negative: Value = NEVER
    bits: list[Value] = []
    # The first bit of a quotient is zero if it is less than 1. It is more than 1/2.
    for place in range(window + 1):
        # Remainders are at least -divisor, and less than the divisor.
        doubled = Cat(Const(0, 1), remainder) if place else remainder
        remainder = wire(m, _next(doubled, divisor, negative), f"remainder_{place}")
        negative = remainder[-1]
        bits.insert(0, ~negative)
    return Raw(
        sign=wire(m, x.sign ^ y.sign, "quotient_sign"),
        # The inverse of an exponent is its negative plus a constant.
        exponent=wire(m, x.exponent + ~y.exponent, "quotient_exponent"),
        significand=wire(m, Cat(*bits), "quotient"),
        nan=wire(m, x.nan | y.nan | (x.zero & y.zero) | (x.inf & y.inf), "quotient_nan"),
        inf=wire(m, x.inf | y.zero, "quotient_inf"),
        zero=zero,
        sticky=wire(m, _inexact(remainder, divisor), "quotient_sticky"),
        base=x.base - y.base - ((1 << len(y.exponent)) - 1),
        emin=x.emin - y.emax,
        emax=x.emax - y.emin,
        leading="two",
        zero_at_floor=False,
        # The exponent of a zero divided by a small number can be that of an overflow.
        zero_emax=x.emax - y.emin,
    )


def square_root(m: Module, x: Raw, window: int) -> Raw:
    """Return the square root with at least its first ``window`` bits; lower bits are merged into sticky."""
    x = _without_leading_zeros(m, x, "x")
    odd_base = x.base & 1
    exponent = wire(m, x.exponent + odd_base, "even_or_odd_exponent")
    # The exponent is halved to its floor; with an odd exponent, the significand is doubled. A root that is zero has no
    # ones.
    significand = x.significand & (~x.zero).replicate(len(x.significand))
    radicand = wire(m, Mux(exponent[0], Cat(NEVER, significand), Cat(significand, NEVER)), "radicand")
    radicand = Cat(Const(0, len(radicand) % 2), radicand)
    pairs = [radicand[low : low + 2] for low in reversed(range(0, len(radicand), 2))]
    pairs += [Const(0, 2)] * (window - len(pairs))
    remainder: Value = Const(0, 1)
    negative: Value = NEVER
    bits: list[Value] = []
    for place in range(window):
        # With q as the root's bits so far, 4q + 1 is subtracted or 4q + 3 added.
        other = Cat(Const(1, 1), negative, *bits, Const(0, 1))
        remainder = wire(m, _next(Cat(pairs[place], remainder), other, negative), f"remainder_{place}")
        negative = remainder[-1]
        bits.insert(0, ~negative)
    root = wire(m, Cat(*bits), "root")
    below = Cat(pair.any() for pair in pairs[window:]).any() if len(pairs) > window else NEVER
    return Raw(
        sign=x.sign,
        exponent=exponent[1:],
        significand=root,
        nan=wire(m, x.nan | (x.sign & ~x.zero), "root_nan"),
        inf=x.inf,
        zero=x.zero,
        sticky=wire(m, _inexact(remainder, Cat(Const(1, 1), root)) | below, "root_sticky"),
        base=(x.base - odd_base) // 2,
        emin=x.emin // 2,
        emax=x.emax // 2,
        leading="one",
        zero_at_floor=False,
    )


def _without_leading_zeros(m: Module, x: Raw, name: str) -> Raw:
    """Return the number with a significand whose first bit is one, unless it is zero."""
    return normalise(m, x, name, x.quantum, x.base)


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
