"""Addition and subtraction."""

from typing import Any

from torch import Tensor

from halfulp.hdl.formats import RN, Format, Rounding
from halfulp.hdl.specs import AddSpec
from halfulp.hdl.specs.ranges import window_of

from .check import check_devices, check_shapes, flags_of
from .chosen import by_mode
from .codec import operands, rounded
from .raw import add as add_raw
from .raw import align, negate


@by_mode
def add(
    x: Tensor,
    y: Tensor,
    subtract: Tensor | int = 0,
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
    """Add, or subtract where ``subtract`` is 1 or true, and round once; see `halfulp.golden` for other parameters."""
    spec = AddSpec.of(a=a, b=b, o=o, rounding=rounding, saturate=saturate, flags=flags)
    check_devices(x=x, y=y, subtract=subtract)
    check_shapes(x=x, y=y, subtract=subtract)
    (first, second), random = operands(spec, random, x=x, y=y)
    second = negate(second, flags_of("subtract", subtract, first.sign.device))
    total = add_raw(
        align(first, second, window_of(spec.o, spec.unit_rounding, spec.results[0].magnitude)), spec.rounding
    )
    return rounded(spec, total, random)
