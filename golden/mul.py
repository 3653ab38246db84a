"""Multiplication."""

from torch import Tensor

from halfulp.hdl.formats import EXACT, RN, Format, Rounding, parse
from halfulp.hdl.specs import ValueRange

from .check import check_call, codes_of, random_of
from .codec import round_and_pack, unpack
from .raw import multiply


def mul(
    x: Tensor,
    y: Tensor,
    /,
    *,
    a: Format | str,
    b: Format | str,
    o: Format | str,
    rounding: Rounding | str = RN,
    saturate: bool = False,
    random: Tensor | None = None,
) -> Tensor:
    """Product, rounded once.

    Parameters
    ----------
    x, y : Tensor
        Codes in the formats ``a`` and ``b``, of shapes that broadcast.
    a, b, o : Format or str
        Formats of operands and result.
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
        ``rounding`` is ``exact`` and ``o`` cannot hold every product.
    """
    check_call(saturate, x=x, y=y, random=random)
    a, b, o = parse(a), parse(b), parse(o)
    rounding = Rounding.parse(rounding)
    if rounding == EXACT:
        (ValueRange.of(a) * ValueRange.of(b)).check_fits(o, f"product of {a} and {b}")
    random = random_of("random", random, rounding)
    product = multiply(unpack(codes_of("x", x, a.width), a), unpack(codes_of("y", y, b.width), b))
    return round_and_pack(product, o, rounding, saturate, random)
