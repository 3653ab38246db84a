"""Reciprocal of the square root."""

from typing import Any

from torch import Tensor

from halfulp.hdl.formats import RN, Format, Rounding
from halfulp.hdl.specs import RsqrtSpec

from .chosen import by_mode
from .codec import operands, rounded
from .divide import inverse_square_root


@by_mode
def rsqrt(
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
    """Return 1 / square root of x, rounded once; see `halfulp.golden` for parameters and errors of all operations."""
    spec = RsqrtSpec.of(a=a, o=o, rounding=rounding, saturate=saturate, flags=flags)
    (number,), random = operands(spec, random, x=x)
    return rounded(spec, inverse_square_root(number, spec.window), random)
