"""Unpacking and packing of codes: a registry with the stages of each family of formats."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from halfulp.hdl.formats import (
    SATFINITE,
    Codebook,
    Compound,
    Custom,
    Fixed,
    Float,
    Format,
    Posit,
    Rounding,
    Saturation,
    Scale,
    Takum,
)
from halfulp.hdl.specs import UnitSpec

from . import codebook, custom, fixed, floating, posit, scale, takum, unevaluated
from .check import check_devices, check_shapes, codes_of, random_of
from .exact import Flagged
from .raw import Raw
from .round import Flags, Truncated


class Stages(NamedTuple):
    """Functions of a family of formats; ``pack`` truncates, rounds and encodes, ``flags`` are those of this."""

    unpack: Callable[[Tensor, Any], Raw]
    truncate: Callable[[Raw, Any, int], Truncated]
    pack: Callable[[Raw, Any, Rounding, Saturation, Tensor | None], Tensor]
    flags: Callable[[Raw, Any, Rounding, Tensor | None, str], Flags] | None = None


STAGES: dict[type[Format], Stages] = {
    Float: Stages(floating.unpack, floating.truncate, floating.pack, floating.flags),
    Fixed: Stages(fixed.unpack, fixed.truncate, fixed.pack, fixed.flags),
    Posit: Stages(posit.unpack, posit.truncate, posit.pack),
    Takum: Stages(takum.unpack, takum.truncate, takum.pack),
    Codebook: Stages(codebook.unpack, codebook.truncate, codebook.pack),
    Scale: Stages(scale.unpack, scale.truncate, scale.pack),
    Custom: Stages(custom.unpack, custom.truncate, custom.pack),
    Compound: Stages(unevaluated.unpack, unevaluated.truncate, unevaluated.pack),
}


def stages_of(fmt: Format) -> Stages:
    """Return the stages of a format's family; TypeError if it has none."""
    stages = STAGES.get(type(fmt))
    if stages is None:
        raise TypeError(f"{fmt} has no golden model")
    return stages


def unpack(codes: Tensor, fmt: Format) -> Raw:
    """Unpack codes to raw numbers."""
    return stages_of(fmt).unpack(codes, fmt)


def truncate(x: Raw, o: Format, places: int) -> Truncated:
    """Truncate numbers to a format, with the first ``places`` discarded bits; undefined for zero, infinity and NaN."""
    return stages_of(o).truncate(x, o, places)


def round_and_pack(x: Raw, o: Format, rounding: Rounding, saturate: Saturation, random: Tensor | None) -> Tensor:
    """Round numbers once and encode them."""
    return stages_of(o).pack(x, o, rounding, saturate, random)


def operands(
    spec: UnitSpec, random: Tensor | None, *, vectors: bool = False, **codes: Tensor
) -> tuple[list[Raw], Tensor | None]:
    """Check and unpack the operands of a unit, in the order of ``spec.operands``, and check its random words.

    Shapes must broadcast, unless ``vectors`` of operands give one result.

    Raises
    ------
    TypeError, ValueError
        As for all operations, see `halfulp.golden`.
    """
    check_devices(**codes, random=random)
    checked = {
        name: codes_of(name, x, fmt) for (name, x), fmt in zip(codes.items(), spec.operands.values(), strict=True)
    }
    if not vectors:
        check_shapes(**checked, random=random)
    words = random_of("random", random, spec.rounding)
    return [
        unpack_operand(spec, x, fmt) for x, fmt in zip(checked.values(), spec.operands.values(), strict=True)
    ], words


def unpack_operand(spec: UnitSpec, codes: Tensor, fmt: Format) -> Raw:
    """Unpack codes; with flags, signalling NaNs are invalid."""
    number = unpack(codes, fmt)
    if not spec.flags:
        return number
    return replace(number, invalid=is_signalling(codes, fmt))


def is_signalling(codes: Tensor, fmt: Format) -> Tensor:
    """Return True for signalling NaNs."""
    return floating.is_signalling(codes, fmt) if isinstance(fmt, Float) else torch.zeros_like(codes, dtype=torch.bool)


def rounded(
    spec: UnitSpec, x: Raw, random: Tensor | None, rounding: Rounding | None = None, o: Format | None = None
) -> Any:
    """Round exact results of a unit once and encode them, with flags as `Flagged`; default: to its result format."""
    rounding, o = spec.rounding if rounding is None else rounding, spec.result if o is None else o
    codes = round_and_pack(x, o, rounding, spec.saturate, random)
    return Flagged(codes, _flags(spec, x, random, rounding, o)) if spec.flags else codes


def flags_of(spec: UnitSpec, x: Raw, random: Tensor | None) -> Tensor:
    """Return the exception flags of rounding exact results of a unit."""
    return _flags(spec, x, random, spec.rounding, spec.result)


def _flags(spec: UnitSpec, x: Raw, random: Tensor | None, rounding: Rounding, o: Format) -> Tensor:
    function = stages_of(o).flags
    assert function is not None
    assert isinstance(spec.flags, str)
    rounding_flags = function(x, o, rounding, random, spec.flags)
    lost_inf = x.inf & ~x.nan if spec.saturate == SATFINITE else rounding_flags.lost_inf
    invalid, by_zero = rounding_flags.lost_nan, torch.zeros_like(x.nan) if x.by_zero is None else x.by_zero
    if x.invalid is not None:
        invalid = invalid | x.invalid
    flags = (
        rounding_flags.inexact,
        rounding_flags.underflow,
        rounding_flags.overflow,
        by_zero,
        invalid | (lost_inf & ~by_zero),
    )
    # A number that is rounded already, to an integer beyond the range of the result, is invalid and not inexact.
    total = torch.zeros_like(x.exponent) if x.raised is None else torch.where(flags[-1], 0, x.raised)
    for bit, flag in enumerate(flags):
        total = total | (flag.to(torch.int64) << bit)
    return total
