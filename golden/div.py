"""Division."""

from typing import Any

from torch import Tensor

from halfulp.hdl.formats import RN, Format, Rounding
from halfulp.hdl.specs import DivSpec

from .chosen import by_mode
from .codec import operands, rounded
from .divide import divide


@by_mode
def div(
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
    """Divide x by y and round once; see `halfulp.golden` for parameters and errors of all operations."""
    spec = DivSpec.of(a=a, b=b, o=o, rounding=rounding, saturate=saturate, flags=flags)
    (first, second), random = operands(spec, random, x=x, y=y)
    return rounded(spec, divide(first, second, spec.window), random)
