"""Square root."""

from typing import Any

from torch import Tensor

from halfulp.hdl.formats import RN, Format, Rounding
from halfulp.hdl.specs import SqrtSpec

from .chosen import by_mode
from .codec import operands, rounded
from .divide import square_root


@by_mode
def sqrt(
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
    """Return the square root of x, rounded once; see `halfulp.golden` for parameters and errors of all operations."""
    spec = SqrtSpec.of(a=a, o=o, rounding=rounding, saturate=saturate, flags=flags)
    (number,), random = operands(spec, random, x=x)
    return rounded(spec, square_root(number, spec.window), random)
