"""Errors of products in binary64, and rounding to odd, which avoids a second rounding to nearest.

A number that is rounded to odd in binary64 rounds to every format with at least two bits less as the exact number does
(Boldo and Melquiond, IEEE TC 57(4), 2008).
"""

import torch
from torch import Tensor

SPLIT = float(2**27 + 1)
"""Factor that splits a significand of 53 bits into halves (Veltkamp; Dekker, Numerische Mathematik 18, 1971)."""


def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """Split numbers into sums of two numbers with at most 26 bits, whose products are exact."""
    scaled = SPLIT * x
    high = scaled - (scaled - x)
    return high, x - high


def product_error(x: Tensor, y: Tensor, product: Tensor) -> Tensor:
    """Return the exact product of two numbers minus their rounded one."""
    (x_high, x_low), (y_high, y_low) = halves(x), halves(y)
    return ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low


def sum_and_error(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rounded sum of two numbers, and their exact sum minus it (Knuth's TwoSum)."""
    total = x + y
    of_y = total - x
    return total, (x - (total - of_y)) + (y - of_y)


def to_odd(result: Tensor, error: Tensor) -> Tensor:
    """Round to odd a result that is rounded to nearest; ``error`` has the sign of exact minus rounded result."""
    word = result.view(torch.int64)
    inexact = (error != 0) & result.isfinite() & ~error.isnan()
    # A result that was rounded away from zero has an error of the other sign; one less is its truncation.
    above = inexact & ((result < 0) != (error < 0))
    return torch.where(inexact, (word - above.to(torch.int64)) | 1, word).view(torch.float64)
