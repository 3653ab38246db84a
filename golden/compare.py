"""Comparison, minimum and maximum."""

import torch
from torch import Tensor

from halfulp.hdl.formats import EXACT, RN, Format, Rounding, parse
from halfulp.hdl.specs import ValueRange

from .check import check_call, codes_of, random_of
from .codec import round_and_pack, unpack
from .exact import Comparison
from .raw import int64, order, widen


def compare(
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
) -> Comparison:
    """Order of x and y, and their minimum and maximum (IEEE 754-2019, 9.6), rounded to ``o``.

    Parameters
    ----------
    x, y : Tensor
        Codes in the formats ``a`` and ``b``, of shapes that broadcast.
    a, b, o : Format or str
        Formats of operands, and of minimum and maximum.
    rounding : Rounding or str
    saturate : bool
        Overflow gives the largest finite number; an infinite operand stays infinite.
    random : Tensor, optional
        Random words of stochastic rounding, for minimum and maximum alike.

    Returns
    -------
    Comparison
        Tensors of int64: ``less``, ``equal`` and ``unordered`` are 0 or 1, ``minimum`` and ``maximum`` codes in ``o``.

    Raises
    ------
    TypeError, ValueError
        If tensors hold no such codes or are on several devices, random words are missing or of no use, or
        ``rounding`` is ``exact`` and ``o`` cannot hold every operand.
    """
    check_call(saturate, x=x, y=y, random=random)
    a, b, o = parse(a), parse(b), parse(o)
    rounding = Rounding.parse(rounding)
    if rounding == EXACT:
        (ValueRange.of(a) | ValueRange.of(b)).check_fits(o, f"number of {a} and {b}")
    random = random_of("random", random, rounding)
    first, second = unpack(codes_of("x", x, a.width), a), unpack(codes_of("y", y, b.width), b)
    width = max(first.significand.width, second.significand.width)
    first, second = widen(first, width), widen(second, width)

    unordered = first.nan | second.nan
    both_zero = first.zero & second.zero
    finite = ~first.inf & ~second.inf
    same_magnitude = (
        both_zero
        | (first.inf & second.inf)
        | (finite & (first.exponent == second.exponent) & first.significand.equals(second.significand))
    )
    magnitude_less = ~first.inf & (second.inf | order(first, second))
    magnitude_order = torch.where(first.sign, ~magnitude_less & ~same_magnitude, magnitude_less)
    less = torch.where(first.sign == second.sign, magnitude_order, first.sign) & ~both_zero & ~unordered
    equal = same_magnitude & ((first.sign == second.sign) | both_zero) & ~unordered
    nan_is_ordered = a.nan_is_ordered and b.nan_is_ordered
    if nan_is_ordered:
        # NaR is less than every number and equals itself (Standard for Posit Arithmetic, 2022, 5.3).
        less, equal = less | (first.nan & ~second.nan), equal | (first.nan & second.nan)
    # Of two equal numbers only zeros differ in sign, and then the negative one is the lesser.
    first_is_minimum = less | (equal & first.sign)

    # Rounding keeps the order, so it may come before the choice.
    first_rounded = round_and_pack(first, o, rounding, saturate, random)
    second_rounded = round_and_pack(second, o, rounding, saturate, random)
    either_nan, nan = first.nan | second.nan, int64(o.nan_code)
    return Comparison(
        less=less.to(torch.int64),
        equal=equal.to(torch.int64),
        unordered=(unordered & (not nan_is_ordered)).to(torch.int64),
        minimum=torch.where(either_nan, nan, torch.where(first_is_minimum, first_rounded, second_rounded)),
        maximum=torch.where(either_nan, nan, torch.where(first_is_minimum, second_rounded, first_rounded)),
    )
