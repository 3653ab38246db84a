"""Descriptions of computations as immutable data.

Every module of this folder is imported, so that its units are in `UNITS`.
"""

import importlib
import pkgutil

from .accumulate import AccumulateSpec as AccumulateSpec
from .arithmetic import AddSpec as AddSpec
from .arithmetic import FmaSpec as FmaSpec
from .arithmetic import LerpSpec as LerpSpec
from .arithmetic import MulSpec as MulSpec
from .block import BlockDequantizeSpec as BlockDequantizeSpec
from .block import BlockDotSpec as BlockDotSpec
from .block import BlockMacSpec as BlockMacSpec
from .block import BlockQuantizeSpec as BlockQuantizeSpec
from .build import Build as Build
from .cell import parse_cell as parse_cell
from .compare import CompareSpec as CompareSpec
from .composed import ComposedSpec as ComposedSpec
from .composed import LayernormSpec as LayernormSpec
from .composed import RmsnormSpec as RmsnormSpec
from .composed import SoftmaxSpec as SoftmaxSpec
from .compound import JoinSpec as JoinSpec
from .compound import SplitSpec as SplitSpec
from .convert import ConvertSpec as ConvertSpec
from .division import DivSpec as DivSpec
from .division import ReciprocalSpec as ReciprocalSpec
from .division import RsqrtSpec as RsqrtSpec
from .division import SqrtSpec as SqrtSpec
from .dot import DotSpec as DotSpec
from .dotmac import DotMacSpec as DotMacSpec
from .function import FunctionSpec as FunctionSpec
from .grammar import TextError as TextError
from .mac import MacSpec as MacSpec
from .mma import MmaSpec as MmaSpec
from .partmac import PartMacSpec as PartMacSpec
from .pwl import PwlSpec as PwlSpec
from .quire import QuireSpec as QuireSpec
from .ranges import ValueRange as ValueRange
from .register import QuireRegister as QuireRegister
from .requantize import RequantizeSpec as RequantizeSpec
from .running_sum import RunningSumSpec as RunningSumSpec
from .sparsedot import SparseDotSpec as SparseDotSpec
from .sparsemac import SparseMacSpec as SparseMacSpec
from .sru import SruSpec as SruSpec
from .tiling import Tiling as Tiling
from .unit import COMPOSED as COMPOSED
from .unit import UNITS as UNITS
from .unit import UnitSpec as UnitSpec

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
