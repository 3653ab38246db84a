"""Raw numbers, the operands of floating-point and posit units after unpacking.

Units unpack codes to raw numbers, compute a raw result and pack it. Properties known at construction, such as exponent
ranges and possible leading zeros, are plain integers, so that later stages omit hardware for impossible cases.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Self

from amaranth.hdl import Cat, Const, Module, Mux, Value

from .formats import Format, Rounding
from .round import cancelled_sign
from .wire import NEVER, extended, leading_zeros, lookup, never, shift_left, shift_right_sticky, wire


class LeadingZeros(Enum):
    """Leading zeros that the significand of a nonzero number can have."""

    NONE = "none"
    AT_MOST_ONE = "at most one"
    AT_FLOOR = "any number at the exponent emin, and none above it"
    ANY = "any number"


NORMAL_OR_AT_FLOOR = frozenset({LeadingZeros.NONE, LeadingZeros.AT_FLOOR})
"""Leading zeros of floats: none, or only those of subnormal numbers."""


@dataclass(frozen=True, kw_only=True)
class Promises:
    """Bounds of a raw number that are known at construction, so that later stages omit hardware for impossible cases.

    Attributes
    ----------
    emin : int
        Lower bound on ``exponent + base`` of a nonzero number.
    emax : int
        Upper bound on ``exponent + base``.
    leading : LeadingZeros
        Possible leading zeros of a nonzero number.
    most_zeros : int, optional
        Maximum number of leading zeros above the exponent ``emin``, if ``leading`` is ``ANY``.
    tail : int
        Number of low significand bits that are zero if there are three or more leading zeros.
    zero_at_floor : bool
        True if zero has the exponent ``emin`` or less, false if any.
    zero_emax : int, optional
        Upper bound on ``exponent + base`` of a zero whose significand is not zero.
    """

    emin: int
    emax: int
    leading: LeadingZeros
    most_zeros: int | None = None
    tail: int = 0
    zero_at_floor: bool = False
    zero_emax: int | None = None

    def moved(self, least: int, most: int) -> Self:
        """Return the promises of the number times a power of two between ``2^least`` and ``2^most``."""
        # Numbers with leading zeros no longer have one exponent, if the power is not constant.
        is_spread = self.leading is LeadingZeros.AT_FLOOR and least < most
        return replace(
            self,
            emin=self.emin + least,
            emax=self.emax + most,
            leading=LeadingZeros.ANY if is_spread else self.leading,
            zero_at_floor=False,
        )


@dataclass(frozen=True, kw_only=True)
class Anticipated:
    """Results of later stages that are ready before the number, and work that is left to its rounding.

    Attributes
    ----------
    fraction : Value, optional
        Significand below its first bit, from a table of the code; a product that reads only it takes fewer LUTs.
    magnitude : tuple of (Format, Value), optional
        Code of the magnitude in a format, which orders numbers of this format; any code for NaN and for read zeros.
    zeros : tuple of Value, optional
        Counts whose sum is the number of leading zeros, or one less; two are nonzero only at the exponent ``emin``.
    limited : bool
        True if ``zeros`` stop at the exponent of subnormal results.
    up : Value, optional
        Rounding decision, if it has already been made.
    complement : Value, optional
        True if the magnitude is the two's complement of the significand; its rounding to a float or posit negates it.
    selects_carry : bool
        True if the carry of the rounding is selected and not propagated, which is faster and larger.
    """

    fraction: Value | None = None
    magnitude: tuple[Format, Value] | None = None
    zeros: tuple[Value, ...] | None = None
    limited: bool = False
    up: Value | None = None
    complement: Value | None = None
    selects_carry: bool = False


@dataclass(frozen=True, kw_only=True)
class OperationFlags:
    """Exception flags of an operation before its rounding.

    Attributes
    ----------
    inexact : Value
        The number is already rounded, and differs from the exact result.
    invalid : Value
        NaN is the result of numbers, or an operand is a signalling NaN.
    by_zero : Value
        Infinity is the quotient of a finite number and zero.
    """

    inexact: Value = field(default_factory=never)
    invalid: Value = field(default_factory=never)
    by_zero: Value = field(default_factory=never)


@dataclass(frozen=True, kw_only=True)
class Raw:
    """Number ``(-1)^sign * significand * 2^(exponent + base - (len(significand) - 1))``, with a sticky bit.

    Attributes
    ----------
    sign : Value
        True if the number is negative.
    exponent : Value
        Exponent of the significand's first bit, minus ``base``; signed only in products without leading zeros.
    significand : Value
        Unsigned significand.
    sticky : Value
        OR of truncated bits: the number is larger than its significand, by less than the last bit.
    zero : Value
        True if the number is exactly zero.
    inf : Value
        True for an infinity, which overrides the number.
    nan : Value
        True for NaN, which overrides the number and ``inf``.
    base : int
        Offset of ``exponent``.
    promises : Promises
        Bounds that are known at construction.
    anticipated : Anticipated
        Results of later stages that are ready before the number.
    flags : OperationFlags
        Exception flags of the operation.
    """

    sign: Value
    exponent: Value
    significand: Value
    sticky: Value = field(default_factory=never)
    zero: Value
    inf: Value = field(default_factory=never)
    nan: Value = field(default_factory=never)
    base: int
    promises: Promises
    anticipated: Anticipated = Anticipated()
    flags: OperationFlags = field(default_factory=OperationFlags)

    @property
    def last(self) -> int:
        """Exponent of the last place if ``exponent`` is zero."""
        return self.base - (len(self.significand) - 1)

    @property
    def quantum(self) -> int:
        """Exponent of the lowest possible last place; one less if the inverse of a complement may begin there."""
        return self.promises.emin - (len(self.significand) - 1) - (self.anticipated.complement is not None)


_PARTS = ("sign", "exponent", "significand", "sticky", "zero", "inf", "nan")
_FLAGS = ("invalid", "by_zero")


def parts_of(x: Raw) -> dict[str, Value]:
    """Return the signals of a number by name, for the ports of a module."""
    return {name: getattr(x, name) for name in _PARTS} | {name: getattr(x.flags, name) for name in _FLAGS}


def of_parts(x: Raw, parts: Mapping[str, Value]) -> Raw:
    """Return a number with the promises of another one, and with the signals of `parts_of`."""
    flags = OperationFlags(**{name: parts[name] for name in _FLAGS})
    return replace(x, **{name: parts[name] for name in _PARTS}, flags=flags)


def leading_zeros_of(m: Module, x: Raw, name: str) -> Value:
    """Return the number of leading zeros of the significand, in as few bits as it can need."""
    if x.promises.leading is LeadingZeros.NONE:
        return Const(0, 0)
    if x.promises.leading is LeadingZeros.AT_MOST_ONE:
        return ~x.significand[-1]
    # For a zero significand any count is correct.
    significand, complement = x.significand[x.promises.tail :], x.anticipated.complement
    if complement is not None:
        # The inverse has the leading one of the magnitude, or all ones below it, which rounding increments.
        significand = wire(m, significand ^ complement.replicate(len(significand)), f"{name}_inverted")
    return leading_zeros(m, significand, name)


def normalise(m: Module, x: Raw, name: str, floor: int, base: int) -> Raw:
    """Return the number without leading zeros, except at the exponent ``floor``, the lower bound of the exponent.

    The exponent counts from ``base``, or from the lowest exponent if that is lower.
    """
    of_x, leading = x.promises, x.promises.leading
    if leading is LeadingZeros.NONE or (leading is LeadingZeros.AT_FLOOR and of_x.emin == floor):
        return x
    count = leading_zeros_of(m, x, f"{name}_leading_zeros")
    most = 1 if leading is LeadingZeros.AT_MOST_ONE else len(x.significand) - 1
    has_floor = of_x.emin - most < floor
    emin = max(of_x.emin - most, floor)
    base = min(base, emin)
    # A LUT table gives the change of the exponent, which saves an adder.
    change = lookup(count, [x.base - base - places for places in range(1 << len(count))])
    exponent = wire(m, (x.exponent + change)[: (of_x.emax - base).bit_length() + 1], f"{name}_moved_exponent")
    if has_floor:
        room = x.exponent + (x.base - floor)
        at_floor = wire(m, room < count, f"{name}_at_floor")
        count = Mux(at_floor, room[: len(count)], count)
        exponent = wire(m, Mux(at_floor, floor - base, exponent), f"{name}_normal_exponent")
    return replace(
        x,
        exponent=exponent[: (of_x.emax - base).bit_length()],
        significand=shift_left(m, x.significand, count, f"{name}_shifted_up", of_x.tail),
        base=base,
        promises=replace(
            of_x,
            emin=emin,
            leading=LeadingZeros.AT_FLOOR if has_floor else LeadingZeros.NONE,
            zero_at_floor=False,
        ),
        anticipated=replace(x.anticipated, magnitude=None),
    )


@dataclass(frozen=True)
class Ordered:
    """Two numbers on one scale and the comparison of their magnitudes.

    ``x_exponent`` and ``y_exponent`` count from ``base``; both significands have the same width.
    """

    x: Raw
    y: Raw
    base: int
    x_exponent: Value
    y_exponent: Value
    x_significand: Value
    y_significand: Value
    x_less: Value


def order(m: Module, x: Raw, y: Raw, *, by_exponent: bool = False, late: bool = False) -> Ordered:
    """Bring two numbers to one scale and compare their magnitudes, or with ``by_exponent`` only their exponents.

    With ``late`` numbers, no lookup table follows the comparison of magnitudes.
    """
    if not by_exponent:
        # If leading zeros occur only at the common floor, exponents order the magnitudes unless they are equal.
        floor, x_base = min(x.promises.emin, y.promises.emin), x.base
        x = normalise(m, x, "x", floor, y.base)
        y = normalise(m, y, "y", floor, x_base)
    base = min(x.base, y.base, x.promises.emin, y.promises.emin)
    width = max(len(x.significand), len(y.significand))
    exponents = [wire(m, r.exponent + (r.base - base), f"{n}_aligned_exponent") for r, n in ((x, "x"), (y, "y"))]
    significands = [Cat(Const(0, width - len(r.significand)), r.significand) for r in (x, y)]
    return Ordered(
        x=x,
        y=y,
        base=base,
        x_exponent=exponents[0],
        y_exponent=exponents[1],
        x_significand=significands[0],
        y_significand=significands[1],
        x_less=wire(m, _is_less(x, y, exponents, significands, by_exponent, late), "x_less"),
    )


def _is_less(
    x: Raw, y: Raw, exponents: Sequence[Value], significands: Sequence[Value], by_exponent: bool, late: bool
) -> Value:
    """Return True if the magnitude of x, or with ``by_exponent`` its exponent, is less than that of y."""
    of_x, of_y = x.anticipated.magnitude, y.anticipated.magnitude
    if of_x and of_y and of_x[0] == of_y[0]:
        return of_x[1] < of_y[1]
    first, second = exponents
    if not by_exponent:
        first, second = (Cat(*pair) for pair in zip(significands, exponents, strict=True))
    # A zero can have a larger exponent than the other number but must not count as the larger magnitude.
    x_zero = NEVER if _zero_is_least(x.promises, y.promises) else x.zero
    y_zero = NEVER if _zero_is_least(y.promises, x.promises) or by_exponent else y.zero
    if late and not by_exponent:
        # Two more places of the comparison decide for zeros.
        width = max(len(first), len(second))
        return Cat(extended(first, width), NEVER, y_zero) < Cat(extended(second, width), x_zero, NEVER)
    less = first < second
    if x_zero is not NEVER:
        less = less | x_zero
    if y_zero is not NEVER:
        less = less & ~y_zero
    return less


def _zero_is_least(x: Promises, y: Promises) -> bool:
    """Return True if no number of y has a lower exponent than a zero of x."""
    return x.zero_at_floor and x.emin <= y.emin


@dataclass(frozen=True)
class Aligned:
    """Larger and smaller magnitude on one grid, ready for addition.

    ``width`` is the width of the operands' significands; bits of ``big`` below it are zero. ``promises`` are those of
    a sum without carry. ``sticky`` is the OR of bits that the smaller number lost below the window. It is set only if
    exponents differ by two or more; the first bit of a difference is then in the upper two places.

    With ``by_exponent``, ``big`` is the number of the higher exponent, and a difference can be negative. If it is, or
    if its first bit is lower, all bits that rounding needs are still in the window.
    """

    sign: Value
    other_sign: Value
    subtract: Value
    exponent: Value
    big: Value
    small: Value
    sticky: Value
    nan: Value
    inf: Value
    inf_sign: Value
    invalid: Value
    base: int
    promises: Promises
    width: int
    by_exponent: bool


def align(
    m: Module, x: Raw, y: Raw, keep: int, floor: int | None = None, *, fast: bool = False, loops: bool = False
) -> Aligned:
    """Order two magnitudes and shift the smaller one: the first half of a sum.

    Rounding needs the first ``keep`` bits of the sum; lower bits may be merged into the sticky bit. With a ``floor``,
    it needs at most ``keep`` bits from that exponent down. With ``fast``, exponents are subtracted both ways, beside
    the comparison; if y ``loops`` too, because it is an accumulator, the comparison has a shorter path.
    """
    by_exponent = floor is not None and _is_ordered_by_exponent(x, y, floor)
    o = order(m, x, y, by_exponent=by_exponent, late=fast and loops)
    x, y, x_less = o.x, o.y, o.x_less
    of_x, of_y = x.promises, y.promises
    width = len(o.x_significand)
    farthest = max(of_x.emax - of_y.emin, of_y.emax - of_x.emin)
    if by_exponent:
        assert of_x.most_zeros is not None
        # A number that loses bits in the shift is then less than half of the other.
        keep = max(keep, len(y.significand)) + of_x.most_zeros
    # One more place than ``keep``, because a difference can lose its first one, but no more than hold every bit.
    window = min(max(width, keep) + 1, width + farthest)
    pad = Const(0, window - width)
    exponent = wire(m, Mux(x_less, o.y_exponent, o.x_exponent), "big_exponent")
    if fast:
        distance = Mux(x_less, o.y_exponent - o.x_exponent, o.x_exponent - o.y_exponent)
    else:
        distance = exponent - Mux(x_less, o.x_exponent, o.y_exponent)
    distance = wire(m, distance[: len(exponent)], "distance")
    small = wire(m, Mux(x_less, o.x_significand, o.y_significand), "small_unaligned")
    # Fast sums read it twice, and the magnitudes of sums ordered by exponent need more LUTs with it.
    is_addend = not fast and not by_exponent
    small, sticky = shift_right_sticky(m, small, distance, "small_shifted", below=window - width, is_addend=is_addend)
    subtract = wire(m, x.sign ^ y.sign, "subtract_magnitudes")
    return Aligned(
        sign=wire(m, Mux(x_less, y.sign, x.sign), "big_sign"),
        other_sign=Mux(x_less, x.sign, y.sign),
        subtract=subtract,
        exponent=exponent,
        big=wire(m, Cat(pad, Mux(x_less, o.y_significand, o.x_significand)), "big"),
        small=small,
        sticky=sticky,
        nan=wire(m, x.nan | y.nan | (x.inf & y.inf & subtract), "sum_nan"),
        inf=wire(m, x.inf | y.inf, "sum_inf"),
        inf_sign=wire(m, Mux(x.inf, x.sign, y.sign), "inf_sign"),
        invalid=x.flags.invalid | y.flags.invalid | (x.inf & y.inf & subtract & ~x.nan & ~y.nan),
        base=o.base,
        promises=Promises(
            # Of numbers ordered by exponent, y has the higher lowest exponent; a float that is zero has it, too.
            emin=of_y.emin
            if by_exponent and (fast or of_y.leading is LeadingZeros.AT_FLOOR)
            else min(of_x.emin, of_y.emin),
            emax=max(of_x.emax, of_y.emax),
            leading=LeadingZeros.ANY,
            # A difference loses more than one place only if exponents differ by at most one, and then it is exact.
            tail=0 if by_exponent else max(window - width - 1, 0),
        ),
        width=width,
        by_exponent=by_exponent,
    )


def _is_ordered_by_exponent(x: Raw, y: Raw, floor: int) -> bool:
    """Return True if comparing exponents suffices to select which of a product and another number to shift.

    A product with a subnormal factor has leading zeros and is not normalised. Above its lowest exponent they are few,
    and the window extends down by as many places. At its lowest exponent the other number stays in place; if it has
    leading zeros too, rounding needs no bits below ``floor``.
    """
    of_x, of_y = x.promises, y.promises
    return of_x.most_zeros is not None and of_y.leading in NORMAL_OR_AT_FLOOR and of_x.emin < of_y.emin <= floor


def add(m: Module, z: Aligned, rounding: Rounding, *, fast: bool = False, floor: int | None = None) -> Raw:
    """Add aligned magnitudes: the second half of a sum. An exactly cancelled sum is -0 under ``rd``, otherwise +0.

    The window holds the floor of a difference, so that sticky bits below it have the same meaning as in a sum. With
    ``fast``, leading zeros are anticipated, at most as many as lead down to the exponent ``floor`` of subnormals; and
    if a difference can be negative, a compound adder gives the sum with and without a carry, selected by sticky and
    sign.
    """
    width = len(z.big) + 1
    small = Cat(z.small, Const(0, 1)) ^ z.subtract.replicate(width)
    carry_in = z.subtract & ~z.sticky
    compound = fast and z.by_exponent
    if fast:
        small = wire(m, small, "small_inverted")
    without_carry, carry = (z.big + small)[:width], Const(1, 1) if compound else carry_in
    total = wire(m, (Cat(Const(1, 1), z.big) + Cat(carry, small))[1 : width + 1], "sum_significand")
    # If all bits above the tail are zero, so is the tail.
    zero = ~total[z.promises.tail :].any()
    sign, zeros, limited = z.sign, None, False
    if fast:
        ones = wire(m, _anticipated(z.big, small[:-1], z.subtract), "anticipated_ones")
        zero = ~ones.any()
        if floor is not None and z.promises.emin + 1 >= floor:
            limited = True
            # A one where the exponent is that of subnormal numbers ends the count.
            room = wire(m, z.exponent + (z.base + 1 - floor), "sum_room")
            ones = wire(m, ones | Cat(room == place for place in reversed(range(width))), "limited_ones")
        zeros = (leading_zeros(m, ones, "sum_leading_zeros"),)
    if z.by_exponent:
        if fast:
            without_carry = wire(m, without_carry, "sum_without_carry")
            negative = wire(m, z.subtract & Mux(z.sticky, without_carry[-1], total[-1]), "sum_negative")
            total = Mux(carry_in & ~negative, total, without_carry ^ negative.replicate(width))
        else:
            negative = wire(m, z.subtract & total[-1], "sum_negative")
            # The magnitude of a negative floor is its inverse, plus one if no sticky bit is below.
            total = (total ^ negative.replicate(width)) + (negative & ~z.sticky)
        total = wire(m, total[:width], "sum_magnitude")
        zero, sign = zero & ~z.sticky, sign ^ negative
    zero = wire(m, zero, "sum_zero")
    zero_sign = cancelled_sign(rounding, z.sign | z.other_sign, z.sign & z.other_sign)
    return Raw(
        sign=wire(m, Mux(z.inf, z.inf_sign, Mux(zero, zero_sign, sign)), "sum_sign"),
        exponent=z.exponent,
        significand=total,
        nan=z.nan,
        inf=z.inf,
        zero=zero,
        sticky=z.sticky,
        base=z.base + 1,
        promises=z.promises.moved(1, 1),
        anticipated=Anticipated(zeros=zeros, limited=limited),
        flags=OperationFlags(invalid=z.invalid),
    )


def exact_sum(m: Module, x: Raw, y: Raw, rounding: Rounding) -> Raw:
    """Return the sum of two numbers with all its bits; the rounding decides the sign of one that cancels."""
    bits = max(x.promises.emax, y.promises.emax) - min(x.quantum, y.quantum) + 1
    total = add(m, align(m, x, y, bits), rounding)
    return normalise(m, total, "sum", total.quantum, total.base)


def _anticipated(big: Value, small: Value, subtract: Value) -> Value:
    """Return a word whose first one is that of a sum or one place above it; it is zero if the sum is zero.

    The sum is ``big + small``, or the magnitude of ``big + small + 1`` with ``subtract``; ``small`` is then inverted.
    Each bit is a function of three neighbouring bits of both. (Schmookler and Nowka, ARITH 2001.)
    """
    x, y = (Cat(filling, value, filling) for value, filling in ((big, Const(0, 1)), (small, subtract)))
    # Bits of the word, from the place of the carry down, with the places above and below.
    differ, both, none = (
        Cat(word, filling) for word, filling in ((x ^ y, subtract), (x & y, NEVER), (~(x | y), ~subtract))
    )
    above, both_below, none_below = differ[2:], both[:-2], none[:-2]
    both, none = both[1:-1], none[1:-1]
    first = (both & ~none_below) | (none & ~both_below)
    later = (none & ~none_below) | (both & ~both_below)
    return (above & first) | (~above & later)
