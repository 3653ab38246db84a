"""Element-wise operations and functions: operands in their format, and one rounding of the exact result.

Exact results go through binary64, rounded to odd there: a truncated number whose last bit is set if it is inexact. It
rounds to every format with at least two bits less as the exact result does (Boldo and Melquiond, IEEE TC 57(4), 2008).
Operands are numbers of binary32, so that sums, products, quotients and square roots have errors that binary64 holds.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from halfulp.golden.nn.cast import Cast, check_holds
from halfulp.golden.nn.draw import mix

from .functions import FUNCTIONS, function

SPLIT = float(2**27 + 1)
"""Factor that splits a significand of 53 bits into halves (Veltkamp; Dekker, Numerische Mathematik 18, 1971)."""


def _odd(result: Tensor, error: Tensor) -> Tensor:
    """Round to odd a result that is rounded to nearest; ``error`` has the sign of exact minus rounded result."""
    word = result.view(torch.int64)
    inexact = (error != 0) & result.isfinite() & ~error.isnan()
    # A result that was rounded away from zero has an error of the other sign; one less is its truncation.
    above = inexact & ((result < 0) != (error < 0))
    return torch.where(inexact, (word - above.to(torch.int64)) | 1, word).view(torch.float64)


def _add(x: Tensor, y: Tensor) -> Tensor:
    total = x + y
    of_y = total - x
    return _odd(total, (x - (total - of_y)) + (y - of_y))


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    scaled = SPLIT * x
    high = scaled - (scaled - x)
    return high, x - high


def _div(x: Tensor, y: Tensor) -> Tensor:
    quotient = x / y
    high, low = _halves(quotient)
    remainder = (x - high * y) - low * y
    return _odd(quotient, torch.where(y < 0, -remainder, remainder))


def _sqrt(x: Tensor) -> Tensor:
    root = x.sqrt()
    high, low = _halves(root)
    return _odd(root, ((x - high * high) - 2 * high * low) - low * low)


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
