"""Functions of one real number, rounded to odd in binary64.

In formats of up to 16 bits they are tables of correctly rounded results, made by mpmath and cached on disk. In wider
formats they are torch's functions in binary64, with errors of at most a few ulp of binary64.
"""

import functools
import math
import sys
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from halfulp.golden.values import decode, encode
from halfulp.hdl.formats import Format
from halfulp.tools.cache import cached

TABLE_WIDTH = 16
"""Width in bits of the widest formats with tables."""

PRECISIONS = (80, 640)
"""Precisions in bits at which a result is approximated, until its first 53 bits are certain. The second one suffices
for arguments as small as 2^-133, at which a function differs from its limit by a factor of at least 1 + 2^-270."""

SMALLEST = 5e-324
"""Smallest number of binary64."""

UNCERTAIN, ERROR = 7, 8
"""Last bits of torch's results that may be wrong, and their largest error in ulp. Rounding to a format of up to 16
bits looks at fewer than 46 bits of a result."""

IMPRECISE = frozenset({"gelu", "gelu_tanh", "softplus"})
"""Functions that torch computes with larger errors."""

BELOW_LIMIT = frozenset({"tanh", "sigmoid", "erf", "erfc", "expm1", "gelu", "gelu_tanh", "silu"})
"""Functions that approach a limit or a line from below in magnitude, closer than any precision shows."""

ABOVE_LIMIT = frozenset({"softplus"})
"""Functions that approach a line from above in magnitude."""


def _gelu(x: Any) -> Any:
    return x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def _gelu_tanh(x: Any) -> Any:
    # 1 + tanh(u) = 2 / (1 + exp(-2u)), which does not cancel.
    inner = mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3)
    return x / (1 + mpmath.exp(-2 * inner))


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x))


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Tensor], Tensor]]] = {
    "exp": (mpmath.exp, torch.exp),
    "exp2": (lambda x: mpmath.power(2, x), torch.exp2),
    "expm1": (mpmath.expm1, torch.expm1),
    "log": (mpmath.log, torch.log),
    "log2": (lambda x: mpmath.log(x, 2), torch.log2),
    "log10": (mpmath.log10, torch.log10),
    "log1p": (mpmath.log1p, torch.log1p),
    "tanh": (mpmath.tanh, torch.tanh),
    "sigmoid": (_sigmoid, torch.sigmoid),
    "erf": (mpmath.erf, torch.erf),
    "erfc": (mpmath.erfc, torch.erfc),
    "gelu": (_gelu, lambda x: x * torch.erfc(-x * 0.5**0.5) / 2),
    "gelu_tanh": (_gelu_tanh, lambda x: F.gelu(x, approximate="tanh")),
    "silu": (lambda x: x * _sigmoid(x), F.silu),
    "softplus": (lambda x: mpmath.log1p(mpmath.exp(x)), F.softplus),
    "rsqrt": (lambda x: 1 / mpmath.sqrt(x), torch.rsqrt),
    "sin": (mpmath.sin, torch.sin),
    "cos": (mpmath.cos, torch.cos),
    "atan": (mpmath.atan, torch.atan),
}
"""Functions for mpmath, which makes the tables, and for torch."""


def function(name: str, x: Tensor, fmt: Format) -> Tensor:
    """Compute a function of numbers of a format, given and returned as float64."""
    if fmt.width > TABLE_WIDTH:
        return FUNCTIONS[name][1](x)
    return table(name, fmt, x.device).index_select(0, encode(x, fmt).reshape(-1)).reshape(x.shape)


@functools.lru_cache(maxsize=64)
def table(name: str, fmt: Format, device: torch.device) -> Tensor:
    """Load the results of a function for all codes of a format, rounded to odd."""

    def make(folder: Any) -> None:
        values = decode(torch.arange(1 << fmt.width), fmt)
        np.save(folder / "table.npy", _results(name, values))

    path = cached("function", (name, str(fmt), PRECISIONS), make, name=f"{name}_{fmt}")
    return torch.from_numpy(np.load(path / "table.npy")).to(device)


def _results(name: str, values: Tensor) -> "np.ndarray[Any, Any]":
    compute, in_torch = FUNCTIONS[name]
    results = in_torch(values)
    word = results.view(torch.int64)
    # torch's results are exact at 0, at poles, at infinities and outside the domain.
    pole = ((values == 0) & (name != "softplus")) | ((values == -1) & (name == "log1p"))
    inexact = values.isfinite() & ~results.isnan() & ~pole
    usual = inexact & results.isfinite() & (results.abs() > 2.0**-1000)
    # Far from zero a result is as close to its limit as binary64 shows.
    limit = usual & (values.abs() > 1024) & (name in BELOW_LIMIT | ABOVE_LIMIT)
    last = word & ((1 << UNCERTAIN) - 1)
    certain = usual & ~limit & (last > ERROR) & (last < (1 << UNCERTAIN) - ERROR) & (name not in IMPRECISE)
    odd = torch.where(certain, word | 1, torch.where(limit, (word - int(name in BELOW_LIMIT)) | 1, word))
    results = odd.view(torch.float64)
    for place in (inexact & ~limit & ~certain).nonzero().reshape(-1).tolist():
        results[place] = _rounded_to_odd(name, compute, float(values[place]))
    return results.numpy()


def _rounded_to_odd(name: str, compute: Callable[[Any], Any], x: float) -> float:
    """Return a result truncated to binary64, with its last bit set if it is inexact."""
    for precision in PRECISIONS[abs(x) < 2.0**-24 :]:
        with mpmath.workprec(precision):
            approximation = compute(mpmath.mpf(x))
        sign, (magnitude, exponent) = mpmath.sign(approximation), approximation.man_exp
        if magnitude == 0:
            return 0.0
        top = exponent + magnitude.bit_length()
        if abs(top) > 1100:
            return math.copysign(sys.float_info.max if top > 0 else SMALLEST, sign)
        # Last place of binary64, and the bits of the approximation below it.
        last = max(top - 53, -1074)
        dropped = last - exponent
        error = 1 << max(magnitude.bit_length() - precision + 8, 0)
        if dropped > 0 and error <= magnitude & ((1 << dropped) - 1) <= (1 << dropped) - error:
            truncated = magnitude >> dropped | 1
            break
    else:
        # As close to a number of binary64 as any precision shows.
        nearest = magnitude << -dropped if dropped <= 0 else (magnitude + (1 << dropped >> 1)) >> dropped
        truncated = (nearest - 1) | 1 if name in BELOW_LIMIT else nearest | 1 if name in ABOVE_LIMIT else nearest
    try:
        rounded = math.ldexp(truncated, last)
    except OverflowError:
        rounded = math.inf
    return math.copysign(min(rounded, sys.float_info.max), sign)
