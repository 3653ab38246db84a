"""Faithfully rounded functions of one number, from the tables of polynomials that RTL has too."""

import functools
from dataclasses import replace

import torch
from torch import Tensor

from halfulp.hdl.specs import FunctionSpec
from halfulp.hdl.specs.polynomials import ODD, POWER, RATIO, TURN, Polynomials

from .raw import ZERO_EXPONENT, Raw, in_units, normalised
from .wide import LIMB, MASK, Wide, limbs_of

FAR = 1 << 18
"""Exponent beyond those of all results, and their distance from zero's."""


@functools.lru_cache(maxsize=64)
def _table_of(spec: FunctionSpec) -> Polynomials:
    # A description has the name of a function; here it asks for the table. mpmath loads slowly.
    from halfulp.hdl.fit.faithful import table_of

    return table_of(spec)


def value_of(spec: FunctionSpec, x: Raw) -> Raw:
    """Return approximate values of a function, whose rounding to nearest is faithful."""
    table = _table_of(spec)
    shift = table.precision - x.significand.width
    # Below the precision a significand has no ones.
    bits = x.significand.low << shift if shift >= 0 else x.significand.truncated(-shift).low
    if table.reduction == POWER:
        return _power(x, bits, table)
    if table.reduction == RATIO:
        return _ratio(x, bits, table)
    if table.reduction == TURN:
        return _turn(x, bits, table, cosine=spec.function == "cos")
    return _binades(x, bits, table, spec.function)


@functools.lru_cache(maxsize=64)
def _tensor(values: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(values, device=device)


def _evaluated(table: Polynomials, index: Tensor, t: Tensor) -> Tensor:
    """Return v of `Polynomials`."""
    places = (table.rest, *table.inner)
    columns = [_tensor(column, index.device)[index] for column in zip(*table.rows, strict=True)]
    total = columns[-1]
    for place, count in reversed(list(enumerate(places))):
        total = columns[place] + (total * (t >> (table.rest - count)) >> count)
    return total


def _split(bits: Tensor, table: Polynomials) -> tuple[Tensor, Tensor]:
    """Return the index of a polynomial and t."""
    return bits >> table.rest, bits & ((1 << table.rest) - 1)


def _power(x: Raw, bits: Tensor, table: Polynomials) -> Raw:
    """Return ``2^(x * factor)``."""
    factor = Wide.constant(table.factor, table.factor.bit_length(), bits)
    product = Wide.of(bits, table.precision) * factor
    top = product.width - table.precision - table.places
    # Larger numbers overflow, or are tiny.
    most = max(table.high + 2 - table.precision - table.places + table.fraction, 0)
    scaled = replace(x, significand=product, exponent=x.exponent + top)
    units, lost = in_units(scaled, -table.fraction, most)
    magnitude = units.low
    whole = torch.where(x.sign, -magnitude - lost.to(torch.int64), magnitude)
    fraction = whole & ((1 << table.fraction) - 1)
    value = _evaluated(table, *_split(fraction, table))
    zero = x.inf & x.sign
    exact = x.zero if table.factor != 1 else (fraction == 0) & ~lost
    return replace(
        x,
        sign=torch.zeros_like(x.sign),
        exponent=torch.where(zero, ZERO_EXPONENT, (whole >> table.fraction).clamp(-FAR, FAR)),
        significand=Wide.of(torch.where(zero, 0, value), table.value + 1),
        sticky=~exact & ~zero,
        inf=x.inf & ~x.sign,
        zero=zero,
    )


def _ratio(x: Raw, bits: Tensor, table: Polynomials) -> Raw:
    """Return ``e * factor + (m - 1) * v``."""
    width = table.precision - 1
    fraction = bits & ((1 << width) - 1)
    value = _evaluated(table, *_split(fraction, table))
    upper = fraction >> (width - 1)
    distance = torch.where(upper == 1, fraction - (1 << width), fraction << 1)
    exponent = torch.where(x.zero, 0, x.exponent) + upper
    scale = table.precision + table.value
    total = (exponent * table.factor << (scale - table.places)) + distance * value
    inf = x.inf | x.zero
    zero = (total == 0) & ~inf
    number = replace(
        x,
        sign=x.zero | (~x.inf & (total < 0)),
        exponent=torch.full_like(total, LIMB - 1 - scale),
        significand=Wide.of(total.abs(), LIMB),
        nan=x.nan | (x.sign & ~x.zero),
        inf=inf,
        zero=zero,
    )
    return normalised(number)


def _turn(x: Raw, bits: Tensor, table: Polynomials, *, cosine: bool) -> Raw:
    """Return the sine or cosine from the fraction of the angle in its quadrant."""
    small = x.exponent < table.low
    place = torch.where(small, 0, x.exponent - table.low).clamp(max=len(table.multiples) - 1)
    limbs = (
        _tensor(tuple(multiple >> (LIMB * limb) & MASK for multiple in table.multiples), bits.device)[place]
        for limb in range(limbs_of(table.fraction + 2))
    )
    turned = Wide.of(bits, table.precision) * Wide(tuple(limbs), table.fraction + 2)
    quadrant = turned.bits(table.fraction, 2) + int(cosine)
    fraction = _inverted(turned, quadrant & 1, table.fraction)
    zeros = table.fraction - fraction.bit_length()
    value = _evaluated(table, *_split(fraction.bits(table.fraction - table.value - 2, table.value + 2), table))
    first = fraction.shift_left(zeros.clamp(max=table.fraction - 1)).bits(table.fraction - table.leading, table.leading)
    width = table.leading + table.value + 1
    near = torch.full_like(bits, 1 << (width - 1)) if cosine else bits << (width - table.precision)
    zero = torch.zeros_like(x.zero) if cosine else x.zero
    negative = ~small & (quadrant & 2 != 0)
    number = replace(
        x,
        sign=negative if cosine else negative ^ x.sign,
        exponent=torch.where(small, 0 if cosine else x.exponent, -zeros),
        significand=Wide.of(torch.where(small, near, first * value), width),
        nan=x.nan | x.inf,
        inf=torch.zeros_like(x.inf),
        zero=zero,
    )
    return normalised(number)


def _inverted(x: Wide, where: Tensor, width: int) -> Wide:
    """Return the low bits of integers, inverted where a flag is 1."""
    limbs = []
    for low in range(0, width, LIMB):
        count = min(LIMB, width - low)
        limbs.append(x.bits(low, count) ^ (where * ((1 << count) - 1)))
    return Wide(tuple(limbs), width)


def _binades(x: Raw, bits: Tensor, table: Polynomials, name: str) -> Raw:
    """Return the value of the polynomial of a binade; values at zero and infinities are constants."""
    last, width = table.high - table.low + 1, table.precision - 1
    cluster = (x.exponent - table.low + 1).clamp(0, last)
    group = cluster if name in ODD else cluster | (x.sign.to(torch.int64) << last.bit_length())
    # Only positive numbers of unsigned formats have groups.
    segments, first = (_tensor(column, bits.device)[group] for column in zip(*table.groups, strict=True))
    shifted = (bits & ((1 << width) - 1)) << segments
    index = first | (shifted >> width)
    value = _evaluated(table, index, shifted & ((1 << width) - 1))
    exponents, relative = (_tensor(column, bits.device)[index] for column in zip(*table.exponents, strict=True))
    exponent = exponents + torch.where(relative, x.exponent, 0)
    never = torch.zeros_like(x.zero)
    zero, constant = x.zero, never
    if name == "sigmoid":
        zero, constant = x.inf & x.sign, x.zero | x.inf
        exponent = torch.where(constant, torch.where(x.zero, -1, 0), exponent)
    elif name in ODD:
        constant = x.inf
        exponent = torch.where(constant, 0, exponent)
    else:
        zero = x.zero | (x.inf & x.sign)
    value = torch.where(zero, 0, torch.where(constant, 1 << table.value, value))
    return replace(
        x,
        sign=never if name == "sigmoid" else x.sign,
        exponent=torch.where(zero, ZERO_EXPONENT, exponent),
        significand=Wide.of(value, table.value + 1),
        sticky=~constant & ~zero,
        inf=x.inf & ~x.sign if name in ("gelu", "silu") else never,
        zero=zero,
    )
