"""Remainder of a division."""

from typing import Any

from torch import Tensor

from halfulp.hdl.formats import RN, Format, Rounding
from halfulp.hdl.specs.remainder import RemainderSpec

from . import divide
from .chosen import by_mode
from .codec import operands, rounded


@by_mode
def remainder(
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
    """Return x - y * n for the integer n nearest to x / y, the even one of two, rounded once to ``o``.

    See `halfulp.golden` for parameters and errors of all operations. The time is proportional to the largest difference
    of the exponents of x and y.
    """
    spec = RemainderSpec.of(a=a, b=b, o=o, rounding=rounding, saturate=saturate, flags=flags)
    (first, second), random = operands(spec, random, x=x, y=y)
    return rounded(spec, divide.remainder(first, second), random)
