"""Fused multiply-add."""

from typing import Any

from torch import Tensor

from halfulp.hdl.formats import RN, Format, Rounding
from halfulp.hdl.specs import FmaSpec
from halfulp.hdl.specs.ranges import window_of

from .chosen import by_mode
from .codec import operands, rounded
from .raw import add, align, multiply


@by_mode
def fma(
    x: Tensor,
    y: Tensor,
    z: Tensor,
    /,
    *,
    a: Format | str,
    b: Format | str,
    c: Format | str,
    o: Format | str | None = None,
    rounding: Rounding | str = RN,
    saturate: bool = False,
    flags: bool | str = False,
    mode: Tensor | None = None,
    random: Tensor | None = None,
) -> Any:
    """Return x * y + z, rounded once; see `halfulp.golden` for parameters and errors of all operations."""
    spec = FmaSpec.of(a=a, b=b, c=c, o=o, rounding=rounding, saturate=saturate, flags=flags)
    (first, second, addend), random = operands(spec, random, x=x, y=y, z=z)
    window = window_of(spec.o, spec.unit_rounding, spec.results[0].magnitude)
    total = add(align(multiply(first, second), addend, window), spec.rounding)
    return rounded(spec, total, random)
