"""Comparison, minimum and maximum."""

import torch
from torch import Tensor

from halfulp.hdl.formats import RN, Format, Rounding, Saturation
from halfulp.hdl.specs import CompareSpec
from halfulp.hdl.specs.unit import FLAGS

from .chosen import by_mode
from .codec import flags_of, operands, round_and_pack
from .exact import Comparison, FlaggedComparison
from .raw import int64, order, widen


@by_mode
def compare(  # noqa: PLR0913 - tensors, and the fields of a description by name
    x: Tensor,
    y: Tensor,
    /,
    *,
    a: Format | str,
    b: Format | str,
    o: Format | str | None = None,
    rounding: Rounding | str = RN,
    saturate: Saturation | bool | str = False,
    flags: bool | str = False,
    mode: Tensor | None = None,
    random: Tensor | None = None,
) -> Comparison | FlaggedComparison:
    """Compare x and y, and round their minimum and maximum (IEEE 754-2019, 9.6) to ``o``.

    See `halfulp.golden` for parameters and errors of all operations. Minimum and maximum share random words.

    Returns
    -------
    Comparison
        Tensors of int64: ``less``, ``equal`` and ``unordered`` are 0 or 1, ``minimum`` and ``maximum`` codes in ``o``.
    """
    spec = CompareSpec.of(a=a, b=b, o=o, rounding=rounding, saturate=saturate, flags=flags)
    (first, second), random = operands(spec, random, x=x, y=y)
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
    nan_is_ordered = spec.a.nan_is_ordered and spec.b.nan_is_ordered
    if nan_is_ordered:
        # NaR is less than every number and equals itself (Standard for Posit Arithmetic, 2022, 5.3).
        less, equal = less | (first.nan & ~second.nan), equal | (first.nan & second.nan)
    # Equal numbers of different sign are zeros; -0 is less than +0 here.
    first_is_minimum = less | (equal & first.sign)

    # Rounding is monotonic, so the minimum may be selected after it.
    first_rounded, second_rounded = (
        round_and_pack(number, spec.o, spec.rounding, spec.saturate, random) for number in (first, second)
    )
    nan = int64(spec.o.nan_code)
    comparison = Comparison(
        less=less.to(torch.int64),
        equal=equal.to(torch.int64),
        unordered=(unordered & (not nan_is_ordered)).to(torch.int64),
        minimum=torch.where(unordered, nan, torch.where(first_is_minimum, first_rounded, second_rounded)),
        maximum=torch.where(unordered, nan, torch.where(first_is_minimum, second_rounded, first_rounded)),
    )
    if not spec.flags:
        return comparison
    assert first.invalid is not None
    assert second.invalid is not None
    invalid = (first.invalid | second.invalid | (not spec.o.has_nan)).to(torch.int64) << FLAGS.index("invalid")
    raised = flags_of(spec, first, random) | flags_of(spec, second, random)
    return FlaggedComparison(*comparison, torch.where(unordered, invalid, raised))
