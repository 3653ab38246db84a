"""Codes to raw numbers and back: the registry of the families' stages."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from halfulp.hdl.formats import Fixed, Float, Format, Posit, Rounding

from . import fixed, floating, posit
from .raw import Raw


class Stages(NamedTuple):
    """Stages of a family of formats: ``unpack(codes, fmt)`` and ``pack(x, o, rounding, saturate, random)``."""

    unpack: Callable[[Tensor, Any], Raw]
    pack: Callable[[Raw, Any, Rounding, bool, Tensor | None], Tensor]


STAGES: dict[type[Format], Stages] = {
    Float: Stages(floating.unpack, floating.pack),
    Fixed: Stages(fixed.unpack, fixed.pack),
    Posit: Stages(posit.unpack, posit.pack),
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


def round_and_pack(x: Raw, o: Format, rounding: Rounding, saturate: bool, random: Tensor | None) -> Tensor:
    """Codes of numbers, rounded once."""
    return stages_of(o).pack(x, o, rounding, saturate, random)
