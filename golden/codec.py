"""Unpacking and packing of codes: a registry with the stages of each family of formats."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from halfulp.hdl.formats import Codebook, Fixed, Float, Format, Posit, Rounding, Scale, Takum
from halfulp.hdl.specs import UnitSpec

from . import codebook, fixed, floating, posit, scale, takum
from .check import check_devices, codes_of, random_of
from .raw import Raw
from .round import Truncated


class Stages(NamedTuple):
    """Functions of a family of formats; ``pack`` truncates, rounds and encodes."""

    unpack: Callable[[Tensor, Any], Raw]
    truncate: Callable[[Raw, Any, int], Truncated]
    pack: Callable[[Raw, Any, Rounding, bool, Tensor | None], Tensor]


STAGES: dict[type[Format], Stages] = {
    Float: Stages(floating.unpack, floating.truncate, floating.pack),
    Fixed: Stages(fixed.unpack, fixed.truncate, fixed.pack),
    Posit: Stages(posit.unpack, posit.truncate, posit.pack),
    Takum: Stages(takum.unpack, takum.truncate, takum.pack),
    Codebook: Stages(codebook.unpack, codebook.truncate, codebook.pack),
    Scale: Stages(scale.unpack, scale.truncate, scale.pack),
}


def stages_of(fmt: Format) -> Stages:
    """Return the stages of a format's family; TypeError if it has none."""
    found = STAGES.get(type(fmt))
    if found is None:
        raise TypeError(f"{fmt} has no golden model")
    return found


def unpack(codes: Tensor, fmt: Format) -> Raw:
    """Unpack codes to raw numbers."""
    return stages_of(fmt).unpack(codes, fmt)


def truncate(x: Raw, o: Format, places: int) -> Truncated:
    """Truncate numbers to a format, with the first ``places`` discarded bits; undefined for zero, infinity and NaN."""
    return stages_of(o).truncate(x, o, places)


def round_and_pack(x: Raw, o: Format, rounding: Rounding, saturate: bool, random: Tensor | None) -> Tensor:
    """Round numbers once and encode them."""
    return stages_of(o).pack(x, o, rounding, saturate, random)


def operands(spec: UnitSpec, random: Tensor | None, **codes: Tensor) -> tuple[list[Raw], Tensor | None]:
    """Check and unpack the operands of a unit, in the order of ``spec.operands``, and check its random words.

    Raises
    ------
    TypeError, ValueError
        As for all operations, see `halfulp.golden`.
    """
    check_devices(**codes, random=random)
    words = random_of("random", random, spec.rounding)
    pairs = zip(codes.items(), spec.operands.values(), strict=True)
    return [unpack(codes_of(name, x, fmt.width), fmt) for (name, x), fmt in pairs], words


def rounded(spec: UnitSpec, x: Raw, random: Tensor | None) -> Tensor:
    """Round exact results of a unit once to its result format and encode them."""
    return round_and_pack(x, spec.result, spec.rounding, spec.saturate, random)
