"""Addition and subtraction."""

from dataclasses import replace

import torch
from torch import Tensor

from halfulp.hdl.formats import EXACT, RN, Format, Rounding, parse
from halfulp.hdl.specs import ValueRange

from .check import check_call, codes_of, flags_of, random_of
from .codec import round_and_pack, unpack
from .raw import add as add_raw
from .raw import align
from .round import looked_at


def add(
    x: Tensor,
    y: Tensor,
    subtract: Tensor | int = 0,
    /,
    *,
    a: Format | str,
    b: Format | str,
    o: Format | str,
    rounding: Rounding | str = RN,
    saturate: bool = False,
    random: Tensor | None = None,
) -> Tensor:
    """Sum, or difference, rounded once.

    Parameters
    ----------
    x, y : Tensor
        Codes in the formats ``a`` and ``b``, of shapes that broadcast.
    subtract : Tensor, or int
        1, or true, where x - y is wanted, 0 where x + y.
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
        ``rounding`` is ``exact`` and ``o`` cannot hold every sum.
    """
    check_call(saturate, x=x, y=y, subtract=subtract, random=random)
    a, b, o = parse(a), parse(b), parse(o)
    rounding = Rounding.parse(rounding)
    sums = ValueRange.of(a).plus_or_minus(ValueRange.of(b))
    if rounding == EXACT:
        sums.check_fits(o, f"sum of {a} and {b}")
    random = random_of("random", random, rounding)
    first, second = unpack(codes_of("x", x, a.width), a), unpack(codes_of("y", y, b.width), b)
    if isinstance(subtract, int):
        subtract = torch.tensor(subtract, device=first.sign.device)
    minus = flags_of("subtract", subtract)
    second = replace(second, sign=second.sign ^ minus)
    total = add_raw(align(first, second, looked_at(o, rounding, sums)), rounding)
    return round_and_pack(total, o, rounding, saturate, random)
