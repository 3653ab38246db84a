"""Integral values and exponents."""

import torch
from torch import Tensor

from halfulp.hdl.specs.integral import LogbSpec, RintSpec
from halfulp.hdl.specs.unit import FLAGS

from .operation import operation
from .raw import ZERO_EXPONENT, Raw, in_units
from .round import round_up
from .wide import Wide

EXPONENT_WIDTH = 16
"""Bits of the magnitude of an exponent."""


@operation(RintSpec)
def rint(spec: RintSpec, number: Raw, *, random: Tensor | None) -> Raw:
    """Round x to an integer, and the integer to ``o`` if ``o`` does not hold it; see `halfulp.golden` for the rest."""
    return integral(number, spec, random)


def integral(x: Raw, spec: RintSpec, random: Tensor | None) -> Raw:
    """Round the fractions of numbers; those of the exponent of the significand's width have none."""
    width, places = x.significand.width, spec.rounding.places
    units, sticky = in_units(x, -places, places)
    kept, below = units.truncated(places), units.bits(0, places)
    inexact = (below != 0) | sticky
    last, seen, negative = kept.low & 1, below, x.sign
    if spec.floors:
        # The floor of a negative number is one below its truncation, and its discarded part counts from there.
        last = last ^ (negative & inexact).to(torch.int64)
        seen = torch.where(negative, -(below + sticky), below) & ((1 << places) - 1)
    # Without discarded bits to see, all of them are sticky.
    up = round_up(
        spec.rounding,
        negative=negative,
        last=last,
        seen=seen,
        sticky=sticky if places else inexact,
        random=random,
        twos_complement=spec.floors,
    )
    outward = torch.where(negative, inexact.to(torch.int64) - up, up) if spec.floors else up
    integer = kept + Wide.of(outward, kept.width)
    whole = x.exponent >= width - 1
    long = x.significand.pad(integer.width - width)
    limbs = tuple(torch.where(whole, p, q) for p, q in zip(long.limbs, integer.limbs, strict=True))
    return Raw(
        sign=x.sign,
        exponent=torch.where(whole, x.exponent, integer.width - 1),
        significand=Wide(limbs, integer.width),
        nan=x.nan,
        inf=x.inf,
        zero=x.zero | (~whole & integer.is_zero()),
        invalid=x.invalid,
        raised=(inexact & ~(x.nan | x.inf | x.zero)).to(torch.int64) << FLAGS.index("inexact"),
    )


@operation(LogbSpec)
def logb(spec: LogbSpec, number: Raw) -> Raw:
    """Return floor(log2(abs(x))), rounded to ``o``; see `halfulp.golden` for parameters and errors."""
    return exponent_of(number, spec)


def exponent_of(number: Raw, spec: LogbSpec) -> Raw:
    """Return the exponents of numbers."""
    exponent = torch.where(number.zero | number.inf | number.nan, 0, number.exponent)
    magnitude = Wide.of(exponent.abs(), EXPONENT_WIDTH)
    zero = exponent == 0
    length = magnitude.bit_length()
    return Raw(
        sign=torch.where(number.inf, False, number.zero | (exponent < 0)),
        exponent=torch.where(zero, ZERO_EXPONENT, length - 1),
        significand=magnitude.shift_left(torch.where(zero, 0, EXPONENT_WIDTH - length)),
        nan=number.nan,
        inf=number.inf | number.zero,
        zero=zero,
        invalid=number.invalid,
        # In fixed point the exponent of a zero is invalid, because it does not hold infinities.
        by_zero=number.zero & ~number.nan & spec.o.is_floating_point,
    )
