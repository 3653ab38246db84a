"""Arithmetic units: Amaranth components with ports shaped by number formats."""

from halfulp.hdl.specs import Build

from .accumulate import Accumulate
from .activation import PiecewiseLinear
from .add import Add
from .base import Unit
from .block import BlockDot, BlockMac
from .compare import Compare
from .convert import Convert
from .dot import Dot
from .fma import Fma
from .join import Join
from .mac import Mac
from .mul import Mul
from .partmac import PartMac
from .quantize import BlockDequantize, BlockQuantize
from .quire import Quire
from .sparsedot import SparseDot
from .split import Split
from .stochastic import StochasticRounder
from .stream import Streamed

__all__ = [
    "Accumulate",
    "Add",
    "BlockDequantize",
    "BlockDot",
    "BlockMac",
    "BlockQuantize",
    "Build",
    "Compare",
    "Convert",
    "Dot",
    "Fma",
    "Join",
    "Mac",
]
__all__ += ["Mul", "PartMac", "PiecewiseLinear", "Quire", "SparseDot", "Split", "StochasticRounder", "Streamed"]
__all__ += ["Unit"]
