"""Between codes and real-valued tensors."""

import torch
from torch import Tensor

from halfulp.hdl.formats import FP64, RN, Format, Rounding, Span

from .check import float_format
from .convert import convert


def encode(
    values: Tensor, fmt: Format, rounding: Rounding = RN, random: Tensor | None = None, saturate: bool = False
) -> Tensor:
    """Codes of real values, rounded once.

    Parameters
    ----------
    values : Tensor
        Of any floating-point dtype that float64 holds; integers below 2^53 in magnitude too.
    fmt : Format
    rounding : Rounding
    random : Tensor, optional
        Random words of stochastic rounding.
    saturate : bool
        Overflow gives the largest finite number; inf stays infinite.

    Returns
    -------
    Tensor of int64
        Codes in ``fmt``, of the shape of ``values``.

    Raises
    ------
    TypeError
        If ``values`` is no tensor of real numbers.
    """
    if not isinstance(values, Tensor) or values.dtype.is_complex or values.dtype == torch.bool:
        raise TypeError(f"values is a tensor of real numbers, not {getattr(values, 'dtype', type(values).__name__)}")
    return convert(
        values.to(torch.float64).view(torch.int64), a=FP64, o=fmt, rounding=rounding, random=random, saturate=saturate
    )


def decode(codes: Tensor, fmt: Format) -> Tensor:
    """Real values of codes.

    Parameters
    ----------
    codes : Tensor
        Codes in ``fmt``.
    fmt : Format

    Returns
    -------
    Tensor of float64
        The numbers, exactly.

    Raises
    ------
    ValueError
        If float64 does not hold every number of the format.
    """
    fmt = float_format("fmt", fmt)
    Span.of(fmt).check_fits(FP64, f"number of {fmt}")
    return convert(codes, a=fmt, o=FP64).view(torch.float64)
