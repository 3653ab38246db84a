"""Exact multiply-accumulate: sums are rounded only when they are read."""

from torch import Tensor

from halfulp.hdl.formats import RN, Format, Rounding
from halfulp.hdl.specs import QuireSpec
from halfulp.hdl.specs.quire import CARRY_BITS

from .check import check_shapes, codes_of, flags_of
from .codec import unpack
from .raw import Raw, multiply, negate
from .sequence import sequence_of, step


def quire(
    x: Tensor,
    y: Tensor,
    start: Tensor,
    subtract: Tensor | int = 0,
    /,
    *,
    a: Format | str,
    b: Format | str,
    o: Format | str | None = None,
    carry: int = CARRY_BITS,
    rounding: Rounding | str = RN,
    saturate: bool = False,
    mode: Tensor | None = None,
    random: Tensor | None = None,
) -> Tensor:
    """Compute one step of a quire and round it: start + x * y, or start - x * y where ``subtract`` is 1 or true.

    ``start`` holds codes of the result format. Formats and ``carry`` are those of `QuireSpec`; see `halfulp.golden` for
    the other parameters.
    """
    spec = QuireSpec.of(a=a, b=b, o=o, carry=carry, rounding=rounding, saturate=saturate)
    check_shapes(x=x, y=y, start=start, subtract=subtract, mode=mode, random=random)
    return step(spec, _term, start=start, mode=mode, random=random, x=x, y=y, subtract=subtract)


def _term(spec: QuireSpec, x: Tensor, y: Tensor, subtract: Tensor | int) -> Raw:
    product = multiply(unpack(codes_of("x", x, spec.a.width), spec.a), unpack(codes_of("y", y, spec.b.width), spec.b))
    return negate(product, flags_of("subtract", subtract, product.sign.device))


quire_sequence = sequence_of(quire, QuireSpec, _term)
