"""Codes to raw numbers and back, whatever the family of the format."""

from torch import Tensor

from halfulp.hdl.formats import Fixed, Float, Format, Posit, Rounding

from . import fixed, floating, posit
from .raw import Raw


def unpack(codes: Tensor, fmt: Format) -> Raw:
    """Raw numbers of codes."""
    match fmt:
        case Float():
            return floating.unpack(codes, fmt)
        case Fixed():
            return fixed.unpack(codes, fmt)
        case Posit():
            return posit.unpack(codes, fmt)
    raise TypeError(f"the golden model knows no formats like {fmt}")


def round_and_pack(x: Raw, o: Format, rounding: Rounding, saturate: bool, random: Tensor | None) -> Tensor:
    """Codes of numbers, rounded once."""
    match o:
        case Float():
            return floating.pack(x, o, rounding, saturate, random)
        case Fixed():
            return fixed.pack(x, o, rounding, saturate, random)
        case Posit():
            return posit.pack(x, o, rounding, saturate, random)
    raise TypeError(f"the golden model knows no formats like {o}")
