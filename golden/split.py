"""Conversion of floats to compound numbers."""

from torch import Tensor

from halfulp.hdl.formats import EXACT, RN, Format, Rounding
from halfulp.hdl.specs import SplitSpec

from .check import check_devices, random_of
from .values import decode, encoded


def split(
    x: Tensor,
    /,
    *,
    a: Format | str,
    o: Format | str,
    rounding: Rounding | str = RN,
    saturate: bool = False,
    random: Tensor | None = None,
) -> Tensor:
    """Convert floats to compound numbers, such as fp32 to bf16x2, rounded part by part as `Compound` says.

    See `halfulp.golden` for parameters and errors.
    """
    spec = SplitSpec.of(a=a, o=o, rounding=rounding, saturate=saturate)
    check_devices(x=x, random=random)
    word = random_of("random", random, spec.rounding)
    # Rounding to nearest changes no number that the format holds.
    mode = RN if spec.rounding == EXACT else spec.rounding
    return encoded(decode(x, spec.a), spec.o, mode, word, spec.saturate)
