"""Products of blocks, which are exact sums of elements times the scales, and scales of blocks."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import floor

from amaranth.hdl import Cat, Const, Module, Mux, Value

from . import tree
from .divide import divide
from .formats import RN, SAT, Block, Format, Rounding
from .formats.base import floor_log2
from .number import as_raw, pack, truncate, unpack
from .product import product as multiply_integers
from .raw import LeadingZeros, Promises, Raw, normalise
from .rows import Rows
from .specs import ValueRange
from .specs.ranges import window_of
from .wire import NEVER, wire


def factor(m: Module, x: Value, y: Value, a: Block, b: Block) -> Raw:
    """Return the product of the scales of two blocks, from their codes. It may have any number of leading zeros."""
    first, second = (
        as_raw(m, unpack(m, code, block.scale, f"{name}_scale"), name)
        for code, block, name in ((x, a, "a"), (y, b, "b"))
    )
    values = tree.multiply(m, first, second, dsp=False)
    if len(first.significand) == len(second.significand) == 1:
        values["significand"] = Const(1, 1)
    last = first.last + second.last
    base = last + len(values["significand"]) - 1
    return Raw(
        **values,
        zero=wire(m, first.zero | second.zero, "scale_zero"),
        base=base,
        promises=Promises(
            emin=base + sum(number.promises.emin - number.base for number in (first, second)),
            emax=base + sum(number.promises.emax - number.base for number in (first, second)),
            leading=LeadingZeros.ANY,
        ),
    )


def product(
    m: Module, a: Value, b: Value, infinite: Value | None = None, *, x: Block, y: Block, dsp: bool
) -> dict[str, Value]:
    """Return the product of two elements; parts of `tree.Term`.

    An infinite scale makes each product infinite or NaN before the sum, because infinities may cancel.
    """
    elements = unpack(m, a, x.element, "a"), unpack(m, b, y.element, "b")
    parts = tree.of_product(m, *elements, quantum_of(x, y), products_of(x, y), dsp=dsp)
    if infinite is not None:
        zero = wire(m, ~parts["integer"].any() & ~parts["inf"], "product_zero_integer")
        parts["nan"] = wire(m, parts["nan"] | (infinite & zero), "scaled_nan")
        parts["inf"] = wire(m, parts["inf"] | infinite, "scaled_inf")
    return parts


def quantum_of(x: Block, y: Block) -> int:
    """Return the exponent of the last place of products of elements."""
    return x.element.quantum + y.element.quantum


def products_of(x: Block, y: Block) -> ValueRange:
    """Return the range of products of elements."""
    return ValueRange.of(x.element) * ValueRange.of(y.element)


def scaled_sum(
    m: Module,
    terms: Sequence[tree.Term],
    scale: Raw,
    blocks: tuple[Block, Block],
    rounding: Rounding,
    *,
    from_zero: bool,
    fast: bool,
) -> Raw:
    """Return the exact sum of products of elements, and of +0 if ``from_zero``, times the product of the scales."""
    exact_sum, quantum = tree.total(m, terms), quantum_of(*blocks)
    bits = tree.bits_of(products_of(*blocks).times(len(terms)), quantum)
    integer = exact_sum.integer
    if not isinstance(scale.significand, Const):
        integer = wire(m, multiply_integers(m, integer, scale.significand, "scaled", dsp=False), "scaled_total")
        bits += len(scale.significand)
    exact_sum = replace(
        exact_sum,
        integer=integer,
        negative=exact_sum.negative ^ scale.sign,
        nan=wire(m, exact_sum.nan | scale.nan | (exact_sum.inf & scale.zero), "scaled_nan"),
        inf_sign=exact_sum.inf_sign ^ scale.sign,
    )
    zero_sign = tree.sign_of_zero([term.sign ^ scale.sign for term in terms], rounding, from_zero=from_zero)
    total = tree.as_raw(m, exact_sum, quantum, bits, zero_sign, fast=fast)
    # The integer counts units of the last place of the scales. The exponent of the total is 0.
    places = len(scale.significand) - 1
    return replace(
        total,
        exponent=scale.exponent,
        base=total.base + scale.last,
        promises=total.promises.moved(scale.promises.emin - places, scale.promises.emax - places),
    )


def largest(m: Module, numbers: Sequence[Raw]) -> tuple[Raw, Value]:
    """Return the largest magnitude of numbers of one format, and True if one is infinite or NaN."""
    special = wire(m, Cat(*(x.nan | x.inf for x in numbers)).any(), "any_special")
    zero = wire(m, Cat(*(x.zero for x in numbers)).all(), "all_zero")
    # Numbers of one format have leading zeros only at their lowest exponent, so this order is that of magnitudes.
    keys = [Cat(x.significand, x.exponent) for x in numbers]
    if not numbers[0].promises.zero_at_floor:
        keys = [Mux(x.zero, 0, key)[: len(key)] for x, key in zip(numbers, keys, strict=True)]
    key = _maximum(m, keys, "largest")
    first = numbers[0]
    length = len(first.significand)
    held = replace(first, sign=NEVER, exponent=key[length:], significand=key[:length], nan=NEVER, inf=NEVER, zero=zero)
    return held, special


def _maximum(m: Module, keys: Sequence[Value], name: str) -> Value:
    if len(keys) == 1:
        return keys[0]
    half = len(keys) // 2
    x, y = _maximum(m, keys[:half], f"{name}_low"), _maximum(m, keys[half:], f"{name}_high")
    return wire(m, Mux(x < y, y, x), name)


def scale_code(m: Module, x: Raw, block: Block) -> Value:
    """Return the code of the scale of a block whose largest magnitude is x."""
    scale = block.scale
    if block.rule == "nearest":
        bound = ValueRange.of(scale).magnitude
        wanted = divide(m, x, _constant(block.element.largest), Rows(window_of(scale, RN, bound) + 1))
    else:
        wanted = _power(m, x, block)
    code = pack(m, truncate(m, wanted, scale, RN), scale, RN, SAT, None)
    if scale.has_zero:
        code = Mux(code.any(), code, scale.encode(scale.smallest))
    return Mux(x.zero, block.zero_scale, code)


def _power(m: Module, x: Raw, block: Block) -> Raw:
    """Return the power of two that is the scale of a block whose largest magnitude is x."""
    element = block.element
    x = normalise(m, x, "largest", x.quantum - 1, x.base)
    length, top = len(x.significand), element.largest / Fraction(2) ** block.emax
    up: Value = NEVER
    if block.rule == "even" and length > element.precision:
        # Rounding carries into the next power of two.
        up = x.significand[length - element.precision - 1 :].all()
    elif block.rule == "ceil":
        up = x.significand > floor(top * (1 << (length - 1)))
    return Raw(
        sign=NEVER,
        exponent=wire(m, x.exponent + up, "scale_exponent"),
        significand=Const(1, 1),
        zero=NEVER,
        base=x.base - block.emax,
        promises=x.promises.moved(-block.emax, 1 - block.emax),
    )


def _constant(value: Fraction) -> Raw:
    """Return a positive number."""
    exponent, significand = floor_log2(value), value.numerator
    significand >>= (significand & -significand).bit_length() - 1
    return Raw(
        sign=NEVER,
        exponent=Const(0, 1),
        significand=Const(significand, significand.bit_length()),
        zero=NEVER,
        base=exponent,
        promises=Promises(emin=exponent, emax=exponent, leading=LeadingZeros.NONE),
    )


def divisor(m: Module, code: Value, fmt: Format) -> Raw:
    """Return the scale of a block without special numbers as a divisor, from its code."""
    scale = as_raw(m, unpack(m, code, fmt, "scale"), "scale")
    scale = normalise(m, scale, "scale", scale.quantum, scale.base)
    return replace(scale, sign=NEVER, nan=NEVER, inf=NEVER, zero=NEVER)


def quotient(m: Module, x: Raw, scale: Raw, element: Format, rounding: Rounding) -> Raw:
    """Return a finite number divided by the scale of its block, with the bits that its rounding to an element needs."""
    x = replace(x, nan=NEVER, inf=NEVER)
    if len(scale.significand) == 1:
        return _by_power_of_two(m, x, scale)
    of_x = x.promises
    lowest = of_x.emin - scale.promises.emin
    if of_x.leading is LeadingZeros.AT_FLOOR and lowest < element.quantum - max(rounding.places, 1):
        # No discarded bit of the quotient of a number with leading zeros is a one, only its sticky bit.
        x = replace(x, promises=replace(of_x, leading=LeadingZeros.NONE))
    window = window_of(element, rounding, 2 * ValueRange.of(element).magnitude)
    return divide(m, x, scale, Rows(window + 1))


def _by_power_of_two(m: Module, x: Raw, scale: Raw) -> Raw:
    most = (1 << len(scale.exponent)) - 1
    return replace(
        x,
        # The inverse is the difference to the largest exponent field.
        exponent=wire(m, x.exponent + (scale.exponent ^ most), "quotient_exponent"),
        base=x.base - scale.base - most,
        # Subnormal numbers, with leading zeros, may have large quotients.
        promises=x.promises.moved(-scale.promises.emax, -scale.promises.emin),
    )
