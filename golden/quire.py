"""Exact multiply-accumulate: sums are rounded only when they are read."""

from torch import Tensor

from halfulp.hdl.specs import QuireSpec

from .check import codes_of, flags_of
from .codec import unpack
from .raw import Raw, multiply, negate
from .sequence import accumulator


def _term(spec: QuireSpec, x: Tensor, y: Tensor, subtract: Tensor | int) -> Raw:
    """Compute one step of a quire and round it: start + x * y, or start - x * y where ``subtract`` is 1 or true.

    ``start`` holds codes of the result format. Formats and ``carry`` are those of `QuireSpec`; see `halfulp.golden` for
    the other parameters.
    """
    product = multiply(unpack(codes_of("x", x, spec.a), spec.a), unpack(codes_of("y", y, spec.b), spec.b))
    return negate(product, flags_of("subtract", subtract, product.sign.device))


quire, quire_sequence = accumulator(QuireSpec, "x", "y", "start", "subtract")(_term)
