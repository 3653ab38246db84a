"""Proofs of floats.h: descriptions that lanes of binary32 and binary64 compute exactly, and their constants."""

from dataclasses import dataclass
from fractions import Fraction

from halfulp.hdl.formats import EXACT, Fixed, Float, Format, Posit, Rounding
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs import MacSpec, ValueRange

from .text import boolean

FENV = {"rz": "FE_TOWARDZERO", "ra": "FE_TOWARDZERO", "sr": "FE_TOWARDZERO", "ru": "FE_UPWARD", "rd": "FE_DOWNWARD"}
"""Rounding mode of the machine for sums; default: to nearest."""


@dataclass(frozen=True)
class Lane:
    """A binary floating-point type of the machine: bits of a word and of its significand, and its exponents."""

    bits: int
    precision: int
    emin: int
    top: int

    @property
    def mantissa(self) -> int:
        """Bits of the mantissa."""
        return self.precision - 1

    @property
    def quantum(self) -> int:
        """Every number is a multiple of 2^quantum."""
        return self.emin - self.mantissa

    @property
    def bias(self) -> int:
        """Exponent bias."""
        return 1 - self.emin

    def word(self, value: Fraction) -> int:
        """Word of a positive number of the type."""
        exponent = floor_log2(value)
        if exponent < self.emin:
            return int(value / Fraction(2) ** self.quantum)
        return ((exponent + self.bias - 1) << self.mantissa) + int(value / Fraction(2) ** (exponent - self.mantissa))


BINARY32 = Lane(32, 24, -126, 128)
BINARY64 = Lane(64, 53, -1022, 1024)


class Refused(Exception):
    """A lane is not proved exact for a description."""


LANE_MODES = frozenset({"rn", "ra", "rz", "ru", "rd", "ro", "sr", "exact"})
"""Rounding modes of lanes; the kernel of single numbers has all."""


def need(condition: bool) -> None:
    """Raise `Refused` if the condition is false."""
    if not condition:
        raise Refused


@dataclass(frozen=True)
class Rounder:
    """Rounding of words to a format.

    Attributes
    ----------
    scale : int
        Numbers of the format times 2^scale are numbers of the lane.
    least : int
        Least number of dropped places.
    natural : bool
        The lane overflows as the format does.
    text : str
        C++ type.
    """

    scale: int
    least: int
    natural: bool
    text: str


def rounder(fmt: Format, rounding: Rounding, saturate: bool, lane: Lane) -> Rounder:
    """The rounder of a format, refused where the lane is too narrow or does not decide the rounding."""
    need(rounding.mode in LANE_MODES)
    if isinstance(fmt, Float):
        return _float_rounder(fmt, rounding, saturate, lane)
    if isinstance(fmt, Posit):
        return _posit_rounder(fmt, rounding, lane)
    raise Refused


def _float_rounder(fmt: Float, rounding: Rounding, saturate: bool, lane: Lane) -> Rounder:
    # The format has the bit of a quiet NaN.
    need(1 <= fmt.man <= lane.mantissa)
    # Flushed numbers round as if exponents were unbounded, so their range ends among normal numbers of the lane.
    scale = lane.emin - fmt.emin + (0 if fmt.subnormals else fmt.precision + 8)
    need(fmt.emax + scale < lane.top)
    positive, negative = (
        "TO_LARGEST" if saturate or stays or fmt.specials == "finite" else "TO_INF" if fmt.has_inf else "TO_NAN"
        for stays in rounding.overflows_to_largest
    )
    natural = (
        fmt.has_inf
        and fmt.emax + scale == lane.top - 1
        and (positive == negative == "TO_INF" or (fmt.man == lane.mantissa and not saturate))
        and rounding.mode not in ("ro", "ra", "sr")
    )
    largest = 0 if natural else lane.word(fmt.largest * Fraction(2) ** scale)
    flush = 0 if fmt.subnormals else lane.word(fmt.smallest * Fraction(2) ** scale)
    text = (
        f"FloatRounder<{lane.bits}, {fmt.man}, {rounding.mode.upper()}, {rounding.bits}, {largest}ull, {positive}, "
        f"{negative}, {boolean(fmt.has_inf)}, {flush}ull, {boolean(fmt.has_negative_zero)}>"
    )
    return Rounder(scale, lane.mantissa - fmt.man, natural, text)


def _posit_rounder(fmt: Posit, rounding: Rounding, lane: Lane) -> Rounder:
    # If a string has room for its regime only, its last bit is that of the regime: 0 after ones, 1 after zeros. This is
    # the lowest bit of the regime's number plus the bias, if their sum is even for the largest number.
    bias = lane.bias >> fmt.es
    bias -= (bias + fmt.width + 1) % 2
    scale = (bias << fmt.es) - lane.bias
    need(scale - fmt.max_scale >= lane.emin and scale + fmt.max_scale < lane.top)
    least = lane.mantissa + fmt.es + 2 - (fmt.width - 1)
    need(least >= 1)
    text = f"PositRounder<{lane.bits}, {fmt.width}, {fmt.es}, {rounding.mode.upper()}, {rounding.bits}, {bias}>"
    return Rounder(scale, least, False, text)


def _top(span: ValueRange) -> int:
    """No magnitude reaches 2^top."""
    return floor_log2(span.magnitude) + 1 if span.magnitude else span.quantum


def _check_rounding(rounding: Rounding, least: int, *, odd: bool, exact: bool) -> None:
    """Refuse a rounding that depends on places which the lane does not have.

    A sum truncated in the direction of a directed rounding may be truncated again; to nearest away and stochastic
    rounding depend on the first dropped places only; the last place of a sum rounded to odd stands for all below, so
    that two places are enough.
    """
    places = {"ra": 1, "sr": rounding.bits}.get(rounding.mode, 0)
    if odd:
        places = max(places + 1, 2)
    need(least >= places or (exact and least >= {"rn": 1}.get(rounding.mode, places)) or rounding == EXACT)


def float_text(spec: MacSpec, lane: Lane, fma: bool) -> str:
    """Members that floats.h needs beyond the description; refused if the lane is not proved exact.

    Sums are made in one of two ways.

    - One operation, under a rounding mode of the machine. It is right if the sum is exact in the lane; if the mode is
      directed or truncates, because both roundings go the same way; if the result has the lane's precision and range,
      so that the operation is the whole step; and to nearest, if terms and result have at most p bits and the lane
      2p + 2: then only midpoints of the result format are rounded to one (Figueroa, When is double rounding innocuous,
      SIGNUM Newsletter 30(3), 1995). Below the smallest normal number the sum is exact, because terms are multiples of
      the lane's quantum.
    - A sum to nearest and its exact error, from which it is rounded to odd; that may be rounded again in every mode,
      from two bits more on (Boldo and Melquiond, IEEE Transactions on Computers 57(4), 2008). Here, too, terms have to
      be exact in the lane.

    If the formats alone do not prove that products are exact, the kernel checks the last places of the operands, and
    the largest ones against the range of the lane.
    """
    need(spec.quire is None)
    need(not isinstance(spec.o, Fixed) and max(spec.a.precision, spec.b.precision) <= lane.precision)
    product = ValueRange.of(spec.a) * ValueRange.of(spec.b)
    of_sum = rounder(spec.o, spec.rounding, spec.saturate, lane)
    of_product = None
    if spec.product is not None:
        of_product = rounder(spec.product, spec.product_rounding, spec.saturate, lane)
        _check_rounding(spec.product_rounding, of_product.least, odd=False, exact=True)
    for fmt, span in ((spec.product, product), (spec.o, spec.terms)):
        # Formats without NaN read it as a number.
        need(not (isinstance(fmt, Float) and not fmt.has_nan and (span.inf or span.nan)))
    scale = of_product.scale if of_product else of_sum.scale

    # The sum.
    terms, held = spec.terms, ValueRange.of(spec.o)
    lowest = min(terms.quantum, held.quantum)
    total_top = _top(terms + held)
    exact = spec.rounding == EXACT or total_top - lowest <= lane.precision
    mode = spec.rounding.mode
    one_step = of_sum.least == 0 and of_sum.natural
    narrow = (
        isinstance(spec.o, Float) and terms.precision <= spec.o.precision and 2 * spec.o.precision + 2 <= lane.precision
    )
    odd = not (exact or one_step or mode in FENV or (mode == "rn" and narrow))
    if not one_step:
        _check_rounding(spec.rounding, of_sum.least, odd=odd, exact=exact)
        need(of_sum.natural or total_top + of_sum.scale < lane.top)
    need(held.quantum + of_sum.scale >= lane.quantum)

    # The product.
    fused = fma and of_product is None and (one_step or (mode in FENV and not odd))
    needs_grid = needs_top = False
    if not fused:
        need(product.precision <= lane.precision)
        needs_grid = product.quantum + scale < lane.quantum
    if not (fused and one_step):
        needs_top = _top(product) + scale >= lane.top
    if of_product is not None:
        need(terms.quantum + of_sum.scale >= lane.quantum and _top(terms) + of_sum.scale < lane.top)
        need(abs(of_sum.scale - scale) <= -lane.emin)
    a_scale, b_scale = _split(scale, ValueRange.of(spec.a), ValueRange.of(spec.b), lane)

    rescale = of_sum.scale - scale
    limit = _top(held) + of_sum.scale - 2
    product_limit = _top(terms) + scale - 2
    constants = {
        "int A_SCALE": a_scale,
        "int B_SCALE": b_scale,
        "int O_SCALE": of_sum.scale,
        "int RESCALE": rescale,
        "double FACTOR": f"0x1p{rescale}",
        "bool ODD": boolean(odd),
        "int FENV": FENV.get(mode, "FE_TONEAREST"),
        "bool ROUNDS_PRODUCT": boolean(of_product is not None),
        "bool NEEDS_GRID": boolean(needs_grid),
        "bool NEEDS_TOP": boolean(needs_top),
        "int LOWEST_PLACE": lane.quantum,
        "int TOP": lane.top - 1,
        "bool GROWS": boolean(mode not in ("rn", "rz")),
        "int PRECISION": spec.o.precision,
        "long double STEP": f"0x1p{held.quantum + of_sum.scale}L",
        "long double PRODUCT_STEP": "0" if of_product is None else f"0x1p{terms.quantum + scale}L",
        "long double LIMIT": f"0x1p{limit}L",
        "long double PRODUCT_LIMIT": f"0x1p{product_limit}L",
    }
    lines = [f"static constexpr {name} = {value};" for name, value in constants.items()]
    lines.append(f"using RoundWord = {of_sum.text};")
    lines.append(f"using ProductWord = {of_product.text if of_product else f'NoRounder<{lane.bits}>'};")
    return "\n".join(lines)


def _split(scale: int, a: ValueRange, b: ValueRange, lane: Lane) -> tuple[int, int]:
    """Powers of two for the operands with the product ``scale``, with both in the lane's normal range if possible."""
    best = None
    for first in range(-lane.top - 200, lane.top + 200):
        second = scale - first
        spans = ((a, first), (b, second))
        if all(span.quantum + by >= lane.quantum and _top(span) + by <= lane.top for span, by in spans):
            room = min(min(span.quantum + by - lane.emin, lane.top - _top(span) - by) for span, by in spans)
            if best is None or room > best[0]:
                best = room, first, second
    need(best is not None)
    assert best is not None
    return best[1:]
