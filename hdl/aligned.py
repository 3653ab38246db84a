"""Sums of floats that are aligned to the largest exponent and truncated there."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from amaranth.hdl import Cat, Const, Module, Mux, Value

from . import tree
from .formats import Float
from .raw import Raw
from .specs.dot import Alignment
from .wire import NEVER, never, shift_down, shift_up_by_words, wire


@dataclass(frozen=True)
class Term:
    """Term of an aligned sum: ``(-1)^sign * significand * 2^(exponent + base - fraction)``.

    Attributes
    ----------
    sign, zero, nan, inf, invalid : Value
    exponent : Value
        Unsigned; more than zero if the number is not zero.
    significand : Value
        Unsigned, below 4 with the point above ``fraction`` bits.
    base : int
        Offset of ``exponent``.
    emin, emax : int
        Bounds on ``exponent + base`` of a number that is not zero.
    fraction : int
    """

    sign: Value
    exponent: Value
    significand: Value
    zero: Value
    nan: Value
    inf: Value
    base: int
    emin: int
    emax: int
    fraction: int
    invalid: Value = field(default_factory=never)

    @classmethod
    def of(cls, *factors: Float, **values: Value) -> "Term":
        """Return a number of a format, or a product of two; ``values`` are those of `multiply` or `single`."""
        base, emin, emax, fraction = (
            sum(getattr(fmt, name) for fmt in factors) for name in ("bias", "emin", "emax", "man")
        )
        return cls(**values, base=-base, emin=emin, emax=emax, fraction=fraction)


def multiply(m: Module, x: Raw, y: Raw, *, dsp: bool, flags: bool) -> dict[str, Value]:
    """Return the values of a product of two unpacked floats as a term: its significand is not normalised."""
    values = tree.multiply(m, x, y, dsp=dsp, flags=flags, table=True)
    # NaN overrides infinity; both have all ones as exponent.
    inf = wire(m, x.inf | x.nan | y.inf | y.nan, "product_special")
    return values | {"inf": inf, "zero": wire(m, x.zero | y.zero, "product_zero")}


def single(x: Raw) -> dict[str, Value]:
    """Return the values of an unpacked float as a term."""
    names = ("sign", "exponent", "significand", "zero", "nan", "inf", "invalid")
    return {name: getattr(x, name) for name in names}


def largest(m: Module, terms: Sequence[Term], name: str) -> Value:
    """Return the largest exponent of the terms that are not zero, or zero, in a tree of comparisons.

    The first level orders two terms that may be zero; this needs fewer LUTs than to clear exponents of zeros.
    """
    x = terms[0]
    if len(terms) == 1:
        return wire(m, Mux(x.zero, 0, x.exponent), name)
    if len(terms) == 2:
        y = terms[1]
        is_high = wire(m, Cat(x.exponent, ~x.zero) < Cat(y.exponent, ~y.zero), f"{name}_is_high")
        return wire(m, Mux(x.zero & y.zero, 0, Mux(is_high, y.exponent, x.exponent)), name)
    half = len(terms) // 2
    return larger(m, largest(m, terms[:half], f"{name}_low"), largest(m, terms[half:], f"{name}_high"), name)


def larger(m: Module, x: Value, y: Value, name: str) -> Value:
    """Return the larger of two unsigned numbers."""
    return wire(m, Mux(wire(m, x < y, f"{name}_is_high"), y, x), name)


def place(
    m: Module,
    alignment: Alignment,
    fraction: int,
    *,
    sign: Value,
    significand: Value,
    distance: Value,
    is_second: bool,
) -> dict[str, Value]:
    """Shift a term down to the scale of the largest exponent and truncate it.

    The ``integer`` of the result is a magnitude, or with ``floor`` a signed number. ``is_second`` is that of
    `tree.are_second`.
    """
    bits = fraction + alignment.INTEGER
    top = Cat(significand, Const(0, bits - len(significand)))
    if not alignment.floor:
        # With the bits in reverse order, the shift is one up, and the bits beyond the width are removed.
        width, levels = alignment.fraction + alignment.INTEGER, _levels(bits, is_second)
        shifted = shift_up_by_words(m, top[::-1], distance, width, levels, "placed")
        return {"integer": wire(m, shifted[::-1], "placed")}
    # The shift of a negative number rounds it down.
    top = wire(m, ((Cat(top, NEVER) ^ sign.replicate(bits + 1)) + sign)[: bits + 1], "signed_term")
    below = alignment.fraction - fraction
    placed = shift_down(m, Cat(Const(0, max(below, 0)), top), distance, "placed", top[-1])[max(-below, 0) :]
    return {"integer": wire(m, placed.as_signed(), "placed")}


def _levels(length: int, is_second: bool) -> int:
    """Return the number of bits of a shift distance that shift within a word.

    A bit of the result is then one of three bits, or one of two in three quarters of the places of a second operand.
    Three bits and their selects are one LUT of an FPGA, two bits and their selects merge into an adder.
    """
    shortest = -(-4 * (length - 1) // 5) if is_second else length // 2
    return max(shortest - 1, 1).bit_length()


def scale(m: Module, groups: Sequence[Sequence[Term]]) -> tuple[list[list[Value]], Value, int]:
    """Return the distances of terms to the largest exponent, that exponent, and its offset.

    The terms of a group have one format.
    """
    base = min(group[0].base for group in groups)
    tops = []
    for number, group in enumerate(groups):
        offset = group[0].base - base
        top = largest(m, group, f"largest{number}")
        # Without a number that is not zero, the largest exponent stays below all others.
        tops.append(wire(m, Mux(top.any(), top + offset, 0), f"offset_largest{number}") if offset else top)
    top = tops[0] if len(tops) == 1 else larger(m, tops[0], tops[1], "largest_exponent")
    highest = max(group[0].emax for group in groups)
    distances = []
    for number, group in enumerate(groups):
        own = wire(m, top - (group[0].base - base), f"top{number}") if group[0].base != base else top
        bits = max((highest - group[0].emin).bit_length(), 1)
        # Modulo 2^bits, the distance is that of every term that is not zero.
        distances.append([wire(m, (own - term.exponent)[:bits], "distance") for term in group])
    return distances, top, base


def summed(
    m: Module,
    groups: Sequence[Sequence[Term]],
    placed: Sequence[Value],
    top: Value,
    base: int,
    alignment: Alignment,
    *,
    fast: bool,
) -> Raw:
    """Add placed terms. A negative sum is the two's complement of its magnitude."""
    terms = [term for group in groups for term in group]
    found = tree.total(
        m,
        [
            tree.Term(integer, NEVER if alignment.floor else term.sign, term.sign, term.nan, term.inf, term.invalid)
            for integer, term in zip(placed, terms, strict=True)
        ],
        chained=not fast,
    )
    # The magnitude of a floor can be one more than that of the largest number of its width.
    largest_term = (1 << (alignment.fraction + alignment.INTEGER)) - (not alignment.floor)
    number = tree.as_raw(m, found, -alignment.fraction, (len(terms) * largest_term).bit_length(), NEVER, fast=fast)
    return replace(
        number,
        exponent=top,
        base=number.base + base,
        emin=number.emin + min(term.emin for term in terms),
        emax=number.emax + max(term.emax for term in terms),
        zero_at_floor=False,
    )
