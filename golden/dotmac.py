"""Multiply-accumulate of k pairs in a step."""

from dataclasses import replace
from functools import partial

from torch import Tensor

from halfulp.hdl.specs import DotMacSpec
from halfulp.hdl.specs.dotmac import DotSteps

from . import register
from .check import codes_of
from .chosen import evaluate, mode_of
from .codec import unpack_operand
from .dot import invalid_sum
from .raw import Raw, multiply
from .sequence import accumulator


def _term(spec: DotMacSpec, x: Tensor, y: Tensor, *, chosen: Tensor | None) -> Raw:
    """Compute one step of an accumulator: start plus a dot product along the last dimension.

    Parameters
    ----------
    x, y : Tensor
        Codes in the formats ``a`` and ``b``, of one shape (..., k).
    start : Tensor
        Codes of the accumulator, of shape (...).
    random : Tensor, optional
        Random words of shape (...).
    mode : Tensor, optional
        Codes of rounding modes, of shape (...); see `halfulp.golden`.
    **parameters
        Fields of `DotMacSpec`.
    """
    if x.shape != y.shape:
        raise ValueError(f"x has shape {tuple(x.shape)} and y {tuple(y.shape)}; both must have one shape (..., k)")
    return sum_of(spec, x, y, chosen)


def sum_of(spec: DotSteps, x: Tensor, y: Tensor, mode: Tensor | None = None) -> Raw:
    """Return the exact sums of the products of pairs along the last dimension."""
    pairs = (("x", x, spec.a), ("y", y, spec.b))
    first, second = (unpack_operand(spec, codes_of(name, codes, fmt), fmt) for name, codes, fmt in pairs)
    products = multiply(first, second)
    zero_sign = partial(register.cancelled_sign, products.sign)
    mode = mode_of(mode, spec.rounding)
    zero = zero_sign(spec.rounding) if mode is None else evaluate(spec.rounding, mode, zero_sign)
    total = register.summed(products, spec.products, spec.k, zero)
    return replace(total, invalid=invalid_sum(total, products, None))


dotmac, dotmac_sequence = accumulator(DotMacSpec, "x", "y", "start")(_term)
