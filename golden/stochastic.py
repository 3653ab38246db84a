"""Stochastic rounding of fixed-point numbers."""

from torch import Tensor

from halfulp.hdl.formats import RD, Fixed, Format, Rounding, parse

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
    saturate: bool = False,
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
    narrow = parse(o)
    if not isinstance(narrow, Fixed):
        raise TypeError(f"o of a stochastic rounder must be fixed point, such as int8, not {narrow}")
    if not increment:
        narrow.check_wraps(saturate)
    result = convert(x, a=a, o=narrow, rounding=rounding, saturate=saturate, random=random)
    if increment:
        return result
    floor = convert(x, a=a, o=narrow, rounding=RD)
    return Carried(floor=floor, up=(result - floor) & mask(narrow.width))
