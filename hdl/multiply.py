"""Exact products of raw numbers.

Those of few bits are made of tables without leading zeros, which saves whatever follows to look for them. A table of
an FPGA has six inputs: as many as two significands of three bits have.
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Value

from .product import product
from .raw import Raw
from .wire import extended, lookup, wire

INPUTS = 6
"""Inputs of a lookup table."""

MOST_ZEROS = INPUTS // 2
"""Leading zeros that are taken away of a product that is a table: as many as one has that is not of two subnormal
numbers."""

LONGEST_SMALL = 4
"""Bits of significands whose leading zeros are taken away before they are multiplied: a count and a shift of up to
three bits are a few tables, those of their product many."""


@dataclass(frozen=True)
class Magnitude:
    """A raw number without sign and flags; the attributes are those of `Raw`."""

    exponent: Value
    significand: Value
    base: int
    emin: int
    emax: int
    leading: str
    most_zeros: int | None = None


def multiply(m: Module, x: Raw, y: Raw, *, dsp: bool, floor: int | None) -> Raw:
    """Exact product: significands multiply, exponents add, nothing is lost.

    One that DSP blocks are to take is left to the synthesis tool as it is. ``floor`` is the exponent at which a number
    has its leading zeros that is to be added: one that can be lower keeps its own, for a sum looks for leading zeros
    anyway.
    """
    lengths = len(x.significand), len(y.significand)
    is_small = {x.leading, y.leading} <= {"one", "floor"} and min(lengths) > 1 and max(lengths) <= LONGEST_SMALL
    if dsp or not is_small or (floor is not None and _lowest(x, y) < floor):
        magnitude = _any(m, x, y, dsp)
    elif max(lengths) <= INPUTS // 2:
        magnitude = _with_zeros(m, x, y)
    else:
        zero = x.zero | y.zero
        magnitude = _without_zeros(m, _normalised(m, x, y.zero, "x"), _normalised(m, y, x.zero, "y"), zero)
    return Raw(
        **vars(magnitude),
        sign=wire(m, x.sign ^ y.sign, "product_sign"),
        nan=wire(m, x.nan | y.nan | (x.inf & y.zero) | (x.zero & y.inf), "product_nan"),
        inf=wire(m, x.inf | y.inf, "product_inf"),
        zero=wire(m, x.zero | y.zero, "product_zero"),
        zero_at_floor=False,
    )


def _any(m: Module, x: Raw, y: Raw, dsp: bool) -> Magnitude:
    """Exponent and significand of a product, with the leading zeros of both numbers."""
    # With 1 <= f < 2 for each significand, 1 <= product < 4: one bit more before the point. A significand of one bit
    # is 0 or 1 and adds none.
    grows = min(len(x.significand), len(y.significand)) > 1
    width = len(x.significand) + len(y.significand) - (0 if grows else 1)
    significand = product(m, x.significand, y.significand, "partial_product", dsp=dsp)[:width]
    most_zeros = None
    if x.leading == y.leading == "one":
        leading = "two" if grows else "one"
    else:
        leading = "any"
        # Above the lowest exponent one factor is normal, and the other has all its leading zeros and a one.
        if {x.leading, y.leading} <= {"one", "floor"}:
            most_zeros = max(len(number.significand) for number in (x, y) if number.leading == "floor")
    return Magnitude(
        exponent=wire(m, x.exponent + y.exponent, "product_exponent"),
        significand=wire(m, significand, "product_significand"),
        base=x.base + y.base + grows,
        emin=x.emin + y.emin + grows,
        emax=x.emax + y.emax + grows,
        leading=leading,
        most_zeros=most_zeros,
    )


def _lowest(x: Raw, y: Raw) -> int:
    """Lowest exponent of a small product without leading zeros."""
    lengths = len(x.significand), len(y.significand)
    subnormal = [length for length, number in zip(lengths, (x, y), strict=True) if number.leading == "floor"]
    if max(lengths) > INPUTS // 2:
        return x.emin + y.emin - sum(length - 1 for length in subnormal)
    most = {0: 1, 1: sum(subnormal), 2: MOST_ZEROS}[len(subnormal)]
    return x.emin + y.emin + 1 - most


def _with_zeros(m: Module, x: Raw, y: Raw) -> Magnitude:
    """Exponent and normalised significand of a product, the latter as a table of both significands.

    Up to three leading zeros are taken away; one is there where normal numbers have no carry. Two or three only comes
    of a subnormal number, and the exponent of that reads 1: with all bits set it is two less. Where zeros are left,
    both numbers are subnormal, and the exponent is the lowest.
    """
    x_length, y_length = len(x.significand), len(y.significand)
    width = x_length + y_length
    index = Cat(x.significand, y.significand)
    codes = [(code % (1 << x_length), code >> x_length) for code in range(1 << width)]
    # Zero is told by its flag; as a normal product it makes the smallest tables.
    zeros = [min(width - (a * b).bit_length(), MOST_ZEROS) if a * b else 1 for a, b in codes]
    significand = lookup(index, [(a * b) << places for (a, b), places in zip(codes, zeros, strict=True)])
    count = wire(m, lookup(index, zeros)[:2], "product_leading_zeros")
    bits = max(len(x.exponent), len(y.exponent)) + 1
    exponents = [Cat(number.exponent, Const(0, bits - len(number.exponent))) for number in (x, y)]
    if "floor" in (x.leading, y.leading):
        of_x = wire(m, count[1] & ~x.significand[-1], "x_exponent_less")
        of_y = wire(m, count[1] & x.significand[-1], "y_exponent_less")
        exponents = [exponent | less.replicate(bits) for exponent, less in zip(exponents, (of_x, of_y), strict=True)]
    return Magnitude(
        exponent=wire(m, _sum(exponents[0], exponents[1], ~count[0], bits), "product_exponent"),
        significand=wire(m, significand[:width], "product_significand"),
        base=x.base + y.base,
        emin=_lowest(x, y),
        emax=x.emax + y.emax + 1,
        leading="floor" if x.leading == y.leading == "floor" else "one",
    )


def _normalised(m: Module, x: Raw, other_zero: Value, name: str) -> Magnitude:
    """A factor with the bits below its leading one as significand, and a signed exponent.

    These bits are zero where either factor is, so that those of the product are.
    """
    places = len(x.significand) - 1
    fraction, exponent = x.significand[:places], x.exponent
    if x.leading == "floor":
        # A normal number stays, a subnormal one moves up until its first bit comes first.
        steps = [min(max(places + 1 - code.bit_length(), 0), places) for code in range(2 << places)]
        moved = [(code << step) % (1 << places) for code, step in enumerate(steps)]
        fraction = lookup(x.significand, moved)
        # Of subnormal numbers the exponent reads 1: one less is zero, and two and three less are -1 and -2.
        negative = wire(m, lookup(x.significand, [step >> 1 for step in steps]), f"{name}_exponent_negative")
        odd = lookup(x.significand, [step & 1 for step in steps])
        upper = exponent[1:] | negative.replicate(len(exponent) - 1)
        lowest = Mux(x.significand[-1], exponent[0], ~odd)
        exponent = Cat(lowest, upper, negative).as_signed()
    return Magnitude(
        exponent=exponent,
        significand=wire(m, (fraction & ~other_zero.replicate(places))[:places], f"{name}_fraction"),
        base=x.base,
        emin=x.emin - places if x.leading == "floor" else x.emin,
        emax=x.emax,
        leading="one",
    )


def _without_zeros(m: Module, x: Magnitude, y: Magnitude, zero: Value) -> Magnitude:
    """Exponent and normalised significand of a product of factors without leading zeros, as `_normalised` gives them.

    Left of the fractions' product there is little to add, and it takes few tables.
    """
    x_places, y_places = len(x.significand), len(y.significand)
    width = x_places + y_places + 2
    below = wire(m, x.significand * y.significand, "fractions_product")
    ones = Const(1 << (width - 2), width)
    whole = ones + (x.significand << y_places) + (y.significand << x_places) + below
    whole = wire(m, whole[:width], "partial_product")
    carry = whole[-1]
    below = Mux(carry, whole[:-1], Cat(Const(0, 1), whole[:-2]))
    # As wide as Amaranth would make the sum, signed or not.
    shape = (x.exponent + y.exponent).shape()
    x_exponent, y_exponent = (extended(number.exponent, shape.width) for number in (x, y))
    exponent = _sum(x_exponent, y_exponent, carry, shape.width)
    if shape.signed:
        exponent = exponent.as_signed()
    return Magnitude(
        exponent=wire(m, exponent, "product_exponent"),
        # Of zero there is no leading one.
        significand=wire(m, Cat(below, ~zero), "product_significand"),
        base=x.base + y.base,
        emin=x.emin + y.emin,
        emax=x.emax + y.emax + 1,
        leading="one",
    )


def _sum(x: Value, y: Value, carry: Value, bits: int) -> Value:
    """So many bits of ``x + y + carry``, on one carry chain."""
    return (Cat(carry, x) + Cat(Const(1, 1), y))[1 : bits + 1]
