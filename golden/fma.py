"""Fused multiply-add."""

from torch import Tensor

from halfulp.hdl.formats import EXACT, RN, Format, Rounding, parse
from halfulp.hdl.specs import ValueRange

from .check import check_call, codes_of, random_of
from .codec import round_and_pack, unpack
from .raw import add, align, multiply
from .round import looked_at


def fma(
    x: Tensor,
    y: Tensor,
    z: Tensor,
    /,
    *,
    a: Format | str,
    b: Format | str,
    c: Format | str,
    o: Format | str,
    rounding: Rounding | str = RN,
    saturate: bool = False,
    random: Tensor | None = None,
) -> Tensor:
    """x * y + z with a single rounding.

    Parameters
    ----------
    x, y, z : Tensor
        Codes in the formats ``a``, ``b`` and ``c``, of shapes that broadcast.
    a, b, c, o : Format or str
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
        ``rounding`` is ``exact`` and ``o`` cannot hold every result.
    """
    check_call(saturate, x=x, y=y, z=z, random=random)
    a, b, c, o = parse(a), parse(b), parse(c), parse(o)
    rounding = Rounding.parse(rounding)
    results = ValueRange.of(a) * ValueRange.of(b) + ValueRange.of(c)
    if rounding == EXACT:
        results.check_fits(o, f"{a} * {b} + {c}")
    random = random_of("random", random, rounding)
    product = multiply(unpack(codes_of("x", x, a.width), a), unpack(codes_of("y", y, b.width), b))
    addend = unpack(codes_of("z", z, c.width), c)
    total = add(align(product, addend, looked_at(o, rounding, results)), rounding)
    return round_and_pack(total, o, rounding, saturate, random)
