"""What codes stand for, as hardware: order, magnitude, sign, and which of them an operation may give."""

from amaranth.hdl import Cat, Const, Mux, Value

from halfulp.hdl.formats import Fixed, Float, Format, Posit
from halfulp.hdl.shape import is_special


def is_nan(fmt: Format, bits: Value) -> Value:
    """Whether a code stands for no number: NaN, or NaR of a posit."""
    match fmt:
        case Float():
            return is_special(fmt, bits)[0]
        case Posit():
            return bits == fmt.nan_code
    return Const(0, 1)


def rank(fmt: Format, bits: Value) -> Value:
    """A signed integer that orders codes as their numbers are ordered; both zeros have the same one."""
    match fmt:
        case Float():
            return Mux(bits[-1], -bits[:-1], bits[:-1]).as_signed()
        case Fixed(signed=False):
            return Cat(bits, Const(0, 1)).as_signed()
    return bits.as_signed()


def magnitude(fmt: Format, bits: Value) -> Value:
    """An unsigned integer that orders codes by magnitude. A NaN that stands for overflow is above every number."""
    match fmt:
        case Float():
            return bits[:-1]
        case Fixed(signed=False):
            return bits
    return Mux(bits[-1], -bits, bits)[: fmt.width]


def negated(fmt: Format, bits: Value) -> Value:
    """Code of the number with the other sign; of NaN the same code, where the format has one."""
    match fmt:
        case Float():
            zero_stays = ~bits[:-1].any() & Const(int(not fmt.has_negative_zero), 1)
            return Cat(bits[:-1], bits[-1] ^ ~(is_nan(fmt, bits) | zero_stays))
        case Posit():
            return (-bits)[: fmt.width]
    raise ValueError(f"{fmt} is not symmetric: its lowest number has no opposite")


def is_negative(fmt: Format, bits: Value) -> Value:
    """Whether a number is below zero."""
    return rank(fmt, bits) < 0


def is_zero(fmt: Format, bits: Value) -> Value:
    """Whether a code stands for zero."""
    return (rank(fmt, bits) == 0) & ~is_nan(fmt, bits)
