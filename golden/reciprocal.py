"""Reciprocal."""

from dataclasses import replace
from typing import Any

from torch import Tensor

from halfulp.hdl.formats import RN, Float, Format, Rounding
from halfulp.hdl.specs import ReciprocalSpec

from .chosen import by_mode
from .codec import operands, rounded, unpack
from .divide import divide
from .values import encode

ONE = Float(2, 0, specials="finite")
"""A format that has the number 1."""


@by_mode
def reciprocal(
    x: Tensor,
    /,
    *,
    a: Format | str,
    o: Format | str | None = None,
    rounding: Rounding | str = RN,
    saturate: bool = False,
    flags: bool | str = False,
    mode: Tensor | None = None,
    random: Tensor | None = None,
) -> Any:
    """Return 1 / x, rounded once; see `halfulp.golden` for parameters and errors of all operations."""
    spec = ReciprocalSpec.of(a=a, o=o, rounding=rounding, saturate=saturate, flags=flags)
    (number,), random = operands(spec, random, x=x)
    one = replace(unpack(encode([1.0], ONE).to(x.device), ONE), invalid=number.invalid)
    return rounded(spec, divide(one, number, spec.window), random)
