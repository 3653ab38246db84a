"""Raw numbers, on which the cores of floating-point and posit units compute.

A format's code is unpacked to a raw number, a core makes another one of it, and that is packed. Everything known
before the hardware exists (ranges of exponents, whether there can be leading zeros) is carried along as plain
integers, so that the next stage leaves out what cannot happen.
"""

from dataclasses import dataclass, field, replace

from amaranth.hdl import Cat, Const, Module, Mux, Value

from .formats import RD, Rounding
from .wire import leading_zeros, lookup, never, shift_left, shift_right_sticky, wire


@dataclass(frozen=True)
class Raw:
    """A number ``(-1)^sign * significand * 2^(exponent + base - (len(significand) - 1))``, plus a truncated part.

    Attributes
    ----------
    sign, nan, inf, zero : Value
        One bit each. ``nan`` overrules ``inf``, and both overrule the number; ``zero`` says that it is exactly zero.
    exponent : Value
        The first bit of the significand weighs ``2^(exponent + base)``. Signed only in products that lost their
        leading zeros; of a number other than zero the sum with ``base`` is never below ``emin``.
    significand : Value
        Unsigned.
    sticky : Value
        Something above zero and less than the last bit of the significand was truncated.
    base : int
        See ``exponent``.
    emin, emax : int
        Bounds on ``exponent + base``.
    leading : str
        Where a number other than zero can have leading zeros: ``one``: nowhere; ``two``: one, anywhere, for the first
        one is in the first two places; ``floor``: only at the exponent ``emin``; ``any``: anywhere.
    zero_at_floor : bool
        Zero has the exponent ``emin`` or less, rather than any.
    tail : int
        Last bits of the significand that are zero where it has three leading zeros or more.
    up : Value, optional
        Rounding decision, if it is made already.
    most_zeros : int, optional
        Where a number other than zero can have leading zeros anywhere: most that it has above the exponent ``emin``.
    """

    sign: Value
    exponent: Value
    significand: Value
    nan: Value = field(default_factory=never, kw_only=True)
    inf: Value = field(default_factory=never, kw_only=True)
    zero: Value
    sticky: Value = field(default_factory=never, kw_only=True)
    base: int
    emin: int
    emax: int
    leading: str
    zero_at_floor: bool
    tail: int = field(default=0, kw_only=True)
    up: Value | None = field(default=None, kw_only=True)
    most_zeros: int | None = field(default=None, kw_only=True)

    @property
    def quantum(self) -> int:
        """Exponent of the last place that any such number can have."""
        return self.emin - (len(self.significand) - 1)


def leading_zeros_of(m: Module, x: Raw, name: str) -> Value:
    """Number of leading zeros of the significand, as many bits as it can need."""
    if x.leading == "one":
        return Const(0, 0)
    if x.leading == "two":
        return ~x.significand[-1]
    # The count of a zero does not matter.
    return leading_zeros(m, x.significand[x.tail :], name)


def normalise(m: Module, x: Raw, name: str, floor: int, base: int) -> Raw:
    """The same number with no leading zeros but at the exponent ``floor``, which no number is below.

    Its exponent counts from ``base`` if no number is below that.
    """
    if x.leading == "one" or (x.leading == "floor" and x.emin == floor):
        return x
    count = leading_zeros_of(m, x, f"{name}_leading_zeros")
    most = 1 if x.leading == "two" else len(x.significand) - 1
    emin = max(x.emin - most, floor)
    base = min(base, emin)
    # What the exponent changes by is a table and no adder of its own.
    change = lookup(count, [x.base - base - places for places in range(1 << len(count))])
    exponent = wire(m, (x.exponent + change)[: (x.emax - base).bit_length() + 1], f"{name}_moved_exponent")
    if x.emin - most < floor:
        room = x.exponent + (x.base - floor)
        at_floor = wire(m, room < count, f"{name}_at_floor")
        count = Mux(at_floor, room[: len(count)], count)
        exponent = wire(m, Mux(at_floor, floor - base, exponent), f"{name}_normal_exponent")
    return replace(
        x,
        exponent=exponent[: (x.emax - base).bit_length()],
        significand=shift_left(m, x.significand, count, f"{name}_shifted_up", x.tail),
        base=base,
        emin=emin,
        leading="floor" if x.emin - most < floor else "one",
        zero_at_floor=False,
    )


@dataclass(frozen=True)
class Ordered:
    """Two numbers on one scale and which of them is less in magnitude.

    ``x_exponent`` and ``y_exponent`` count from ``base``, both significands have the same width.
    """

    x: Raw
    y: Raw
    base: int
    x_exponent: Value
    y_exponent: Value
    x_significand: Value
    y_significand: Value
    x_less: Value


def order(m: Module, x: Raw, y: Raw, *, by_exponent: bool = False) -> Ordered:
    """Bring two numbers to one scale and compare their magnitudes; ``by_exponent``, their exponents alone."""
    if not by_exponent:
        # With leading zeros at the lower one's floor only, exponents order magnitudes, unless they are equal.
        floor, x_base = min(x.emin, y.emin), x.base
        x = normalise(m, x, "x", floor, y.base)
        y = normalise(m, y, "y", floor, x_base)
    base = min(x.base, y.base, x.emin, y.emin)
    width = max(len(x.significand), len(y.significand))
    exponents = [wire(m, r.exponent + (r.base - base), f"{n}_aligned_exponent") for r, n in ((x, "x"), (y, "y"))]
    significands = [Cat(Const(0, width - len(r.significand)), r.significand) for r in (x, y)]
    if by_exponent:
        x_less = exponents[0] < exponents[1]
    else:
        x_less = Cat(significands[0], exponents[0]) < Cat(significands[1], exponents[1])
    # A zero whose exponent may exceed the other number's must not pass for the larger one.
    if not (x.zero_at_floor and x.emin <= y.emin):
        x_less = x_less | x.zero
    if not (y.zero_at_floor and y.emin <= x.emin) and not by_exponent:
        x_less = x_less & ~y.zero
    return Ordered(
        x=x,
        y=y,
        base=base,
        x_exponent=exponents[0],
        y_exponent=exponents[1],
        x_significand=significands[0],
        y_significand=significands[1],
        x_less=wire(m, x_less, "x_less"),
    )


@dataclass(frozen=True)
class Aligned:
    """Larger and smaller magnitude on one grid, ready to be added.

    ``width`` is that of the operands' significands; below it ``big`` is zero. The last ``tail`` bits of a sum are zero
    if that has three leading zeros or more. ``sticky`` says that the smaller one lost ones below the window. It does so
    only where exponents differ by two or more, so that a difference keeps its first bit in the upper two places of
    ``big``.

    With ``by_exponent`` it is the number of the higher exponent that is called larger, and a difference can be
    negative. Where it is, or its first bit is further below, what rounding looks at is in the window all the same.
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
    base: int
    emin: int
    emax: int
    width: int
    tail: int
    by_exponent: bool


def align(m: Module, x: Raw, y: Raw, keep: int, floor: int | None = None) -> Aligned:
    """First half of a sum: order the magnitudes and shift the smaller one.

    ``keep`` is the number of bits, from the first one of the sum on, that the rounding looks at one by one; what is
    below may be merged into the sticky bit. If there is a ``floor``, it looks at no more than as many bits from that
    exponent on.
    """
    by_exponent = floor is not None and _is_ordered_by_exponent(x, y, floor)
    o = order(m, x, y, by_exponent=by_exponent)
    x, y, x_less = o.x, o.y, o.x_less
    width = len(o.x_significand)
    farthest = max(x.emax - y.emin, y.emax - x.emin)
    if by_exponent:
        assert x.most_zeros is not None
        # What loses ones is then less than half of what it is taken from.
        keep = max(keep, len(y.significand)) + x.most_zeros
    # One place more than is kept or comes in: a difference can lose its first place. Never more than would hold all.
    window = min(max(width, keep) + 1, width + farthest)
    pad = Const(0, window - width)
    exponent = wire(m, Mux(x_less, o.y_exponent, o.x_exponent), "big_exponent")
    distance = exponent - Mux(x_less, o.x_exponent, o.y_exponent)
    distance = wire(m, distance[: len(exponent)], "distance")
    small = wire(m, Mux(x_less, o.x_significand, o.y_significand), "small_unaligned")
    small, sticky = shift_right_sticky(m, small, distance, "small_shifted", below=window - width)
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
        base=o.base,
        emin=min(x.emin, y.emin),
        emax=max(x.emax, y.emax),
        width=width,
        # Only where exponents differ by one at most does a difference lose more than a place, and then it is exact.
        tail=0 if by_exponent else max(window - width - 1, 0),
        by_exponent=by_exponent,
    )


def _is_ordered_by_exponent(x: Raw, y: Raw, floor: int) -> bool:
    """True if exponents are enough to tell which of a product and another number is to be shifted.

    A product with a subnormal factor has leading zeros, and is left as it is. Above its lowest exponent they are few:
    where it is shifted less than the other number, the window begins lower by as many places. At its lowest exponent
    it is the other number that stays, and where that has leading zeros too, rounding looks no further than ``floor``
    lets it.
    """
    return x.most_zeros is not None and y.leading in ("one", "floor") and x.emin < y.emin <= floor


def add(m: Module, z: Aligned, rounding: Rounding) -> Raw:
    """Second half of a sum. An exactly cancelled one is -0 under ``rd`` and +0 under any other rounding.

    Of a difference the window holds the floor, so that the bits below it read as the exact result's.
    """
    width = len(z.big) + 1
    small = Cat(z.small, Const(0, 1)) ^ z.subtract.replicate(width)
    carry_in = z.subtract & ~z.sticky
    total = wire(m, (Cat(Const(1, 1), z.big) + Cat(carry_in, small))[1 : width + 1], "sum_significand")
    # Where there is nothing above the tail there is nothing in it.
    zero = ~total[z.tail :].any()
    sign = z.sign
    if z.by_exponent:
        negative = wire(m, z.subtract & total[-1], "sum_negative")
        # The magnitude of a floor, and of what is above it, is the inverse and what is left of one.
        total = (total ^ negative.replicate(width)) + (negative & ~z.sticky)
        total = wire(m, total[:width], "sum_magnitude")
        zero, sign = zero & ~z.sticky, sign ^ negative
    zero = wire(m, zero, "sum_zero")
    cancelled_sign = z.sign | z.other_sign if rounding == RD else z.sign & z.other_sign
    return Raw(
        sign=wire(m, Mux(z.inf, z.inf_sign, Mux(zero, cancelled_sign, sign)), "sum_sign"),
        exponent=z.exponent,
        significand=total,
        nan=z.nan,
        inf=z.inf,
        zero=zero,
        sticky=z.sticky,
        base=z.base + 1,
        emin=z.emin + 1,
        emax=z.emax + 1,
        leading="any",
        zero_at_floor=False,
        tail=z.tail,
    )
