"""Codebooks on tensors: table lookup of codes, and binary search for the magnitudes of results."""

import itertools
from fractions import Fraction
from functools import lru_cache

import torch
from torch import Tensor

from halfulp.hdl.formats import Rounding, Saturation
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.formats.codebook import Codebook

from .raw import ZERO_EXPONENT, Raw, in_units, mask
from .round import Truncated, round_up
from .wide import LIMB, MASK, Wide, limbs_of


def unpack(codes: Tensor, fmt: Codebook) -> Raw:
    """Unpack codes to raw numbers."""
    sign, exponent, significand, nan, inf, zero = (column.to(codes.device) for column in _columns(fmt))
    return Raw(
        sign=sign[codes],
        exponent=exponent[codes],
        significand=_at(significand, codes, fmt.precision),
        nan=nan[codes],
        inf=inf[codes],
        zero=zero[codes],
    )


@lru_cache(maxsize=64)
def _columns(fmt: Codebook) -> tuple[Tensor, ...]:
    exponents, significands = [], []
    for value in fmt.values:
        number = abs(value) if isinstance(value, Fraction) else Fraction(0)
        exponents.append(floor_log2(number) if number else ZERO_EXPONENT)
        significands.append(int(number / Fraction(2) ** (exponents[-1] - fmt.precision + 1)) if number else 0)
    return (
        torch.tensor([fmt.negative(code) for code in range(1 << fmt.width)]),
        torch.tensor(exponents),
        _limbs(significands, fmt.precision),
        torch.tensor([value != value for value in fmt.values]),
        torch.tensor([value in (float("inf"), -float("inf")) for value in fmt.values]),
        torch.tensor([value == 0 for value in fmt.values]),
    )


def _limbs(integers: list[int], width: int) -> Tensor:
    """Return integers as a table with a row for each limb."""
    return torch.tensor([[integer >> (LIMB * at) & MASK for integer in integers] for at in range(limbs_of(width))])


def _at(table: Tensor, index: Tensor, width: int) -> Wide:
    """Look up integers in a table of limbs."""
    return Wide(tuple(row[index] for row in table), width)


@lru_cache(maxsize=64)
def _tables(fmt: Codebook, width: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return magnitudes, gaps to the next magnitude and code parities of both signs, and their last indices."""
    length = max(map(len, fmt.rounding_tables))
    magnitudes, gaps, parities = [], [], []
    for side in fmt.rounding_tables:
        padded = [*side, *[side[-1]] * (length - len(side))]
        magnitudes += [entry.units for entry in padded]
        gaps += [*(high.units - low.units or 1 for low, high in itertools.pairwise(padded)), 1]
        parities += [entry.odd for entry in padded]
    last = torch.tensor([len(side) - 1 for side in fmt.rounding_tables], device=device)
    tables = _limbs(magnitudes, width), _limbs(gaps, width), torch.tensor(parities)
    return *(table.to(device) for table in tables), last  # type: ignore[return-value]  # two tables and a number


def truncate(x: Raw, o: Codebook, places: int) -> Truncated:
    """Truncate numbers to values of the codebook; the discarded bits are the fraction of the gap to the next value."""
    highest = max(entry.magnitude for side in o.rounding_tables for entry in side)
    scale = o.quantum - places
    # Numbers with a larger shift are out of range.
    units, lost = in_units(x, scale, floor_log2(highest) - scale + 2)
    width = units.width
    magnitudes, gaps, parities, last = _tables(o, width, units.low.device)
    length = len(parities) // 2
    side = x.sign.to(torch.int64) * length
    index = torch.zeros_like(side)
    end = last[x.sign.to(torch.int64)]
    padding = torch.full_like(side, places)
    for level in reversed(range(length.bit_length())):
        after = index + (1 << level)
        against = _at(magnitudes, side + after.clamp(max=length - 1), width).shift_left(padding)
        index = torch.where((after <= end) & ~(units < against), after, index)

    # Long division by the gap: each step gives one bit of the fraction.
    rest = units.minus(_at(magnitudes, side + index, width).shift_left(padding), torch.zeros_like(side))
    gap, seen = _at(gaps, side + index, width), torch.zeros_like(side)
    for place in reversed(range(places)):
        step = gap.shift_left(torch.full_like(side, place))
        reached = ~(rest < step) & (index < end)
        less = rest.minus(step, torch.zeros_like(side)) if bool(reached.any()) else rest
        rest = Wide(tuple(torch.where(reached, p, q) for p, q in zip(less.limbs, rest.limbs, strict=True)), width)
        seen = 2 * seen + reached.to(torch.int64)
    sticky = lost | ~rest.is_zero() if x.sticky is None else lost | ~rest.is_zero() | x.sticky
    largest = end - int(o.threshold is not None)
    return Truncated(
        code=index,
        last=parities[side + index],
        seen=seen,
        sticky=sticky,
        beyond=(index > largest) | ((index == largest) & (sticky | (seen != 0))),
        places=places,
    )


def pack(x: Raw, o: Codebook, rounding: Rounding, saturate: Saturation, random: Tensor | None) -> Tensor:
    """Round numbers once and encode them."""
    z = truncate(x, o, rounding.places)
    negative, length = x.sign.to(torch.int64), max(map(len, o.rounding_tables))
    end = torch.where(x.sign, len(o.rounding_tables[True]) - 1, len(o.rounding_tables[False]) - 1)
    seen, inner = z.seen, z.last
    inexact = (seen != 0) | z.sticky
    floor = o.rounds == "floor"
    if floor:
        # The floor of a negative number is the next entry; the discarded fraction is measured from there.
        seen = torch.where(x.sign, -(seen + z.sticky), seen) & mask(rounding.places)
        inner = torch.where(x.sign & inexact, z.last ^ 1, z.last)
    up = round_up(
        rounding, negative=x.sign, last=inner, seen=seen, sticky=z.sticky, random=random, twos_complement=floor
    )
    outward = torch.where(x.sign, inexact.to(torch.int64) - up, up) if floor else up
    place = torch.minimum(z.code + outward, end)
    codes = []
    for sign in (False, True):
        side = [
            o.overflowed(sign, rounding, saturate) if entry.code is None else entry.code
            for entry in o.rounding_tables[sign]
        ]
        codes += side + side[-1:] * (length - len(side))
    code = torch.tensor(codes, device=place.device)[negative * length + torch.where(x.zero, 0, place)]
    code = torch.where(x.inf, torch.where(x.sign, o.infinite(True, saturate), o.infinite(False, saturate)), code)
    return torch.where(x.nan, o.nan_code, code)
