"""Product of a number and a power of two."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from halfulp.hdl.formats import RN, Format, Rounding
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs.scaleb import ScalebSpec

from .check import codes_of
from .chosen import by_mode
from .codec import operands, rounded
from .raw import ZERO_EXPONENT, Raw
from .wide import Wide

MORE = 256
"""Places beyond all widths of results and of random words."""


@by_mode
def scaleb(
    x: Tensor,
    y: Tensor,
    /,
    *,
    a: Format | str,
    b: Format | str,
    o: Format | str | None = None,
    rounding: Rounding | str = RN,
    saturate: bool = False,
    flags: bool | str = False,
    mode: Tensor | None = None,
    random: Tensor | None = None,
) -> Any:
    """Return x * 2^y for integers y, rounded once to ``o``; see `halfulp.golden` for parameters and errors."""
    spec = ScalebSpec.of(a=a, b=b, o=o, rounding=rounding, saturate=saturate, flags=flags)
    (number, _), random = operands(spec, random, x=x, y=y)
    return rounded(spec, scaled_by(number, codes_of("y", y, spec.b.width), spec), random)


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
