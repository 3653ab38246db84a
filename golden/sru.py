"""Stochastic rounding of fixed-point numbers."""

from torch import Tensor

from halfulp.hdl.formats import RD, Format, Rounding, Saturation
from halfulp.hdl.specs import SruSpec

from .convert import convert
from .exact import Carried
from .raw import mask


def sru(
    x: Tensor,
    /,
    *,
    a: Format | str,
    o: Format | str,
    rounding: Rounding | str = "sr3",
    saturate: Saturation | bool | str = False,
    increment: bool = True,
    random: Tensor | None = None,
) -> Tensor | Carried:
    """Round wide fixed-point numbers to narrow ones, with a random word for each.

    Parameters
    ----------
    increment : bool
        Add the rounding decision to the floor. If False, return both, and ``o`` must wrap.
    x, a, o, rounding, saturate, random
        As for all operations, see `halfulp.golden`.

    Returns
    -------
    Tensor of int64, or Carried
        Codes in ``o``; without ``increment`` the floors and the increments of the codes.
    """
    spec = SruSpec.of(a=a, o=o, rounding=rounding, saturate=saturate, increment=increment)
    a, narrow = spec.a, spec.o
    result = convert(x, a=a, o=narrow, rounding=spec.rounding, saturate=saturate, random=random)
    if increment:
        return result
    floor = convert(x, a=a, o=narrow, rounding=RD)
    return Carried(floor=floor, up=(result - floor) & mask(narrow.width))
