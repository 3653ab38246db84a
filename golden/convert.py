"""Conversion between formats."""

from torch import Tensor

from halfulp.hdl.formats import EXACT, RN, Format, Rounding, Span, parse

from .check import check_call, codes_of, random_of
from .codec import round_and_pack, unpack


def convert(
    x: Tensor,
    /,
    *,
    a: Format | str,
    o: Format | str,
    rounding: Rounding | str = RN,
    saturate: bool = False,
    random: Tensor | None = None,
) -> Tensor:
    """The same numbers in another format, rounded once.

    Parameters
    ----------
    x : Tensor
        Codes in the format ``a``.
    a, o : Format or str
        Formats of operand and result.
    rounding : Rounding or str
    saturate : bool
        Overflow gives the largest finite number; an infinite operand stays infinite.
    random : Tensor, optional
        Random words of stochastic rounding.

    Returns
    -------
    Tensor of int64
        Codes in ``o``.

    Raises
    ------
    TypeError, ValueError
        If tensors hold no such codes or are on several devices, random words are missing or of no use, or
        ``rounding`` is ``exact`` and ``o`` cannot hold every number of ``a``.
    """
    check_call(saturate, x=x, random=random)
    a, o = parse(a), parse(o)
    rounding = Rounding.parse(rounding)
    if rounding == EXACT:
        Span.of(a).check_fits(o, f"number of {a}")
    random = random_of("random", random, rounding)
    return round_and_pack(unpack(codes_of("x", x, a.width), a), o, rounding, saturate, random)
