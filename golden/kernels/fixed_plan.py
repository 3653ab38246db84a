"""Conditions under which fixed.h is exact: fixed-point descriptions whose sums fit integer lanes."""

from fractions import Fraction

from halfulp.hdl.formats import EXACT, Format, Rounding
from halfulp.hdl.specs import MacSpec, ValueRange

from .lane import need
from .text import boolean


def fixed_text(spec: MacSpec, bits: int) -> str:
    """Return the C++ members that fixed.h needs; raise `Refused` if lanes of ``bits`` bits are too narrow.

    Products, sums, and both with their rounding increments must be below 2^(bits - 1) in magnitude, in the smaller of
    the units of term and accumulator. Then nothing overflows before saturation or wrapping.
    """
    a, b, o = spec.a, spec.b, spec.o
    uniform = all(fmt.spacing == "uniform" for fmt in (a, b, o, spec.product or o))
    need(not spec.quire and uniform, "it takes fixed point only, and no exact accumulator")
    need(max(a.width, b.width, o.width) < bits, "formats are as wide as its integers")
    product = ValueRange.of(a) * ValueRange.of(b)
    need(_bits(product, product.quantum) < bits, "products are beyond its integers")
    if spec.product is None:
        term, product_rounder, product_range = product, f"FixedRounder<{bits}, 0, EXACT, 0>", _range(o, spec, bits)
    else:
        product_rounder, drop = _rounder(product.quantum, spec.product, spec.product_rounding, bits)
        most = max(_bits(product, product.quantum), drop + 1) + 2 + max(-drop, 0)
        need(most < bits, "products before their rounding are beyond its integers")
        term, product_range = ValueRange.of(spec.product), _range(spec.product, spec, bits)
    unit = min(term.quantum, o.quantum)
    rounder, drop = _rounder(unit, o, spec.rounding, bits)
    most = max(_bits(term, unit), _bits(ValueRange.of(o), unit), drop + 1) + 2
    need(most < bits, "sums before their rounding are beyond its integers")
    lines = [
        f"using ProductRounder = {product_rounder};",
        f"using ProductRange = {product_range};",
        f"using SumRounder = {rounder};",
        f"using SumRange = {_range(o, spec, bits)};",
        f"static constexpr bool ROUNDS_PRODUCT = {boolean(spec.product is not None)};",
        f"static constexpr int TERM_UP = {term.quantum - unit}, O_UP = {o.quantum - unit};",
    ]
    return "\n".join(lines)


def _bits(span: ValueRange, unit: int) -> int:
    """Return the bit length of the largest magnitude in units of 2^unit."""
    return int(span.magnitude / Fraction(2) ** unit).bit_length()


def _rounder(unit: int, fmt: Format, rounding: Rounding, bits: int) -> tuple[str, int]:
    drop = fmt.quantum - unit
    mode = "EXACT" if rounding == EXACT else rounding.mode.upper()
    return f"FixedRounder<{bits}, {drop}, {mode}, {rounding.bits}>", drop


def _range(fmt: Format, spec: MacSpec, bits: int) -> str:
    wraps, narrow = fmt.wraps and not spec.saturate, fmt.lowest_result > fmt.lowest
    return f"Range<{bits}, {fmt.width}, {boolean(fmt.lowest < 0)}, {boolean(wraps)}, {boolean(narrow)}>"
