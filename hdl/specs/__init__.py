"""Descriptions of computations: plain, immutable data."""

from .dot import DotSpec
from .mac import MacSpec, SumSpec, default_accumulator, default_sum
from .quire import Quire
from .ranges import Span
from .tiling import Tiling

__all__ = [
    "DotSpec",
    "MacSpec",
    "Quire",
    "Span",
    "SumSpec",
    "Tiling",
    "default_accumulator",
    "default_sum",
]
