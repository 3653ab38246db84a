"""Conditions under which floats.h is exact in binary32 or binary64 lanes, and the constants that it needs."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from halfulp.hdl.formats import EXACT, SATFINITE, Float, Format, Posit, Rounding, Saturation
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs import BlockMacSpec, MacSpec, SparseMacSpec, ValueRange

from .lane import Lane, Refused, Rounder, need
from .number_table import table_rounder
from .text import boolean, saturation_text

FENV = {"rz": "FE_TOWARDZERO", "ra": "FE_TOWARDZERO", "sr": "FE_TOWARDZERO", "ru": "FE_UPWARD", "rd": "FE_DOWNWARD"}
"""Rounding mode of the processor for sums, by that of the accumulator; default: to nearest."""


def rounder(name: str, fmt: Format, rounding: Rounding, saturate: Saturation, lane: Lane) -> Rounder:
    """Return the rounder of a format, whose tables have ``name`` in their names.

    Raises `Refused` if its family has none, or the lane is too narrow.
    """
    if type(fmt) in ROUNDERS:
        return ROUNDERS[type(fmt)](fmt, rounding, saturate, lane)
    return table_rounder(name, fmt, rounding, saturate, lane)


def _float_rounder(fmt: Float, rounding: Rounding, saturate: Saturation, lane: Lane) -> Rounder:
    # A quiet NaN needs a mantissa bit.
    need(1 <= fmt.man <= lane.mantissa, f"its numbers have fewer digits than {fmt}, or {fmt} has one digit")
    # A format that flushes rounds results below its range before the flush, so they must be normal in the lane.
    scale = lane.emin - fmt.emin + (0 if fmt.subnormals else fmt.precision + 8)
    need(fmt.emax + scale < lane.top, f"the range of {fmt} is larger than its own")
    infinite = "TO_INF" if fmt.has_inf else "TO_LARGEST" if fmt.specials == "finite" else "TO_NAN"
    positive, negative = ("TO_LARGEST" if saturate or stays else infinite for stays in rounding.overflows_to_largest)
    infinite = "TO_LARGEST" if saturate == SATFINITE else infinite
    natural = (
        fmt.has_inf
        and fmt.emax + scale == lane.top - 1
        and (positive == negative == "TO_INF" or (fmt.man == lane.mantissa and not saturate))
        and rounding.mode in ("rn", "rz", "ru", "rd", "exact")
    )
    largest = 0 if natural else lane.word(fmt.largest * Fraction(2) ** scale)
    flush = 0 if fmt.subnormals else lane.word(fmt.smallest * Fraction(2) ** scale)
    text = (
        f"FloatRounder<{lane.bits}, {fmt.man}, {rounding.mode.upper()}, {rounding.bits}, {largest}ull, {positive}, "
        f"{negative}, {infinite}, {flush}ull, {boolean(fmt.has_negative_zero)}>"
    )
    return Rounder(scale, lane.mantissa - fmt.man, natural, text)


def _posit_rounder(fmt: Posit, rounding: Rounding, saturate: Saturation, lane: Lane) -> Rounder:
    # The last bit of a code decides ties. If the regime fills the code, its last bit is 0 after ones, 1 after zeros. It
    # equals the lowest bit of k + bias if that sum is even for the largest posit; k is the regime's value.
    bias = lane.bias >> fmt.es
    bias -= (bias + fmt.width + 1) % 2
    scale = (bias << fmt.es) - lane.bias
    inside = scale - fmt.max_scale >= lane.emin and scale + fmt.max_scale < lane.top
    need(inside, f"the range of {fmt} is larger than its own")
    least = lane.mantissa + fmt.es + 2 - (fmt.width - 1)
    need(least >= 1, f"its numbers have fewer digits than {fmt}")
    text = f"PositRounder<{lane.bits}, {fmt.width}, {fmt.es}, {rounding.mode.upper()}, {rounding.bits}, {bias}, "
    text += f"{saturation_text(saturate)}>"
    return Rounder(scale, least, False, text)


ROUNDERS: dict[type[Format], Callable[..., Rounder]] = {Float: _float_rounder, Posit: _posit_rounder}
"""Rounders of the families that lanes round to by arithmetic; others have tables."""


def top_of(span: ValueRange) -> int:
    """Return the smallest exponent with all magnitudes below 2^exponent."""
    return floor_log2(span.magnitude) + 1 if span.magnitude else span.quantum


def _check_rounding(rounding: Rounding, least: int, *, odd: bool, exact: bool) -> None:
    """Raise `Refused` if the rounding needs more discarded bits than the lane has.

    A directed rounding may be applied twice. Other roundings to nearest and stochastic rounding depend on the first
    discarded bits only. A sum that was rounded to odd needs two bits, because its last bit stands for all below.
    """
    places = 0 if rounding.mode == "rn" else rounding.places
    if odd:
        places = max(places + 1, 2)
    enough = least >= places or (exact and least >= {"rn": 1}.get(rounding.mode, places)) or rounding == EXACT
    need(enough, f"the rounding {rounding} depends on more digits than it has")


def float_text(spec: MacSpec | BlockMacSpec | SparseMacSpec, lane: Lane, fma: bool) -> str:
    """Return the C++ members that floats.h needs; raise `Refused` if the lane is not proved exact.

    A sum is computed in one of two ways.

    - By one operation in a rounding mode of the processor, followed by the rounding to the result format. This is
      correct in four cases: the sum is exact in the lane; the rounding is directed, so that both roundings have one
      direction; the result has the precision and range of the lane, so that the second rounding changes nothing; or
      the rounding is to nearest, terms and result have at most p bits, and the lane has 2p + 2 (Figueroa, When is
      double rounding innocuous, SIGNUM Newsletter 30(3), 1995). Subnormal sums are exact, because terms are multiples
      of the lane's smallest subnormal number.
    - By a sum to nearest and its exact error, which together give the sum rounded to odd. It can be rounded again in
      every mode if the lane has two more bits (Boldo and Melquiond, IEEE Transactions on Computers 57(4), 2008). Terms
      must be exact in the lane.

    If product and result together have at most as many bits as the lane, rounding twice to nearest is wrong only if
    the sum was denormal, and the kernel detects that by the flag of the processor for denormal operands. Proof: let a
    be the sum, of q bits, p the product, of P bits, L >= P + q and L >= 2q + 2 the bits of the lane, and t = a + p
    rounded to L bits, inexactly and to a midpoint of two results in the binade of exponent E. Then d = a + p - t has
    0 < abs(d) <= 2^(E - L), and t is a multiple of 2^(E - q).

    - If a is one too, p is within abs(d) of a multiple of 2^(E - q). That is 0 only if a = t, which has q + 1 bits.
      Otherwise p has more than L - q bits, or it is 2^(E - q) - 2^(E - L), whose L - q bits are all ones; no product
      of two numbers of together L - q bits has these.
    - Otherwise abs(a) < 2^(E - 1) < abs(p). So p is a multiple of 2^(E - P), and a is within abs(d) of a multiple of
      2^(E - P) or, if q > P, of 2^(E - q). If that is not 0, a has more than q bits, or L = P + q and abs(a) is
      2^(E - P) - 2^(E - L); then abs(p) <= 2^E - 2^(E - P), and t would be at most 2^E. So it is 0: a = d,
      p = t, and 0 < abs(a) <= 2^-L abs(p).

    The kernel scales the operands so that such sums are below the normal range of the lane, as are subnormal results.

    If the formats alone do not prove that products are exact, the kernel checks the last places and the magnitudes of
    the operands. Of blocks the product is that of a dot product, which has no scale, and of the scales of both blocks;
    with structured sparsity it is a dot product. The kernel checks every term.
    """
    need(spec.quire is None, "the accumulator is exact")
    of_sum = rounder("sum", spec.o, spec.rounding, spec.saturate, lane)
    product = _product(spec, lane)
    _check_nan(spec, product)
    total = _sum(spec, lane, of_sum, product)
    scale = product.rounder.scale if product.rounder else of_sum.scale
    needs_grid, needs_top = _checks_of_product(spec, lane, total, product, scale, fma)
    a_scale, b_scale = (0, scale) if product.factors is None else _split(scale, *product.factors, lane)
    rescale = of_sum.scale - scale
    held, mode = ValueRange.of(spec.o), spec.rounding.mode
    step = "0" if product.rounder is None else f"0x1p{spec.terms.quantum + scale}L"
    constants = {
        "int A_SCALE": a_scale,
        "int B_SCALE": b_scale,
        "int O_SCALE": of_sum.scale,
        "int RESCALE": rescale,
        "double FACTOR": f"0x1p{rescale}",
        "bool ODD": boolean(total.odd),
        "bool ROUNDS_TWICE": boolean(total.twice),
        "int FENV": FENV.get(mode, "FE_TONEAREST"),
        "bool ROUNDS_PRODUCT": boolean(product.rounder is not None),
        "bool NEEDS_GRID": boolean(needs_grid),
        "bool NEEDS_TOP": boolean(needs_top),
        "int LOWEST_PLACE": lane.quantum,
        "int TOP": lane.top - 1,
        "bool GROWS": boolean(mode not in ("rn", "rz")),
        "int PRECISION": spec.o.precision,
        "long double STEP": f"0x1p{held.quantum + of_sum.scale}L",
        "long double PRODUCT_STEP": step,
        "long double LIMIT": f"0x1p{top_of(held) + of_sum.scale - 2}L",
        "long double PRODUCT_LIMIT": f"0x1p{top_of(spec.terms) + scale - 2}L",
    }
    lines = [f"static constexpr {name} = {value};" for name, value in constants.items()]
    for made in filter(None, (of_sum, product.rounder)):
        lines += [
            f"static constexpr u{lane.bits} {name}[] = {{{', '.join(f'{word}ull' for word in words)}}};"
            for name, words in made.tables.items()
        ]
    lines.append(f"using RoundWord = {of_sum.text};")
    lines.append(f"using ProductWord = {product.rounder.text if product.rounder else f'NoRounder<{lane.bits}>'};")
    return "\n".join(lines)


@dataclass(frozen=True)
class _Product:
    """Product of a step.

    Attributes
    ----------
    factors : tuple of ValueRange, optional
        Ranges of both factors; None for a dot product.
    span : ValueRange
        Range of exact products.
    fmt : Format, optional
        Format to which products are rounded.
    rounder : Rounder, optional
        Rounding to that format.
    """

    factors: tuple[ValueRange, ValueRange] | None
    span: ValueRange
    fmt: Format | None = None
    rounder: Rounder | None = None


@dataclass(frozen=True)
class _Sum:
    """Rounding of a sum.

    Attributes
    ----------
    rounder : Rounder
        Rounding to the result format.
    one_step : bool
        The operation of the lane already gives the result.
    odd : bool
        The sum is rounded to odd before its rounding to the result format.
    twice : bool
        The sum may be rounded to nearest twice, unless an operand is denormal.
    """

    rounder: Rounder
    one_step: bool
    odd: bool
    twice: bool


def _product(spec: MacSpec | BlockMacSpec | SparseMacSpec, lane: Lane) -> _Product:
    """Return the product of a step; raise `Refused` if the lane cannot hold its factors or round it."""
    if not isinstance(spec, MacSpec):
        return _Product(None, spec.terms)
    factors = ValueRange.of(spec.a), ValueRange.of(spec.b)
    need(max(factor.precision for factor in factors) <= lane.precision, "operands have more digits than it has")
    span = factors[0] * factors[1]
    if spec.product is None:
        return _Product(factors, span)
    of_product = rounder("product", spec.product, spec.product_rounding, spec.saturate, lane)
    _check_rounding(spec.product_rounding, of_product.least, odd=False, exact=True)
    return _Product(factors, span, spec.product, of_product)


def _check_nan(spec: MacSpec | BlockMacSpec | SparseMacSpec, product: _Product) -> None:
    """Raise `Refused` if a result can be NaN in a format without NaN, which a lane gives."""
    for fmt, span in ((product.fmt, product.span), (spec.o, spec.terms)):
        has_nan = fmt is None or fmt.has_nan or not (span.inf or span.nan)
        need(has_nan, f"{fmt} has no NaN, which it would give")


def _sum(spec: MacSpec | BlockMacSpec | SparseMacSpec, lane: Lane, of_sum: Rounder, product: _Product) -> _Sum:
    """Return the rounding of a sum; raise `Refused` if no way of `float_text` is correct."""
    terms, held, mode = spec.terms, ValueRange.of(spec.o), spec.rounding.mode
    total_top = top_of(terms + held)
    exact = spec.rounding == EXACT or total_top - min(terms.quantum, held.quantum) <= lane.precision
    one_step = of_sum.least == 0 and of_sum.natural
    fits_twice = spec.o.is_floating_point and 2 * spec.o.precision + 2 <= lane.precision
    narrow = fits_twice and terms.precision <= spec.o.precision
    odd = not (exact or one_step or mode in FENV or (mode == "rn" and narrow))
    twice = (
        fits_twice
        and not spec.o.flushes
        and mode == "rn"
        and product.rounder is None
        and product.factors is not None
        and sum(factor.precision for factor in product.factors) + spec.o.precision <= lane.precision
    )
    if not one_step:
        _check_rounding(spec.rounding, of_sum.least, odd=odd, exact=exact)
        need(of_sum.natural or total_top + of_sum.scale < lane.top, "sums before rounding are beyond its range")
    need(held.quantum + of_sum.scale >= lane.quantum, f"the smallest numbers of {spec.o} are below its own")
    return _Sum(of_sum, one_step, odd, twice)


def _checks_of_product(
    spec: MacSpec | BlockMacSpec | SparseMacSpec, lane: Lane, total: _Sum, product: _Product, scale: int, fma: bool
) -> tuple[bool, bool]:
    """Return whether the kernel checks the last places and the magnitudes of the operands, as products may be inexact.

    Raise `Refused` if all products are inexact, or rounded ones are beyond the range of the lane.
    """
    terms, of_sum, span = spec.terms, total.rounder, product.span
    fused = fma and product.rounder is None and (total.one_step or (spec.rounding.mode in FENV and not total.odd))
    needs_grid = False
    if not fused and product.factors is not None:
        need(span.precision <= lane.precision, "products have more digits than its numbers")
        needs_grid = span.quantum + scale < lane.quantum
    needs_top = not (fused and total.one_step) and top_of(span) + scale >= lane.top
    if product.rounder is not None:
        inside = terms.quantum + of_sum.scale >= lane.quantum and top_of(terms) + of_sum.scale < lane.top
        need(inside and abs(of_sum.scale - scale) <= -lane.emin, "rounded products are beyond the range of sums")
    return needs_grid, needs_top


def _split(scale: int, a: ValueRange, b: ValueRange, lane: Lane) -> tuple[int, int]:
    """Split ``scale`` into exponents for the two operands, so that both are in the lane's normal range if possible."""
    best = None
    for first in range(-lane.top - 200, lane.top + 200):
        second = scale - first
        spans = ((a, first), (b, second))
        if all(span.quantum + by >= lane.quantum and top_of(span) + by <= lane.top for span, by in spans):
            room = min(min(span.quantum + by - lane.emin, lane.top - top_of(span) - by) for span, by in spans)
            if best is None or room > best[0]:
                best = room, first, second
    if best is None:
        raise Refused("the ranges of the operands are larger than its own")
    return best[1:]
