"""Descriptions of computations as immutable data.

Every module of this folder is imported, so that its units are in `UNITS`.
"""

import importlib
import pkgutil

from .arithmetic import AddSpec, CompareSpec, ConvertSpec, FmaSpec, MulSpec
from .block import BlockDequantizeSpec, BlockDotSpec, BlockMacSpec, BlockQuantizeSpec
from .build import Build
from .cell import parse_cell
from .compound import JoinSpec, SplitSpec
from .division import DivSpec, ReciprocalSpec, RsqrtSpec, SqrtSpec
from .dot import DotSpec
from .grammar import TextError
from .mac import AccumulatorSpec, MacSpec, PartMacSpec, QuireSpec, SumSpec
from .piecewise import PwlSpec
from .quire import QuireRegister
from .ranges import ValueRange
from .rounder import RounderSpec
from .sparsedot import SparseDotSpec
from .sparsemac import SparseMacSpec
from .tiling import Tiling
from .unit import UNITS, UnitSpec

__all__ = [
    "UNITS",
    "AccumulatorSpec",
    "AddSpec",
    "BlockDequantizeSpec",
    "BlockDotSpec",
    "BlockMacSpec",
    "BlockQuantizeSpec",
    "Build",
    "CompareSpec",
    "ConvertSpec",
    "DivSpec",
    "DotSpec",
    "FmaSpec",
    "JoinSpec",
    "MacSpec",
    "MulSpec",
    "PartMacSpec",
    "PwlSpec",
    "QuireRegister",
    "QuireSpec",
    "ReciprocalSpec",
    "RounderSpec",
    "RsqrtSpec",
    "SparseDotSpec",
    "SparseMacSpec",
    "SplitSpec",
    "SqrtSpec",
    "SumSpec",
    "TextError",
    "Tiling",
    "UnitSpec",
    "ValueRange",
    "parse_cell",
]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
