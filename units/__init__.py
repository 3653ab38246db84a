"""Arithmetic units: Amaranth components with ports shaped by number formats."""

from halfulp.hdl.specs import Build as Build

from .accumulate import Accumulate as Accumulate
from .activation import PiecewiseLinear as PiecewiseLinear
from .add import Add as Add
from .base import Unit as Unit
from .block import BlockDot as BlockDot
from .block import BlockMac as BlockMac
from .classify import Classify as Classify
from .compare import Compare as Compare
from .convert import Convert as Convert
from .div import Div as Div
from .dot import Dot as Dot
from .fma import Fma as Fma
from .join import Join as Join
from .lerp import Lerp as Lerp
from .logb import LogB as LogB
from .mac import Mac as Mac
from .mul import Mul as Mul
from .partmac import PartMac as PartMac
from .quantize import BlockDequantize as BlockDequantize
from .quantize import BlockQuantize as BlockQuantize
from .quire import Quire as Quire
from .reciprocal import Reciprocal as Reciprocal
from .remainder import Remainder as Remainder
from .rint import Round as Round
from .rsqrt import Rsqrt as Rsqrt
from .scaleb import ScaleB as ScaleB
from .sparsedot import SparseDot as SparseDot
from .sparsemac import SparseMac as SparseMac
from .split import Split as Split
from .sqrt import Sqrt as Sqrt
from .stochastic import StochasticRounder as StochasticRounder
from .stream import Streamed as Streamed
