"""Conversion between formats."""

import functools

import torch
from torch import Tensor

from halfulp.hdl.formats import EXACT, RN, Format, Rounding, parse
from halfulp.hdl.specs import ValueRange

from .check import check_call, codes_of, random_of
from .codec import round_and_pack, unpack
from .kernels import elements

TABLE_WIDTH = 16
"""Formats of up to so many bits convert through a table, where there are more numbers than codes."""


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
        ValueRange.of(a).check_fits(o, f"number of {a}")
    random, x = random_of("random", random, rounding), codes_of("x", x, a.width)
    if random is None and a.width <= TABLE_WIDTH and x.numel() > 1 << a.width:
        return _table(a, o, rounding, saturate, x.device)[x]
    found = elements.convert(x, a, o, rounding, saturate, random)
    return round_and_pack(unpack(x, a), o, rounding, saturate, random) if found is None else found


@functools.lru_cache(maxsize=64)
def _table(a: Format, o: Format, rounding: Rounding, saturate: bool, device: torch.device) -> Tensor:
    """What every code of a narrow format becomes."""
    codes = torch.arange(1 << a.width, device=device)
    return round_and_pack(unpack(codes, a), o, rounding, saturate, None)
