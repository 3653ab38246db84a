"""Element-wise operations and functions: operands in their format, and one rounding of the exact result.

Exact results go through binary64, rounded to odd there: a truncated number whose last bit is set if it is inexact.
Operands are numbers of binary32, so that sums, products, quotients and square roots have errors that binary64 holds.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from halfulp.golden.errorfree import halves, to_odd
from halfulp.golden.nn.cast import Cast, check_holds
from halfulp.golden.nn.draw import mix

from .functions import FUNCTIONS, function


def _add(x: Tensor, y: Tensor) -> Tensor:
    total = x + y
    of_y = total - x
    return to_odd(total, (x - (total - of_y)) + (y - of_y))


def _div(x: Tensor, y: Tensor) -> Tensor:
    quotient = x / y
    high, low = halves(quotient)
    remainder = (x - high * y) - low * y
    return to_odd(quotient, torch.where(y < 0, -remainder, remainder))


def _sqrt(x: Tensor) -> Tensor:
    root = x.sqrt()
    high, low = halves(root)
    return to_odd(root, ((x - high * high) - 2 * high * low) - low * low)


ARITHMETIC: dict[str, Callable[..., Tensor]] = {
    "add": _add,
    "sub": lambda x, y: _add(x, -y),
    # 48 bits are enough for every product of two numbers of binary32.
    "mul": torch.mul,
    "div": _div,
    "sqrt": _sqrt,
}
"""Operations on numbers of binary32 in binary64, whose results are rounded to odd."""


def operand(value: Any, cast: Cast, key: int) -> Tensor:
    """Round an operand, a tensor or a number, to the format of its operation, as float64."""
    given = value if isinstance(value, Tensor) else torch.tensor(float(value), dtype=torch.float64)
    return cast.real(given.to(torch.float64), key)


def compute(name: str, operands: tuple[Any, ...], cast: Cast, key: int, dtype: torch.dtype) -> Tensor:
    """Compute an element-wise operation or a function on real operands that broadcast.

    Parameters
    ----------
    name : str
        Of `ARITHMETIC` or of `functions.FUNCTIONS`, or of a function of torch.
    operands : tuple of Tensor or number
    cast : Cast
        Format of operands and result, and rounding of both.
    key : int
        Key of the random words of stochastic rounding.
    dtype : torch.dtype
        Type of the result's tensor.
    """
    assert cast.fmt is not None
    # The error terms need operands of binary32, and a narrower result type would round a second time.
    for needed in (torch.float32, dtype):
        check_holds(needed, cast.fmt)
    given = [operand(value, cast, mix(key, 1 + place)) for place, value in enumerate(operands)]
    if name in FUNCTIONS:
        exact = function(name, given[0], cast.fmt)
    else:
        # Functions of two numbers have errors of a few ulp of binary64.
        exact = ARITHMETIC[name](*given) if name in ARITHMETIC else getattr(torch, name)(*given)
    found = cast.real(exact, key).to(dtype)
    return found if found.stride() == exact.stride() else torch.empty_like(exact, dtype=dtype).copy_(found)
