"""Stochastic rounding of fixed point."""

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
    """Wide fixed-point numbers cropped to narrow ones, each up or down at random.

    Parameters
    ----------
    x : Tensor
        Codes in the format ``a``.
    a, o : Format or str
        Formats of operand and result.
    rounding : Rounding or str
        A stochastic one.
    saturate : bool
        A wrapping format saturates too.
    increment : bool
        Whether the carry of the decision is added to the floor. Without, ``o`` wraps.
    random : Tensor
        Random words.

    Returns
    -------
    Tensor of int64, or Carried of two
        Codes in ``o``; without increment floors and carries, whose sums they are.

    Raises
    ------
    TypeError, ValueError
        As `convert` does, or if ``o`` is not fixed point, or saturates without increment.
    """
    narrow = parse(o)
    if not isinstance(narrow, Fixed):
        raise TypeError(f"what is cropped at random becomes fixed point, such as int8, not {narrow}")
    if not increment:
        narrow.check_wraps(saturate)
    result = convert(x, a=a, o=narrow, rounding=rounding, saturate=saturate, random=random)
    if increment:
        return result
    floor = convert(x, a=a, o=narrow, rounding=RD)
    return Carried(floor=floor, up=(result - floor) & mask(narrow.width))
