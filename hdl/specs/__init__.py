"""Descriptions of computations: plain, immutable data."""

from .dot import DotSpec
from .mac import MacSpec, SumSpec
from .quire import Quire
from .ranges import ValueRange
from .tiling import Tiling

__all__ = [
    "DotSpec",
    "MacSpec",
    "Quire",
    "SumSpec",
    "Tiling",
    "ValueRange",
]
