"""Arithmetic units: Amaranth components with ports shaped by number formats."""

from halfulp.hdl.specs import Build

from .accumulate import Accumulate
from .activation import PiecewiseLinear
from .add import Add
from .base import Unit
from .block import BlockDot, BlockMac
from .compare import Compare
from .convert import Convert
from .div import Div
from .dot import Dot
from .fma import Fma
from .join import Join
from .logb import LogB
from .mac import Mac
from .mul import Mul
from .partmac import PartMac
from .quantize import BlockDequantize, BlockQuantize
from .quire import Quire
from .reciprocal import Reciprocal
from .rint import Round
from .rsqrt import Rsqrt
from .sparsedot import SparseDot
from .split import Split
from .sqrt import Sqrt
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
    "Div",
    "Dot",
    "Fma",
    "Join",
    "LogB",
    "Mac",
    "Mul",
    "PartMac",
    "PiecewiseLinear",
    "Quire",
    "Reciprocal",
    "Round",
    "Rsqrt",
    "SparseDot",
    "Split",
    "Sqrt",
    "StochasticRounder",
    "Streamed",
    "Unit",
]
