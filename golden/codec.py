"""Codes to raw numbers and back: the registry of the families' stages."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from halfulp.hdl.formats import Codebook, Fixed, Float, Format, Posit, Rounding, Takum

from . import codebook, fixed, floating, posit, takum
from .raw import Raw
from .round import Truncated


class Stages(NamedTuple):
    """Stages of a family of formats: ``unpack(codes, fmt)``, ``truncate(x, o, places)`` and
    ``pack(x, o, rounding, saturate, random)``, which rounds what ``truncate`` leaves."""

    unpack: Callable[[Tensor, Any], Raw]
    truncate: Callable[[Raw, Any, int], Truncated]
    pack: Callable[[Raw, Any, Rounding, bool, Tensor | None], Tensor]


STAGES: dict[type[Format], Stages] = {
    Float: Stages(floating.unpack, floating.truncate, floating.pack),
    Fixed: Stages(fixed.unpack, fixed.truncate, fixed.pack),
    Posit: Stages(posit.unpack, posit.truncate, posit.pack),
    Takum: Stages(takum.unpack, takum.truncate, takum.pack),
    Codebook: Stages(codebook.unpack, codebook.truncate, codebook.pack),
}


def stages_of(fmt: Format) -> Stages:
    """Stages of a format's family.

    Raises
    ------
    TypeError
        If the family has none.
    """
    found = STAGES.get(type(fmt))
    if found is None:
        raise TypeError(f"{fmt} has no golden model")
    return found


def unpack(codes: Tensor, fmt: Format) -> Raw:
    """Raw numbers of codes."""
    return stages_of(fmt).unpack(codes, fmt)


def truncate(x: Raw, o: Format, places: int) -> Truncated:
    """Numbers truncated to a format, with the first ``places`` bits that are dropped; of zeros, infinities and NaN
    anything comes out."""
    return stages_of(o).truncate(x, o, places)


def round_and_pack(x: Raw, o: Format, rounding: Rounding, saturate: bool, random: Tensor | None) -> Tensor:
    """Codes of numbers, rounded once."""
    return stages_of(o).pack(x, o, rounding, saturate, random)
