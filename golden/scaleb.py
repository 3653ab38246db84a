"""Product of a number and a power of two."""

from dataclasses import replace

import torch
from torch import Tensor

from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs.scaleb import ScalebSpec

from .operation import operation
from .raw import ZERO_EXPONENT, Raw
from .wide import Wide

MORE = 256
"""Places beyond all widths of results and of random words."""


@operation(ScalebSpec)
def scaleb(spec: ScalebSpec, number: Raw, _: Raw, *, y: Tensor) -> Raw:
    """Return x * 2^y for integers y, rounded once to ``o``; see `halfulp.golden` for parameters and errors."""
    return scaled_by(number, y.to(torch.int64), spec)


def scaled_by(number: Raw, power: Tensor, spec: ScalebSpec) -> Raw:
    """Return numbers times 2^power, for codes of the powers."""
    if spec.b.signed:
        power = power - ((power >> (spec.b.width - 1)) << spec.b.width)
    sizes = (size for fmt in (spec.a, spec.o) for size in (fmt.smallest, max(fmt.largest, -fmt.lowest)))
    # Larger powers have the same results.
    limit = 2 * max(abs(floor_log2(size)) for size in sizes) + MORE
    power = power.clamp(-limit, limit)
    # All parts of the result have the shape of both operands.
    never, nothing = torch.zeros_like(power, dtype=torch.bool), torch.zeros_like(power)
    significand = Wide(tuple(limb + nothing for limb in number.significand.limbs), number.significand.width)
    return replace(
        number,
        sign=number.sign | never,
        exponent=torch.where(number.zero, ZERO_EXPONENT, number.exponent + power),
        significand=significand,
        nan=number.nan | never,
        inf=number.inf | never,
        zero=number.zero | never,
        invalid=None if number.invalid is None else number.invalid | never,
    )
