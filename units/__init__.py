"""Arithmetic units: Amaranth components with ports shaped by number formats."""

from halfulp.hdl.specs import Build as Build

from .accumulate import Accumulate as Accumulate
from .arithmetic import Add as Add
from .arithmetic import Fma as Fma
from .arithmetic import Lerp as Lerp
from .arithmetic import Mul as Mul
from .axi_stream import AxiStream as AxiStream
from .base import Unit as Unit
from .block import BlockDequantize as BlockDequantize
from .block import BlockDot as BlockDot
from .block import BlockMac as BlockMac
from .block import BlockQuantize as BlockQuantize
from .classify import Classify as Classify
from .compare import Compare as Compare
from .compound import Join as Join
from .compound import Split as Split
from .convert import Convert as Convert
from .division import Div as Div
from .division import Reciprocal as Reciprocal
from .division import Rsqrt as Rsqrt
from .division import Sqrt as Sqrt
from .dot import Dot as Dot
from .dotmac import DotMac as DotMac
from .function import Function as Function
