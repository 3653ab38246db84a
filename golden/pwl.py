"""Piecewise linear functions."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import torch
from torch import Tensor

from halfulp.hdl.formats import EXACT, RN, Fixed, Format, Rounding, Saturation
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs.pieces import Piece, last_place
from halfulp.hdl.specs.segments import MAX_POWER, Segments, Special

from . import fixed
from .check import check_devices, check_shapes, codes_of, random_of
from .codec import round_and_pack, unpack
from .raw import ZERO_EXPONENT, Raw, add, align, in_units, int64, mask, multiply
from .wide import LIMB, Wide

POWER_BITS = MAX_POWER.bit_length() - 1
"""Bits of the largest exponent of a power of two that affects a result."""


def pwl(
    x: Tensor,
    /,
    *,
    table: Segments,
    rounding: Rounding | str = RN,
    saturate: Saturation | bool | str = False,
    random: Tensor | None = None,
) -> Tensor:
    """Evaluate a piecewise linear function exactly and round once; see `halfulp.golden` for the other parameters.

    Parameters
    ----------
    x : Tensor
        Codes in the format ``table.fmt``; results are codes in ``table.out``.
    table : Segments
        Segments of the function.
    """
    if not isinstance(table, Segments):
        raise TypeError(f"table must be a Segments, not {type(table).__name__}")
    saturate = Saturation.of(saturate)
    check_devices(x=x, random=random)
    check_shapes(x=x, random=random)
    rounding = Rounding.parse(rounding)
    if rounding == EXACT:
        table.check_exact()
    random, x = random_of("random", random, rounding), codes_of("x", x, table.fmt)
    return round_and_pack(value_of(x, table, rounding), table.out, rounding, saturate, random)


def value_of(x: Tensor, table: Segments, rounding: Rounding) -> Raw:
    """Evaluate a function to raw numbers that are exact in all bits that rounding depends on."""
    number = unpack(x, table.fmt)
    finite = replace(number, nan=torch.zeros_like(number.nan), inf=torch.zeros_like(number.inf))
    value = _reduced(finite, table, rounding) if table.reduction else _folded(finite, x, table, rounding)
    return _with_specials(value, number, table)


# Segment of a number -------------------------------------------------------------------------------------------


def _folded(x: Raw, codes: Tensor, table: Segments, rounding: Rounding) -> Raw:
    """Evaluate the segment of each number; a symmetric table has segments of one sign only."""
    fmt, folded = table.fmt, table.symmetry is not None
    if table.by_code:
        piece = torch.tensor(table.places, device=codes.device)[codes]
    else:
        # x and -x have the same key: that of the negative number, which two's complement always holds.
        sign = -1 if folded and fmt.lowest < 0 else 1
        reached = torch.tensor([int64(fmt.encode(sign * start, EXACT)) for start in table.reached], dtype=torch.int64)
        starts = _key(reached, fmt, folded).to(codes.device)
        piece = torch.bucketize(_key(codes, fmt, folded), starts, right=True)
    sides = [table.unfolded(negative) for negative in (False, True)]
    piece = piece + (x.sign & ~x.zero).to(torch.int64) * len(sides[0])
    return _line(x, piece, [piece for side in sides for piece in side], table.out, rounding)


def _key(codes: Tensor, fmt: Format, folded: bool) -> Tensor:
    """Map codes to integers in the order of their numbers, or of the magnitudes if ``folded``."""
    if fmt.code_order == "sign-magnitude":
        magnitude = codes & mask(fmt.width - 1)
        if fmt.flushes:
            magnitude = torch.where(magnitude < fmt.encode(fmt.smallest), 0, magnitude)
        if folded:
            return magnitude
        return torch.where(codes >> (fmt.width - 1) & 1 != 0, -magnitude, magnitude)
    if fmt.code_order == "unsigned":
        # With bit 63 inverted, int64 has the order of the unsigned codes.
        return codes ^ int64(1 << 63)
    if fmt.width < 64:
        codes = codes - ((codes >> (fmt.width - 1)) << fmt.width)
    # The magnitude less 1 always fits int64.
    return ~torch.minimum(codes, -codes) if folded else codes


# Value of a segment --------------------------------------------------------------------------------------------


def _line(x: Raw, index: Tensor, lines: Sequence[Piece], o: Format, rounding: Rounding) -> Raw:
    """Return slope * x + intercept, exact in all bits that rounding depends on; zero is +0."""
    slope = _constants([line.slope for line in lines], index)
    intercept = _constants([line.intercept for line in lines], index)
    return _unsigned_zero(add(align(multiply(x, slope), intercept, _window(o, rounding)), rounding))


def _constants(values: Sequence[Fraction], index: Tensor) -> Raw:
    """Select binary fractions by index, as raw numbers."""
    parts = [_parts(value) for value in values]
    width = max(significand.bit_length() for significand, _ in parts) or 1
    device = index.device
    significands = [significand << (width - significand.bit_length()) for significand, _ in parts]
    never = torch.zeros_like(index, dtype=torch.bool)
    return Raw(
        sign=torch.tensor([value < 0 for value in values], device=device)[index],
        exponent=torch.tensor([exponent for _, exponent in parts], device=device)[index],
        significand=Wide.of(torch.tensor(significands, device=device)[index], width),
        nan=never,
        inf=never,
        zero=torch.tensor([value == 0 for value in values], device=device)[index],
    )


def _parts(value: Fraction) -> tuple[int, int]:
    """Return the odd significand of a fraction and the exponent of its leading bit."""
    if value == 0:
        return 0, ZERO_EXPONENT
    numerator = abs(value.numerator)
    return numerator // (numerator & -numerator), floor_log2(abs(value))


def _window(o: Format, rounding: Rounding) -> int:
    """Return the number of leading bits of a sum that must be exact for its rounding to ``o``; the rest is sticky."""
    if o.spacing == "uniform":
        # Larger results saturate; for a format that wraps, no segment has more integer bits.
        return o.width + rounding.places + (2 * LIMB if o.wraps else 1)
    return o.window + rounding.places


def _unsigned_zero(x: Raw) -> Raw:
    return replace(x, sign=x.sign & ~x.zero)


# Reductions ----------------------------------------------------------------------------------------------------


def _reduced(x: Raw, table: Segments, rounding: Rounding) -> Raw:
    """Evaluate a function with range reduction: reduce the argument, evaluate its segment, scale the value."""
    starts = [piece.start for piece in table.pieces[1:]]
    if table.reduction == "exp2":
        power, rest = _split(x, table)
        width = max(table.fraction, 1)
        argument = fixed.unpack(rest, Fixed(width - table.fraction, table.fraction, signed=False))
        thresholds = [-int(-start * (1 << table.fraction) // 1) for start in starts]
        index = torch.bucketize(rest, torch.tensor(thresholds, dtype=torch.int64, device=rest.device), right=True)
        value = _line(argument, index, table.pieces, table.out, rounding)
        return replace(value, exponent=value.exponent + power)
    exponent = torch.where(x.zero, 0, x.exponent)
    power = exponent >> 1 if table.reduction == "rsqrt" else exponent
    within = exponent & 1 if table.reduction == "rsqrt" else torch.zeros_like(exponent)
    never = torch.zeros_like(x.sign)
    argument = replace(x, sign=never, exponent=within, zero=never)
    index = sum((_reaches(argument, start) for start in starts), start=torch.zeros_like(exponent))
    if table.reduction == "log2":
        return _logarithm(argument, index, power, table, rounding)
    value = _line(argument, index, table.pieces, table.out, rounding)
    # The functions with this reduction are odd.
    return replace(value, sign=value.sign ^ (x.sign & ~value.zero), exponent=value.exponent - power)


def _split(x: Raw, table: Segments) -> tuple[Tensor, Tensor]:
    """Split ``floor(x * factor * 2^fraction)`` into exponent (clamped where results saturate) and fraction bits."""
    scaled = multiply(x, _constants([table.factor], torch.zeros_like(x.exponent)))
    most = POWER_BITS + table.fraction
    beyond = scaled.exponent >= POWER_BITS
    units, lost = in_units(scaled, -table.fraction, most)
    magnitude = torch.where(beyond, 1 << most, units.bits(0, min(most + 1, LIMB)))
    integer = torch.where(scaled.sign, -(magnitude + (lost & ~beyond)), magnitude)
    return integer >> table.fraction, integer & mask(table.fraction)


def _reaches(x: Raw, start: Fraction) -> Tensor:
    """Return 1 for each number in [1, 4) that is at least ``start``, else 0."""
    width = x.significand.width
    reached = torch.zeros_like(x.exponent)
    for exponent in (0, 1):
        # The start in units of the last place of numbers with this exponent.
        least = max(-int(-start * (1 << (width - 1)) // (1 << exponent)), 0)
        bound = Wide.constant(least, max(width, least.bit_length()), x.exponent)
        here = ~(x.significand.resized(bound.width) < bound)
        reached = torch.where(x.exponent == exponent, here.to(torch.int64), reached)
    return reached


def _logarithm(x: Raw, index: Tensor, power: Tensor, table: Segments, rounding: Rounding) -> Raw:
    """Return the value of the segment plus the exponent ``power``."""
    slope = _constants([piece.slope for piece in table.pieces], index)
    quantum = min((last_place(piece.intercept) for piece in table.pieces if piece.intercept), default=0)
    quantum = min(quantum, 0)
    units = [int(piece.intercept / Fraction(2) ** quantum) for piece in table.pieces]
    whole = (power << -quantum) + torch.tensor(units, device=index.device)[index]
    intercept = fixed.unpack(whole & mask(LIMB), Fixed(LIMB + quantum, -quantum))
    return _unsigned_zero(add(align(multiply(x, slope), intercept, _window(table.out, rounding)), rounding))


# Special values ------------------------------------------------------------------------------------------------


def _with_specials(value: Raw, x: Raw, table: Segments) -> Raw:
    """Replace the values at NaN, infinities, zeros and negative numbers by the special values of the table."""
    value = replace(value, nan=torch.zeros_like(x.nan), inf=torch.zeros_like(x.inf))
    if table.symmetry == "odd":
        value = replace(value, sign=value.sign | (value.zero & x.sign))
    zero, inf = x.zero & ~x.nan & ~x.inf, x.inf & ~x.nan
    for where, special in (
        (x.nan, table.nan),
        (inf & ~x.sign, table.limit(False) if table.inf is None else table.inf),
        (inf & x.sign, table.limit(True) if table.minus_inf is None else table.minus_inf),
        (zero & ~x.sign, table.zero),
        (zero & x.sign, table.minus_zero),
        (x.sign & ~x.zero & ~x.nan & ~x.inf, table.negative),
    ):
        if special is not None:
            value = _with(value, where, special)
    return value


def _with(value: Raw, where: Tensor, special: Special) -> Raw:
    """Replace values by a special value where a flag is set."""
    if special == "nan":
        return replace(value, nan=value.nan | where)
    if special in ("inf", "-inf"):
        return replace(value, inf=value.inf | where, sign=torch.where(where, special == "-inf", value.sign))
    number = _constants([Fraction(0 if special == "-0" else special)], torch.zeros_like(value.exponent))
    width = max(number.significand.width, value.significand.width)
    ours = value.significand.pad(width - value.significand.width)
    theirs = number.significand.pad(width - number.significand.width)
    limbs = tuple(torch.where(where, p, q) for p, q in zip(theirs.limbs, ours.limbs, strict=True))
    assert value.sticky is not None
    return replace(
        value,
        sign=torch.where(where, special == "-0" or number.sign, value.sign),
        exponent=torch.where(where, number.exponent, value.exponent),
        significand=Wide(limbs, width),
        zero=torch.where(where, number.zero, value.zero),
        sticky=value.sticky & ~where,
    )
