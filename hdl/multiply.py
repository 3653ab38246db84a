"""Exact products of raw numbers.

Products of few bits use tables and have no leading zeros, which saves later stages a leading-zero count. A LUT of an
FPGA has six inputs, as many as two significands of three bits.
"""

from dataclasses import dataclass, field, replace

from amaranth.hdl import Cat, Const, Module, Mux, Value

from .formats import Format
from .product import has_tree, product
from .raw import NORMAL_OR_AT_FLOOR, Anticipated, LeadingZeros, OperationFlags, Promises, Raw, leading_zeros_of
from .wire import extended, lookup, wire

INPUTS = 6
"""Number of inputs of a LUT."""

MOST_ZEROS = INPUTS // 2
"""Maximum leading zeros that a product made as a table removes: all, if at least one factor is normal."""

LONGEST_SMALL = 4
"""Maximum width of significands that are normalised before the multiplication. A leading-zero count and a shift of up
to three places take a few LUTs for a factor, but many for the product.
"""


@dataclass(frozen=True)
class Magnitude:
    """Raw number without sign and flags; attributes as in `Raw`."""

    exponent: Value
    significand: Value
    base: int
    promises: Promises
    anticipated: Anticipated = field(default_factory=Anticipated)


@dataclass(frozen=True, kw_only=True)
class Use:
    """Operation that reads a product, which decides its form.

    Attributes
    ----------
    floor : int, optional
        Lowest exponent of a number that will be added; a product that can be lower keeps its leading zeros, because the
        sum needs a leading-zero count anyway.
    counted : bool
        Leading zeros are counted in the factors, beside the multiplication.
    last : int, optional
        Exponent of the subnormals of the format to which the product is rounded and nothing else; a product that can be
        lower is shifted there, so that it may have a leading zero, and a zero any significand.
    any_zero : bool
        The significand of a zero has no effect; short factors without leading zeros are then multiplied by one table of
        their fractions.
    """

    floor: int | None = None
    counted: bool = False
    last: int | None = None
    any_zero: bool = False


def multiply(m: Module, x: Raw, y: Raw, *, dsp: bool, fast: bool = False, use: Use = Use()) -> Raw:
    """Return the exact product: multiply significands and add exponents.

    With ``dsp``, the product is a plain multiplication. With ``fast``, rows are added in a tree.
    """
    lengths = len(x.significand), len(y.significand)
    small = _are_floats(x, y) and is_small(*lengths)
    zero_emax = None
    if use.any_zero and not dsp and fits_table(x, y):
        magnitude = _of_fractions(m, x, y)
    elif dsp or not small or (use.floor is not None and _lowest(x, y) < use.floor):
        magnitude = _any(m, x, y, dsp, fast, use.counted)
    elif max(lengths) <= INPUTS // 2:
        magnitude = _with_zeros(m, x, y)
    else:
        is_shifted = use.last is not None and _lowest(x, y) < use.last
        of_x, of_y = x.promises, y.promises
        zero_emax = max(of_x.emin + of_y.emax, of_x.emax + of_y.emin) + 1 if is_shifted else None
        zeros = None if is_shifted else (x.zero, y.zero)
        magnitude = _small(m, _normalised(m, x, "x"), _normalised(m, y, "y"), zeros)
        magnitude = replace(magnitude, promises=replace(magnitude.promises, zero_emax=zero_emax))
    return Raw(
        **vars(magnitude),
        sign=wire(m, x.sign ^ y.sign, "product_sign"),
        nan=wire(m, x.nan | y.nan | (x.inf & y.zero) | (x.zero & y.inf), "product_nan"),
        inf=wire(m, x.inf | y.inf if zero_emax is None else x.inf | x.nan | y.inf | y.nan, "product_inf"),
        zero=wire(m, x.zero | y.zero, "product_zero"),
        flags=OperationFlags(
            invalid=x.flags.invalid | y.flags.invalid | (((x.inf & y.zero) | (x.zero & y.inf)) & ~x.nan & ~y.nan)
        ),
    )


def _are_floats(x: Raw, y: Raw) -> bool:
    """Return True if both factors have leading zeros at most at their lowest exponent."""
    return {x.promises.leading, y.promises.leading} <= NORMAL_OR_AT_FLOOR


def _product_promises(x: Promises, y: Promises, grows: int, leading: LeadingZeros) -> Promises:
    """Return the promises of a product; ``grows`` is the number of bits that it has before those of its factors."""
    return Promises(emin=x.emin + y.emin + grows, emax=x.emax + y.emax + grows, leading=leading)


def is_small(*lengths: int) -> bool:
    """Return True if significands of these widths are multiplied by tables or normalised first."""
    return min(lengths) > 1 and max(lengths) <= LONGEST_SMALL


def fits_table(x: Raw, y: Raw) -> bool:
    """Return True if the fractions of two factors without leading zeros are the index of a table."""
    lengths = len(x.significand), len(y.significand)
    return (
        x.promises.leading is y.promises.leading is LeadingZeros.NONE
        and min(lengths) > 1
        and sum(lengths) - 2 <= INPUTS
    )


def of_fractions(m: Module, x: Raw, y: Raw) -> Value:
    """Return the product of two significands whose first bits are ones, from a table of the other bits."""
    a, b = (r.significand[:-1] if r.anticipated.fraction is None else r.anticipated.fraction for r in (x, y))
    codes = [(code % (1 << len(a)), code >> len(a)) for code in range(1 << (len(a) + len(b)))]
    products = [((1 << len(a)) + of_a) * ((1 << len(b)) + of_b) for of_a, of_b in codes]
    return wire(m, lookup(Cat(a, b), products), "product_significand")


def _of_fractions(m: Module, x: Raw, y: Raw) -> Magnitude:
    """Return exponent and significand of a product from `of_fractions`; that of a zero is not zero."""
    return Magnitude(
        exponent=wire(m, x.exponent + y.exponent, "product_exponent"),
        significand=of_fractions(m, x, y),
        base=x.base + y.base + 1,
        promises=_product_promises(x.promises, y.promises, 1, LeadingZeros.AT_MOST_ONE),
    )


def can_be_subnormal(quantum: int, o: Format | None) -> bool:
    """Return True if a product whose last place is ``2^quantum`` or more can be a subnormal number of ``o``."""
    return o is not None and o.floor_exponent is not None and quantum < o.floor_exponent


def has_speed(a: Format, b: Format, o: Format, *, dsp: bool) -> bool:
    """Return True if a product that is only rounded has other structures for speed than for area."""
    if not all(fmt.is_floating_point for fmt in (a, b, o)):
        return False
    if not dsp and is_small(a.precision, b.precision):
        return False
    factors_can_be_subnormal = any(fmt.has_subnormals for fmt in (a, b))
    is_counted = factors_can_be_subnormal and can_be_subnormal(a.quantum + b.quantum, o)
    return not is_counted or (not dsp and has_tree(a.precision, b.precision))


def _any(m: Module, x: Raw, y: Raw, dsp: bool, fast: bool, counted: bool) -> Magnitude:
    """Return exponent and significand of a product that keeps the leading zeros of both factors."""
    # With 1 <= f < 2 for each significand, 1 <= product < 4, which needs one more bit before the point. A
    # significand of one bit is 0 or 1 and needs none.
    grows = min(len(x.significand), len(y.significand)) > 1
    width = len(x.significand) + len(y.significand) - (0 if grows else 1)
    significand = product(m, x.significand, y.significand, "partial_product", dsp=dsp, fast=fast)[:width]
    most_zeros = None
    if x.promises.leading is y.promises.leading is LeadingZeros.NONE:
        leading = LeadingZeros.AT_MOST_ONE if grows else LeadingZeros.NONE
    else:
        leading = LeadingZeros.ANY
        # Above the lowest exponent at most one factor is subnormal.
        if _are_floats(x, y):
            most_zeros = max(_subnormal_lengths(x, y))
    zeros = None
    if counted and _are_floats(x, y):
        zeros = tuple(leading_zeros_of(m, number, f"{name}_leading_zeros") for number, name in ((x, "x"), (y, "y")))
    return Magnitude(
        exponent=wire(m, x.exponent + y.exponent, "product_exponent"),
        significand=wire(m, significand, "product_significand"),
        base=x.base + y.base + grows,
        promises=replace(_product_promises(x.promises, y.promises, grows, leading), most_zeros=most_zeros),
        anticipated=Anticipated(zeros=zeros),
    )


def _subnormal_lengths(x: Raw, y: Raw) -> list[int]:
    """Return the widths of the significands that have leading zeros at the lowest exponent."""
    return [len(number.significand) for number in (x, y) if number.promises.leading is LeadingZeros.AT_FLOOR]


def _lowest(x: Raw, y: Raw) -> int:
    """Return the lowest exponent of a small product without leading zeros."""
    subnormal, lowest = _subnormal_lengths(x, y), x.promises.emin + y.promises.emin
    if max(len(x.significand), len(y.significand)) > INPUTS // 2:
        return lowest - sum(length - 1 for length in subnormal)
    most = {0: 1, 1: sum(subnormal), 2: MOST_ZEROS}[len(subnormal)]
    return lowest + 1 - most


def _with_zeros(m: Module, x: Raw, y: Raw) -> Magnitude:
    """Return exponent and normalised significand of a product, from a table of both significands.

    Up to three leading zeros are removed; a product of normal numbers without carry has one. Two or three occur only
    with a subnormal factor, whose exponent reads 1; with all bits set it is two less, and the other exponent must be at
    least 1. If more zeros remain, both factors are subnormal, and the exponent is the lowest.
    """
    x_length, y_length = len(x.significand), len(y.significand)
    width = x_length + y_length
    index = Cat(x.significand, y.significand)
    codes = [(code % (1 << x_length), code >> x_length) for code in range(1 << width)]
    # The significand of a zero does not matter; this choice gives the smallest tables.
    zeros = [min(width - (a * b).bit_length(), MOST_ZEROS) if a * b else 1 for a, b in codes]
    significand = lookup(index, [(a * b) << places for (a, b), places in zip(codes, zeros, strict=True)])
    count = wire(m, lookup(index, zeros)[:2], "product_leading_zeros")
    bits = max(len(x.exponent), len(y.exponent)) + 1
    exponents = [Cat(number.exponent, Const(0, bits - len(number.exponent))) for number in (x, y)]
    subnormal = _subnormal_lengths(x, y)
    if subnormal:
        of_x = wire(m, count[1] & ~x.significand[-1], "x_exponent_less")
        of_y = wire(m, count[1] & x.significand[-1], "y_exponent_less")
        exponents = [exponent | less.replicate(bits) for exponent, less in zip(exponents, (of_x, of_y), strict=True)]
    return Magnitude(
        exponent=wire(m, _sum(exponents[0], exponents[1], ~count[0], bits), "product_exponent"),
        significand=wire(m, significand[:width], "product_significand"),
        base=x.base + y.base,
        promises=Promises(
            emin=_lowest(x, y),
            emax=x.promises.emax + y.promises.emax + 1,
            leading=LeadingZeros.AT_FLOOR if len(subnormal) == 2 else LeadingZeros.NONE,
        ),
    )


def _normalised(m: Module, x: Raw, name: str) -> Magnitude:
    """Normalise a factor: the bits below its leading one, and a signed exponent."""
    places = len(x.significand) - 1
    fraction, exponent = x.significand[:places], x.exponent
    is_subnormal = x.promises.leading is LeadingZeros.AT_FLOOR
    if is_subnormal:
        # A subnormal number is shifted up until its first one is the leading bit.
        steps = [min(max(places + 1 - code.bit_length(), 0), places) for code in range(2 << places)]
        moved = [(code << step) % (1 << places) for code, step in enumerate(steps)]
        fraction = lookup(x.significand, moved)
        # The exponent of subnormal numbers reads 1; subtracting 1, 2 or 3 gives 0, -1 or -2.
        negative = wire(m, lookup(x.significand, [step >> 1 for step in steps]), f"{name}_exponent_negative")
        odd = lookup(x.significand, [step & 1 for step in steps])
        upper = exponent[1:] | negative.replicate(len(exponent) - 1)
        lowest = wire(m, Mux(x.significand[-1], exponent[0], ~odd), f"{name}_exponent_lowest")
        exponent = Cat(lowest, upper, negative).as_signed()
    return Magnitude(
        exponent=exponent,
        significand=wire(m, fraction[:places], f"{name}_fraction"),
        base=x.base,
        promises=Promises(
            emin=x.promises.emin - (places if is_subnormal else 0), emax=x.promises.emax, leading=LeadingZeros.NONE
        ),
    )


def _small(m: Module, x: Magnitude, y: Magnitude, zeros: tuple[Value, Value] | None) -> Magnitude:
    """Return exponent and significand of a product of `_normalised` factors.

    With the conditions ``zeros`` that x and y are zero, the product has no leading zeros, and that of a zero is zero.
    """
    a, b = x.significand, y.significand
    hidden_bit: Value = Const(1, 1)
    if zeros is not None:
        a, b = a & (~zeros[1]).replicate(len(a)), b & (~zeros[0]).replicate(len(b))
        hidden_bit = ~(zeros[0] | zeros[1])
    # With fractions a and b, the product (1 + a)(1 + b) is the sum of a(1 + b), which is a table, and 1 + b.
    codes = [(code % (1 << len(a)), code >> len(a)) for code in range(1 << (len(a) + len(b)))]
    multiple = lookup(Cat(a, b), [of_a * ((1 << len(b)) + of_b) for of_a, of_b in codes])
    upper = wire(m, multiple[len(a) :], "partial_product")
    significand = wire(m, Cat(multiple[: len(a)], (upper + Cat(b, hidden_bit))[: len(b) + 2]), "whole_product")
    exponent, leading, grows = x.exponent + y.exponent, LeadingZeros.AT_MOST_ONE, True
    if zeros is not None:
        carry = significand[-1]
        shape = exponent.shape()
        x_exponent, y_exponent = (extended(number.exponent, shape.width) for number in (x, y))
        exponent, leading, grows = _sum(x_exponent, y_exponent, carry, shape.width), LeadingZeros.NONE, False
        exponent = exponent.as_signed() if shape.signed else exponent
        significand = Mux(carry, significand, Cat(Const(0, 1), significand[:-1]))
    return Magnitude(
        exponent=wire(m, exponent, "product_exponent"),
        significand=wire(m, significand, "product_significand"),
        base=x.base + y.base + grows,
        promises=Promises(
            emin=x.promises.emin + y.promises.emin + grows,
            emax=x.promises.emax + y.promises.emax + 1,
            leading=leading,
        ),
    )


def _sum(x: Value, y: Value, carry: Value, bits: int) -> Value:
    """Return ``bits`` bits of ``x + y + carry``, computed by one carry chain."""
    return (Cat(carry, x) + Cat(Const(1, 1), y))[1 : bits + 1]
