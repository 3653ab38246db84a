"""Products of blocks, which are exact sums of elements times the scales, and scales of blocks."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import floor

from amaranth.hdl import Cat, Const, Module, Mux, Value

from . import quire
from .fixed import FixedRaw, parts
from .formats import RN, Block, Format, Rounding, Scale
from .number import Number, as_raw, multiply, negate_if, pack, truncate, unpack
from .raw import Raw, normalise
from .wire import NEVER, wire


def factor(m: Module, x: Value, y: Value, a: Block, b: Block) -> Raw:
    """Return the product of the scales of two blocks, from their codes."""
    one, other = (
        as_raw(m, unpack(m, code, block.scale, f"{name}_scale"), name)
        for code, block, name in ((x, a, "a"), (y, b, "b"))
    )
    found = multiply(m, one, other, dsp=False)
    assert isinstance(found, Raw)
    return found


def flags_of(x: Raw) -> dict[str, Value]:
    """Return the sign and flags of a factor, without constants, as operands of `product`."""
    found = {"negative": x.sign, "no_scale": x.zero, "endless": x.inf}
    return {name: value for name, value in found.items() if not isinstance(value, Const)}


def product(m: Module, a: Value, b: Value, *, x: Block, y: Block, dsp: bool, **flags: Value) -> dict[str, Value]:
    """Return the product of two elements in fixed point, with the sign of the scales; parts of `FixedRaw`.

    A zero or infinite scale changes each product before the sum, because it may make terms zero, or cancel infinities.
    """
    number: Number = multiply(m, unpack(m, a, x.element, "a"), unpack(m, b, y.element, "b"), dsp=dsp)
    if "negative" in flags:
        number = negate_if(number, flags["negative"])
    placed = quire.place(m, number, quantum_of(x, y), "fixed")
    found = parts(placed)
    if "endless" in flags:
        zero = wire(m, ~placed.integer.any() & ~placed.inf, "product_zero_integer")
        found["nan"] = wire(m, placed.nan | (flags["endless"] & zero), "scaled_nan")
        found["inf"] = wire(m, placed.inf | flags["endless"], "scaled_inf")
    if "no_scale" in flags:
        found["integer"] = wire(m, Mux(flags["no_scale"], 0, placed.integer)[: len(placed.integer)], "scaled_integer")
        if placed.integer.shape().signed:
            found["integer"] = found["integer"].as_signed()
    return found


def quantum_of(x: Block, y: Block) -> int:
    """Return the exponent of the last place of products of elements."""
    return x.element.quantum + y.element.quantum


def scaled_sum(m: Module, terms: Sequence[FixedRaw], scale: Raw, rounding: Rounding, *, from_zero: bool) -> Number:
    """Return the exact sum of products of elements, and of +0 if ``from_zero``, times the magnitude of the scales."""
    total = quire.total(m, terms, rounding, from_zero=from_zero)
    return multiply(m, as_raw(m, total, "total"), replace(scale, sign=NEVER), dsp=False)


def largest(m: Module, numbers: Sequence[Raw]) -> tuple[Raw, Value]:
    """Return the largest magnitude of numbers of one format, and True if one is infinite or NaN."""
    special = wire(m, Cat(*(x.nan | x.inf for x in numbers)).any(), "any_special")
    zero = wire(m, Cat(*(x.zero for x in numbers)).all(), "all_zero")
    # Numbers of one format have leading zeros only at their lowest exponent, so this order is that of magnitudes.
    keys = [Cat(x.significand, x.exponent) for x in numbers]
    if not numbers[0].zero_at_floor:
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
    """Return the code of the scale of a block whose largest magnitude is x, by a rule of powers of two."""
    element, scale = block.element, block.scale
    x = normalise(m, x, "largest", x.quantum - 1, x.base)
    length, top = len(x.significand), element.largest / Fraction(2) ** block.emax
    up: Value = NEVER
    if block.rule == "even" and length > element.precision:
        # Rounding carries into the next power of two.
        up = x.significand[length - element.precision - 1 :].all()
    elif block.rule == "ceil":
        up = x.significand > floor(top * (1 << (length - 1)))
    power = Raw(
        sign=NEVER,
        exponent=wire(m, x.exponent + up, "scale_exponent"),
        significand=Const(1, 1),
        zero=NEVER,
        base=x.base - block.emax,
        emin=x.emin - block.emax,
        emax=x.emax - block.emax + 1,
        leading="one",
        zero_at_floor=False,
    )
    code = pack(m, truncate(m, power, scale, RN), scale, RN, True, None)
    if not isinstance(scale, Scale):
        code = Mux(code.any(), code, scale.encode(scale.smallest))
    return Mux(x.zero, block.zero_scale, code)


def quotient(m: Module, x: Raw, code: Value, fmt: Format) -> Raw:
    """Return a number divided by a power of two, from the code of that."""
    scale = as_raw(m, unpack(m, code, fmt, "scale"), "scale")
    most = (1 << len(scale.exponent)) - 1
    return replace(
        x,
        # The inverse is the difference to the largest exponent field.
        exponent=wire(m, x.exponent + (scale.exponent ^ most), "quotient_exponent"),
        nan=NEVER,
        inf=NEVER,
        base=x.base - scale.base - most,
        emin=x.emin - scale.emax,
        emax=x.emax - scale.emin,
        # Subnormal numbers, with leading zeros, may have large quotients.
        leading="any" if x.leading == "floor" else x.leading,
        zero_at_floor=False,
    )
