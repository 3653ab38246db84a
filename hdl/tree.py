"""Sums of many terms on one scale."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from amaranth.hdl import Cat, Const, Module, Mux, Value

from . import fixed, quire
from .fixed import FixedRaw
from .formats import Rounding
from .formats.base import floor_log2
from .multiply import fits_table, of_fractions
from .number import Number
from .number import as_raw as number_as_raw
from .product import product
from .raw import Anticipated, LeadingZeros, OperationFlags, Promises, Raw
from .round import cancelled_sign
from .specs import ValueRange
from .wire import NEVER, extended, never, shift_up, shift_up_by_words, wire

MIN_SELECTS = 3
"""Minimum number of decoded bits of a shift amount; multiplexers of fewer bits merge into the next adder anyway."""

CHAIN = 4
"""Terms that a chained sum adds one after the other. Longer chains lengthen the path by an adder for each term."""


@dataclass(frozen=True)
class Term:
    """Term of a sum, and the flags of the number.

    Attributes
    ----------
    integer : Value
        Unsigned magnitude with the sign ``negative``, or a signed number; ``negative`` is then constant.
    negative, sign, nan, inf : Value
        ``sign`` is that of the number, including zeros and infinities.
    invalid : Value
        Exception flag of the number; see `Raw`.
    inverted : Value
        In a sum by words, true if the number and the first term have opposite signs. ``integer`` is then signed, and
        the ones' complement of the magnitude.
    """

    integer: Value
    negative: Value
    sign: Value
    nan: Value
    inf: Value
    invalid: Value = field(default_factory=never)
    inverted: Value = field(default_factory=never)


@dataclass(frozen=True)
class Sum:
    """Integer that is negated if ``negative``, and the flags of a sum.

    Attributes
    ----------
    integer : Value
        Signed.
    negative, nan, inf : Value
    inf_sign : Value
        Sign of an infinite sum.
    invalid : Value
        A term is invalid, or infinities of both signs are added and no NaN.
    """

    integer: Value
    negative: Value
    nan: Value
    inf: Value
    inf_sign: Value
    invalid: Value


def of_product(  # noqa: PLR0913 - two factors, the scale and range of products, and their structure
    m: Module,
    x: Number,
    y: Number,
    quantum: int,
    products: ValueRange,
    *,
    dsp: bool,
    flags: bool = False,
    first: Value | None = None,
) -> dict[str, Value]:
    """Return the parts of a `Term`, the product of two numbers in units of ``2^quantum``; ``products`` are all.

    The part ``invalid`` is absent without ``flags``, and ``inverted`` without ``first``, the sign of the first term.
    """
    if isinstance(x, FixedRaw) and isinstance(y, FixedRaw):
        return of_number(m, fixed.multiply(m, x, y, dsp=dsp), quantum, products)
    x, y = number_as_raw(m, x, "a"), number_as_raw(m, y, "b")
    raw = multiply(m, x, y, dsp=dsp, any_zero=True, flags=flags)
    return _of_raw(m, raw, x.last + y.last - quantum, quantum, products, first)


def of_number(m: Module, x: Number, quantum: int, numbers: ValueRange, first: Value | None = None) -> dict[str, Value]:
    """Return the parts of a `Term`, a number in units of ``2^quantum``; ``numbers`` are all that it may be.

    ``first`` is that of `of_product`.
    """
    if not isinstance(x, FixedRaw):
        return _of_raw(m, vars(x) | {"invalid": x.flags.invalid}, x.last - quantum, quantum, numbers, first)
    placed = quire.place(m, x, quantum, "fixed")
    parts = {"integer": placed.integer, "negative": NEVER, "sign": placed.sign, "nan": placed.nan, "inf": placed.inf}
    if first is None:
        return parts
    signed = extended(placed.integer, len(placed.integer) + 1)
    return parts | {"integer": (signed ^ first.replicate(len(signed))).as_signed(), "inverted": first}


def _of_raw(
    m: Module, x: Mapping[str, Value], last: int, quantum: int, numbers: ValueRange, first: Value | None
) -> dict[str, Value]:
    bits, absent = bits_of(numbers, quantum), x.get("absent", NEVER)
    inverted = NEVER if first is None else wire(m, x["sign"] ^ first, "opposite")
    integer = place(m, x["significand"], x["exponent"], last, bits, absent, inverted)
    parts = {"integer": integer, "negative": x["sign"], "sign": x["sign"]}
    if first is not None:
        parts |= {"integer": Cat(integer, inverted).as_signed(), "inverted": inverted}
    return parts | {name: x[name] for name in ("nan", "inf", "invalid") if name in x}


def bits_of(numbers: ValueRange, quantum: int) -> int:
    """Return the number of bits of the largest magnitude in units of ``2^quantum``."""
    return floor_log2(numbers.magnitude) - quantum + 1


def sign_of_zero(signs: Sequence[Value], rounding: Rounding, *, from_zero: bool) -> Value:
    """Return the sign of a sum of zero from those of its terms; with ``from_zero``, +0 is one more term."""
    all_signs = Cat(*signs, *([NEVER] if from_zero else []))
    return cancelled_sign(rounding, all_signs.any(), all_signs.all())


def multiply(
    m: Module, x: Raw, y: Raw, *, dsp: bool, any_zero: bool = False, flags: bool = False, table: bool = False
) -> dict[str, Value]:
    """Return sign, exponent, significand and flags of a product that keeps the leading zeros of both factors.

    With ``any_zero``, the significand of a zero may be any; ``absent`` is then true for it. With ``flags``, ``invalid``
    is the exception flag. ``table`` is that of `product`.
    """
    more = {}
    if any_zero and not dsp and fits_table(x, y):
        significand = of_fractions(m, x, y)
        more["absent"] = wire(m, x.zero | y.zero, "product_zero")
    else:
        whole = product(m, x.significand, y.significand, "partial", dsp=dsp, table=table)
        significand = wire(m, whole, "product_significand")
    if flags:
        invalid = x.flags.invalid | y.flags.invalid | (x.inf & y.zero) | (x.zero & y.inf)
        more["invalid"] = wire(m, invalid, "product_invalid")
    return more | {
        "sign": wire(m, x.sign ^ y.sign, "product_sign"),
        "exponent": wire(m, x.exponent + y.exponent, "product_exponent"),
        "significand": significand,
        "nan": wire(m, x.nan | y.nan | (x.inf & y.zero) | (x.zero & y.inf), "product_nan"),
        "inf": wire(m, x.inf | y.inf, "product_inf"),
    }


def place(
    m: Module,
    significand: Value,
    exponent: Value,
    last: int,
    top: int,
    absent: Value = NEVER,
    inverted: Value = NEVER,
) -> Value:
    """Return ``significand * 2^(exponent + last)`` as an integer, which is below ``2^top``; zero if ``absent``.

    ``last`` may be negative; no one is then shifted out at the low end. If ``inverted``, the ones' complement is
    returned: the significand is inverted before the shift, which needs no LUTs beside those of the shift.
    """
    padded = Cat(Const(0, max(last, 0)), significand)
    shifted = _shift_up(m, padded, exponent, top + max(-last, 0), absent, inverted)
    return wire(m, shifted[max(-last, 0) :], "term_placed")


def _shift_up(m: Module, value: Value, amount: Value, width: int, absent: Value, inverted: Value) -> Value:
    """Return the lowest ``width`` bits of ``value << amount``, or zero if ``absent``; their inverses if ``inverted``.

    Each bit of a number after a shift by less than a word of at least its width minus one is one of two bits of the
    shifted number, selected by two of the conditions that a word is the first one. These four inputs and the other
    operand of an adder are one LUT of an FPGA.
    """
    levels = max(len(value) - 1, 1).bit_length()
    by_words = len(amount) - levels >= MIN_SELECTS
    if absent is not NEVER and not by_words:
        value = value & (~absent).replicate(len(value))
    if inverted is not NEVER:
        value = wire(m, value ^ inverted.replicate(len(value)), "term_inverted")
    if not by_words:
        return shift_up(m, value, amount, width, "term", inverted)
    return shift_up_by_words(m, value, amount, width, levels, "term", absent, inverted)


def total(m: Module, terms: Sequence[Term], *, chained: bool = False) -> Sum:
    """Return the sum of terms. If the first one is not negated, the sum is not either.

    With ``chained``, groups of up to `CHAIN` terms are added one after the other and not in a tree: more of them are
    then the second operand of an adder.
    """
    return with_flags(m, terms, *_tree(m, terms, "total", chained))


def with_flags(m: Module, terms: Sequence[Term], integer: Value, negative: Value) -> Sum:
    """Return the sum of terms, ``integer`` negated if ``negative``, with its flags."""
    up = Cat(*(term.inf & ~term.sign for term in terms)).any()
    down = Cat(*(term.inf & term.sign for term in terms)).any()
    any_nan, any_invalid = (Cat(*(getattr(term, name) for term in terms)).any() for name in ("nan", "invalid"))
    return Sum(
        integer,
        negative,
        nan=wire(m, any_nan | (up & down), "total_nan"),
        inf=wire(m, up | down, "total_inf"),
        inf_sign=down,
        invalid=any_invalid | (up & down & ~any_nan),
    )


def are_second(count: int, *, chained: bool) -> list[bool]:
    """Return for each of ``count`` terms of `total` whether it is the second operand of an adder.

    The last multiplexers of such a term merge into the LUTs of the adder. Its first operand also drives the carry chain
    and has LUTs of its own.
    """
    if count == 1:
        return [False]
    half = first_part(count, chained)
    second = [True] if count - half == 1 else are_second(count - half, chained=chained)
    return are_second(half, chained=chained) + second


def first_part(count: int, chained: bool) -> int:
    """Return the number of terms in the first operand of a sum."""
    return count - 1 if chained and count <= CHAIN else count // 2


def _tree(m: Module, terms: Sequence[Term], name: str, chained: bool) -> tuple[Value, Value]:
    """Add terms in a tree; return an integer, and the condition that the sum is its negative.

    Each adder negates its second operand relative to its first one: the inversion needs no LUTs beside those of the
    adder, and the increment is its carry-in. So no term is negated before.
    """
    if len(terms) == 1:
        integer = terms[0].integer
        return integer if integer.shape().signed else Cat(integer, Const(0, 1)).as_signed(), terms[0].negative
    half = first_part(len(terms), chained)
    x, x_negative = _tree(m, terms[:half], f"{name}_low", chained)
    y, y_negative = _tree(m, terms[half:], f"{name}_high", chained)
    width = max(len(term.integer) + (not term.integer.shape().signed) for term in terms)
    width += (len(terms) - 1).bit_length()
    if isinstance(x_negative, Const) and isinstance(y_negative, Const):
        return wire(m, (x + y)[:width].as_signed(), name), x_negative
    opposite = wire(m, x_negative ^ y_negative, f"{name}_opposite")
    inverted = extended(y, width) ^ opposite.replicate(width)
    added = Cat(Const(1, 1), extended(x, width)) + Cat(opposite, inverted)
    return wire(m, added[1 : width + 1].as_signed(), name), x_negative


def as_fixed(m: Module, exact_sum: Sum, quantum: int, zero_sign: Value) -> FixedRaw:
    """Return a sum that is not negated as a fixed-point number."""
    integer = exact_sum.integer
    negative = integer[-1] if integer.shape().signed else NEVER
    sign = Mux(exact_sum.inf, exact_sum.inf_sign, Mux(integer.any(), negative, zero_sign))
    return FixedRaw(integer, wire(m, sign, "total_sign"), quantum, nan=exact_sum.nan, inf=exact_sum.inf)


def as_raw(m: Module, exact_sum: Sum, last: int, bits: int, zero_sign: Value, *, fast: bool) -> Raw:
    """Return a sum in units of ``2^last`` as a raw number with exponent 0; its magnitude has at most ``bits`` bits.

    A negative integer is the two's complement of the magnitude.
    """
    integer = extended(exact_sum.integer, bits + 1)[: bits + 1]
    negative = integer[-1]
    zero = wire(m, ~integer.any(), "total_zero")
    sign = Mux(exact_sum.inf, exact_sum.inf_sign, Mux(zero, zero_sign, negative ^ exact_sum.negative))
    first = last + bits - 1
    return Raw(
        sign=wire(m, sign, "total_sign"),
        exponent=Const(0, 0),
        significand=wire(m, integer[:-1], "total_significand"),
        nan=exact_sum.nan,
        inf=exact_sum.inf,
        zero=zero,
        base=first,
        promises=Promises(emin=first, emax=first, leading=LeadingZeros.ANY, zero_at_floor=True),
        anticipated=Anticipated(complement=negative, selects_carry=fast),
        flags=OperationFlags(invalid=exact_sum.invalid),
    )


def without_complement(m: Module, x: Raw) -> Raw:
    """Return the number with its magnitude as significand, which further sums need."""
    complement = x.anticipated.complement
    if complement is None:
        return x
    width = len(x.significand)
    magnitude = (x.significand ^ complement.replicate(width)) + complement
    return replace(
        x,
        significand=wire(m, magnitude[:width], "total_magnitude"),
        anticipated=replace(x.anticipated, complement=None),
    )
