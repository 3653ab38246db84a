"""Sums of two stages: products on the scale of their largest exponent, then their sum and an accumulator."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from amaranth.hdl import Cat, Const, Module, Mux, Value

from . import aligned, tree
from .aligned import Term, larger
from .formats import Float
from .raw import Raw
from .specs.dot import Alignment
from .wire import NEVER, shift_down, shifted_up, wire

STAGES = 32
"""Bits after the point of the largest exponent of the second stage; its result is rounded down to one bit less."""


@dataclass(frozen=True)
class Scaled:
    """Number ``integer * 2^(exponent + base - fraction)``, with the ``fraction`` of the alignment of its terms.

    Attributes
    ----------
    integer : Value
        Signed.
    exponent : Value
        Unsigned; more than zero if a term is not zero, and zero otherwise.
    base : int
        Offset of ``exponent``.
    emin, emax : int
        Bounds on ``exponent + base`` if a term is not zero.
    bound : int
        Largest magnitude of ``integer``.
    """

    integer: Value
    exponent: Value
    base: int
    emin: int
    emax: int
    bound: int


def exceeds(product: Term, factors: Sequence[Float], o: Float) -> Value:
    """Return True if a product of two numbers is at least ``2^(o.emax + 1)``."""
    x, y = factors
    limit, point = o.emax + 1, product.fraction
    if product.emax + 1 < limit:
        return NEVER
    # The exponent of a product with a subnormal factor is above its own, by up to as many places as it has.
    is_normal = max(x.emin + y.emax, x.emax + y.emin) < limit - 1
    end = min(limit if is_normal else limit + point, product.emax + 1)
    reached = [
        (product.exponent == exponent - product.base) & product.significand[point + limit - exponent :].any()
        for exponent in range(limit - 1, end)
    ]
    return Cat(*reached, (product.exponent >= end - product.base) & ~product.zero).any()


def of_terms(m: Module, terms: Sequence[Term], placed: Sequence[Value], top: Value, bits: int, *, fast: bool) -> Scaled:
    """Return the sum of placed magnitudes of up to ``bits`` bits, with the signs of their terms."""
    # The sum is not negated, because its first term is not.
    zero = tree.Term(Const(0, 1), NEVER, NEVER, NEVER, NEVER)
    signed = (tree.Term(each, term.sign, term.sign, NEVER, NEVER) for each, term in zip(placed, terms, strict=True))
    total = tree.total(m, [zero, *signed], chained=not fast)
    bound, first = len(terms) * ((1 << bits) - 1), terms[0]
    integer = total.integer[: bound.bit_length() + 1].as_signed()
    return Scaled(integer, top, first.base, first.emin, first.emax, bound)


def joined(m: Module, x: Scaled, y: Scaled) -> Scaled:
    """Return the sum of two numbers, each rounded down on the scale of the larger exponent of both."""
    top = larger(m, x.exponent, y.exponent, "largest_of_halves")
    bits = max((x.emax - x.emin).bit_length(), 1)
    parts = []
    for name, part in (("even", x), ("odd", y)):
        # Modulo 2^bits, the distance is that of every sum with a term that is not zero.
        distance = wire(m, (top - part.exponent)[:bits], f"{name}_distance")
        parts.append(shift_down(m, part.integer[:], distance, f"{name}_placed", part.integer[-1]).as_signed())
    bound = x.bound + y.bound
    total = wire(m, (parts[0] + parts[1])[: bound.bit_length() + 1].as_signed(), "sum_of_halves")
    return replace(x, integer=total, exponent=top, bound=bound)


def with_start(
    m: Module, total: Scaled, products: Sequence[Term], start: Term, fraction: int, *, drops: bool, fast: bool
) -> Raw:
    """Return a sum of products plus an accumulator.

    Parameters
    ----------
    m : Module
    total : Scaled
        Sum of the products, with ``fraction`` bits after the point.
    products : sequence of Term
        For infinities and NaN.
    start : Term
        Accumulator. Its exponent counts if it is zero, too.
    fraction : int
        Bits of the accumulator after the point of the larger exponent of both, to which it is rounded down.
    drops : bool
        True if an accumulator below ``2^-(fraction + 1)`` of that exponent is dropped.
    fast : bool
        See `tree.as_raw`.
    """
    base = min(total.base, start.base)
    top = wire(m, Mux(total.exponent.any(), total.exponent + (total.base - base), 0), "products_exponent")
    own = wire(m, start.exponent + (start.base - base), "start_exponent")
    largest = larger(m, top, own, "largest_exponent")
    highest, low = max(total.emax, start.emax), STAGES - fraction
    from_top, from_own = (
        wire(m, (largest - exponent)[: max((highest - emin).bit_length(), 1)], f"{name}_distance")
        for name, exponent, emin in (("products", top, total.emin), ("start", own, start.emin))
    )
    integer = Cat(Const(0, low), total.integer)
    products_placed = shift_down(m, integer, from_top, "products_placed", total.integer[-1]).as_signed()
    place = partial(aligned.place, alignment=Alignment(fraction, floor=True, integer=1), fraction=start.fraction)
    held = place(m, sign=start.sign, significand=start.significand, distance=from_own, is_second=False)["integer"]
    if drops:
        held = Mux(from_own > fraction + 1, 0, held)
    bound = (total.bound + (1 << fraction + 1)) << low
    held = wire(m, shifted_up(held, low), "start_placed")
    value = wire(m, (products_placed + held)[: bound.bit_length() + 1].as_signed(), "staged_sum")
    terms = [tree.Term(NEVER, NEVER, term.sign, term.nan, term.inf) for term in (*products, start)]
    number = tree.as_raw(m, tree.with_flags(m, terms, value, NEVER), -STAGES, bound.bit_length(), NEVER, fast=fast)
    return replace(
        number,
        exponent=largest,
        base=number.base + base,
        promises=number.promises.moved(start.emin, highest),
    )
