"""Descriptions of computations as immutable data."""

from .arithmetic import AddSpec, CompareSpec, ConvertSpec, FmaSpec, MulSpec
from .build import Build
from .dot import DotSpec
from .grammar import TextError
from .mac import AccumulatorSpec, MacSpec, QuireSpec, SumSpec
from .piecewise import PwlSpec
from .quire import Quire
from .ranges import ValueRange
from .rounder import RounderSpec
from .tiling import Tiling
from .unit import UNITS, UnitSpec

__all__ = ["UNITS", "AccumulatorSpec", "AddSpec", "Build", "CompareSpec", "ConvertSpec", "DotSpec"]
__all__ += ["FmaSpec", "MacSpec", "MulSpec", "PwlSpec", "Quire", "QuireSpec", "RounderSpec"]
__all__ += ["SumSpec", "TextError", "Tiling", "UnitSpec", "ValueRange"]
