"""Sums of floats that are aligned to the largest exponent and truncated there."""

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Value

from .formats import Float
from .product import product
from .raw import Raw
from .specs.dot import Alignment
from .tree import Placed, Special, special, total
from .wire import NEVER, shift_right_sticky, wire


@dataclass(frozen=True)
class Term:
    """Term of an aligned sum: ``(-1)^sign * significand * 2^(exponent + base - fraction)``.

    Attributes
    ----------
    sign, nan, inf : Value
    exponent : Value
        Unsigned.
    present : Value
        The exponent, or zero if the number is zero; the exponent of another number is more than zero.
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
    present: Value
    significand: Value
    nan: Value
    inf: Value
    base: int
    emin: int
    emax: int
    fraction: int

    @classmethod
    def of(cls, *factors: Float, **values: Value) -> "Term":
        """Return a number of a format, or a product of two; ``values`` are those of `multiply` or `single`."""
        base, emin, emax, fraction = (
            sum(getattr(fmt, name) for fmt in factors) for name in ("bias", "emin", "emax", "man")
        )
        return cls(**values, base=-base, emin=emin, emax=emax, fraction=fraction)


def multiply(m: Module, x: Raw, y: Raw, *, dsp: bool) -> dict[str, Value]:
    """Return the values of a product of two unpacked floats as a term: its significand is not normalised."""
    exponent = wire(m, x.exponent + y.exponent, "product_exponent")
    zero = wire(m, x.zero | y.zero, "product_zero")
    return {
        "sign": wire(m, x.sign ^ y.sign, "product_sign"),
        "exponent": exponent,
        "present": wire(m, Mux(zero, 0, exponent), "product_present"),
        "significand": wire(m, product(m, x.significand, y.significand, "partial", dsp=dsp), "product_significand"),
        "nan": wire(m, x.nan | y.nan | (x.inf & y.zero) | (x.zero & y.inf), "product_nan"),
        "inf": wire(m, x.inf | y.inf, "product_inf"),
    }


def single(m: Module, x: Raw) -> dict[str, Value]:
    """Return the values of an unpacked float as a term."""
    present = wire(m, Mux(x.zero, 0, x.exponent), "start_present")
    values = {"sign": x.sign, "exponent": x.exponent, "present": present, "significand": x.significand}
    return values | {"nan": x.nan, "inf": x.inf}


def largest(m: Module, exponents: Sequence[Value], name: str) -> Value:
    """Return the largest of unsigned numbers, in a tree of comparisons."""
    if len(exponents) == 1:
        return exponents[0]
    half = len(exponents) // 2
    x = largest(m, exponents[:half], f"{name}_low")
    y = largest(m, exponents[half:], f"{name}_high")
    return wire(m, Mux(wire(m, x < y, f"{name}_is_high"), y, x), name)


def relative_sign(term: Term, first: Term, alignment: Alignment) -> Value:
    """Return the sign of a term relative to that of the first one, which then is constant and needs no carry.

    Truncation of magnitudes does not depend on signs; that of the two's complement does, and signs stay.
    """
    if alignment.floor:
        return term.sign
    return NEVER if term is first else term.sign ^ first.sign


def place(
    m: Module, alignment: Alignment, fraction: int, *, negative: Value, significand: Value, distance: Value
) -> dict[str, Value]:
    """Shift a term down to the scale of the largest exponent; return the parts of `Placed`.

    ``integer`` is the truncated magnitude, or its inverse if ``negative``.
    """
    top = Cat(significand, Const(0, fraction + alignment.INTEGER - len(significand)))
    below = alignment.fraction - fraction
    shifted, lost = shift_right_sticky(m, top, distance, "placed", below=max(below, 0))
    if below < 0:
        lost = lost | shifted[:-below].any()
        shifted = shifted[-below:]
    placed = Placed.of(shifted, negative)
    return {
        "integer": wire(m, placed.integer, "placed_integer"),
        "carry": negative & ~lost if alignment.floor else negative,
    }


def scale(m: Module, groups: Sequence[Sequence[Term]]) -> tuple[list[list[Value]], Value, int]:
    """Return the distances of terms to the largest exponent, that exponent, and its offset.

    The terms of a group have one format.
    """
    base = min(group[0].base for group in groups)
    tops = []
    for number, group in enumerate(groups):
        offset = group[0].base - base
        top = largest(m, [term.present for term in group], f"largest{number}")
        # Without a number that is not zero, the largest exponent stays below all others.
        tops.append(wire(m, Mux(top.any(), top + offset, 0), f"offset_largest{number}") if offset else top)
    top = largest(m, tops, "largest_exponent")
    highest = max(group[0].emax for group in groups)
    distances = []
    for number, group in enumerate(groups):
        own = wire(m, top - (group[0].base - base), f"top{number}") if group[0].base != base else top
        bits = max((highest - group[0].emin).bit_length(), 1)
        # Modulo 2^bits, the distance is that of every term that is not zero.
        distances.append([wire(m, (own - term.exponent)[:bits], "distance") for term in group])
    return distances, top, base


def summed(
    m: Module, terms: Sequence[Term], placed: Sequence[Placed], top: Value, base: int, alignment: Alignment
) -> Raw:
    """Add placed terms, with the signs of `relative_sign`. A negative sum is the two's complement of its magnitude."""
    flags = special(m, [Special(term.sign, term.nan, term.inf) for term in terms])
    found = total(m, placed, "total")
    bits = (len(placed) * ((1 << (alignment.fraction + alignment.INTEGER)) - 1)).bit_length()
    integer, sign = found.integer[: bits + 1], terms[0].sign
    if alignment.floor:
        # The carry that no adder of the tree took.
        integer, sign = wire(m, (integer + found.carry)[: bits + 1], "total_carried"), NEVER
    negative = integer[-1]
    zero = wire(m, ~integer.any(), "total_zero")
    base += bits - 1 - alignment.fraction
    return Raw(
        sign=wire(m, Mux(flags.inf, flags.sign, (negative ^ sign) & ~zero), "total_sign"),
        exponent=top,
        significand=wire(m, integer[:-1], "total_significand"),
        nan=flags.nan,
        inf=flags.inf,
        zero=zero,
        base=base,
        emin=min(term.emin for term in terms) + bits - 1 - alignment.fraction,
        emax=max(term.emax for term in terms) + bits - 1 - alignment.fraction,
        leading="any",
        zero_at_floor=False,
        complement=negative,
    )
