"""Systolic arrays of multiply-accumulates."""

from .array import K_BITS, Array
from .chain import Chain
from .grid import Grid

__all__ = ["K_BITS", "Array", "Chain", "Grid"]
