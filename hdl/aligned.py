"""Sums of floats that are aligned to the largest exponent and truncated there."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from amaranth.hdl import Cat, Const, Module, Mux, Value

from . import tree
from .formats import Float
from .raw import Raw
from .specs.dot import Alignment
from .wire import NEVER, never, shift_down, wire


@dataclass(frozen=True)
class Term:
    """Term of an aligned sum: ``(-1)^sign * significand * 2^(exponent + base - fraction)``.

    Attributes
    ----------
    sign, nan, inf, invalid : Value
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
    values = tree.multiply(m, x, y, dsp=dsp, flags=flags)
    zero = wire(m, x.zero | y.zero, "product_zero")
    return values | {"present": wire(m, Mux(zero, 0, values["exponent"]), "product_present")}


def single(m: Module, x: Raw) -> dict[str, Value]:
    """Return the values of an unpacked float as a term."""
    present = wire(m, Mux(x.zero, 0, x.exponent), "start_present")
    values = {"sign": x.sign, "exponent": x.exponent, "present": present, "significand": x.significand}
    return values | {"nan": x.nan, "inf": x.inf, "invalid": x.invalid}


def largest(m: Module, exponents: Sequence[Value], name: str) -> Value:
    """Return the largest of unsigned numbers, in a tree of comparisons."""
    if len(exponents) == 1:
        return exponents[0]
    half = len(exponents) // 2
    x = largest(m, exponents[:half], f"{name}_low")
    y = largest(m, exponents[half:], f"{name}_high")
    return wire(m, Mux(wire(m, x < y, f"{name}_is_high"), y, x), name)


def place(
    m: Module, alignment: Alignment, fraction: int, *, sign: Value, significand: Value, distance: Value
) -> dict[str, Value]:
    """Shift a term down to the scale of the largest exponent and truncate it.

    The ``integer`` of the result is a magnitude, or with ``floor`` a signed number.
    """
    bits, fill = fraction + alignment.INTEGER, NEVER
    top = Cat(significand, Const(0, bits - len(significand)))
    if alignment.floor:
        # The shift of a negative number rounds it down.
        top = wire(m, ((Cat(top, NEVER) ^ sign.replicate(bits + 1)) + sign)[: bits + 1], "signed_term")
        fill = top[-1]
    below = alignment.fraction - fraction
    placed = shift_down(m, Cat(Const(0, max(below, 0)), top), distance, "placed", fill)[max(-below, 0) :]
    return {"integer": wire(m, placed.as_signed() if alignment.floor else placed, "placed")}


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
