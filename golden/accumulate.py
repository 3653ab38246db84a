"""Accumulation without a multiplier."""

from typing import Any

from torch import Tensor

from halfulp.hdl.formats import RN, Format, Rounding
from halfulp.hdl.specs import SumSpec
from halfulp.hdl.specs.quire import CARRY_BITS

from .check import check_shapes, codes_of
from .codec import unpack_operand
from .raw import Raw
from .sequence import sequence_of, step


def accumulate(
    x: Tensor,
    start: Tensor,
    /,
    *,
    a: Format | str,
    acc: Format | str,
    o: Format | str | None = None,
    carry: int = CARRY_BITS,
    rounding: Rounding | str = RN,
    saturate: bool = False,
    flags: bool | str = False,
    mode: Tensor | None = None,
    random: Tensor | None = None,
) -> Any:
    """Compute one step of an accumulator: start + x.

    ``start`` holds codes of the result format. Formats and ``carry`` are those of `SumSpec`; see `halfulp.golden` for
    the other parameters.
    """
    spec = SumSpec.of(a=a, acc=acc, o=o, carry=carry, rounding=rounding, saturate=saturate, flags=flags)
    check_shapes(x=x, start=start, mode=mode, random=random)
    return step(spec, _term, start=start, mode=mode, random=random, x=x)


def _term(spec: SumSpec, x: Tensor) -> Raw:
    return unpack_operand(spec, codes_of("x", x, spec.a.width), spec.a)


accumulate_sequence = sequence_of(accumulate, SumSpec, _term)
