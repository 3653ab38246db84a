"""Accumulation without a multiplier."""

from torch import Tensor

from halfulp.hdl.specs import AccumulateSpec

from .check import codes_of
from .codec import unpack_operand
from .raw import Raw
from .sequence import accumulator


def _term(spec: AccumulateSpec, x: Tensor) -> Raw:
    """Compute one step of an accumulator: start + x.

    ``start`` holds codes of the result format. Formats and ``carry`` are those of `AccumulateSpec`; see
    `halfulp.golden` for the other parameters.
    """
    return unpack_operand(spec, codes_of("x", x, spec.a), spec.a)


accumulate, accumulate_sequence = accumulator(AccumulateSpec, "x", "start")(_term)
