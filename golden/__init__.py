"""The golden model: the operation of each unit on torch tensors of codes, and on single codes in ``exact``.

Main functions, and the modules ``nn`` (layers, policies, training) and ``random``:

- ``encode``, ``decode``, ``to_torch``: real numbers to codes of a format and back; ``quantize`` rounds real numbers,
  and ``table_of`` shows codes.
- ``gemm``: products of matrices, and ``explain`` their kernel; ``quantize_blocks`` and ``dequantize_blocks``: blocks.
- ``emulate``: a whole program in the arithmetic of a policy; ``nn.convert``: the layers of a model.
- ``register_format``, ``register_operator``: arithmetic of your own.
- ``add``, ``mul``, ``fma``, ``mac`` and others: the operations of units.

Operations take codes ``x``, ``y``, ``z`` in tensors or arrays of any type of integers, or of the type that names their
format, such as ``torch.float8_e5m2``; on any device, with shapes that broadcast. They return codes as int64; a 64-bit
code is the int64 with the same bits. They share these keywords:

a, b, c : Format or str
    Formats of the operands, in order.
o : Format or str, optional
    Format of the result; default: the one of the unit's description, usually ``a``.
rounding : Rounding or str
    Rounding of the result; default: ``rn``.
mode : Tensor, optional
    Code of the mode of each operation, if the rounding is ``port`` (`Rounding.choices`); it broadcasts with the
    operands.
saturate : Saturation, bool or str
    Overflow gives the largest finite number, and an infinite operand stays infinite; with ``satfinite`` infinities give
    the largest finite number too.
flags : bool or str
    Return `Flagged`, with codes ``o`` and exception flags ``flags``: ``after`` (or true) detects tiny results after
    rounding, ``before`` before it; operations of units with flags only.
random : Tensor, optional
    Random words of stochastic rounding; they broadcast with the operands.

They raise TypeError or ValueError if the unit's description (`halfulp.hdl.specs`) refuses a parameter, a tensor holds
values that are no codes of its format, tensors are on different devices, or random words are missing or unused.
"""

try:
    import torch  # noqa: F401  # every module of the golden model needs it
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        "the golden model needs torch; run: pip install 'halfulp[golden]'", name="torch"
    ) from _error

from . import nn as nn
from . import random as random
from .accumulate import accumulate as accumulate
from .accumulate import accumulate_sequence as accumulate_sequence
from .arithmetic import add as add
from .arithmetic import fma as fma
from .arithmetic import lerp as lerp
from .arithmetic import mul as mul
from .block import blockdequantize as blockdequantize
from .block import blockdot as blockdot
from .block import blockmac as blockmac
from .block import blockmac_sequence as blockmac_sequence
from .block import blockquantize as blockquantize
from .classify import classify as classify
from .code_table import CodeTable as CodeTable
from .code_table import table_of as table_of
from .compare import compare as compare
from .composed import layernorm as layernorm
from .composed import rmsnorm as rmsnorm
from .composed import softmax as softmax
from .compound import join as join
from .compound import split as split
from .convert import convert as convert
from .custom import register_format as register_format
from .division import div as div
from .division import reciprocal as reciprocal
from .division import rsqrt as rsqrt
from .division import sqrt as sqrt
from .dot import dot as dot
from .dotmac import dotmac as dotmac
from .dotmac import dotmac_sequence as dotmac_sequence
from .exact import Blocks as Blocks
from .exact import Carried as Carried
from .exact import Comparison as Comparison
from .exact import Flagged as Flagged
from .exact import FlaggedComparison as FlaggedComparison
from .fpu import fpu as fpu
from .function import function as function
from .gemm import gemm as gemm
from .gguf import GGUF_LAYOUTS as GGUF_LAYOUTS
from .gguf import GgufLayout as GgufLayout
from .gguf import export_gguf as export_gguf
from .gguf import import_gguf as import_gguf
from .integral import logb as logb
from .integral import rint as rint
from .mac import mac as mac
from .mac import mac_sequence as mac_sequence
from .mma import mma as mma
from .onnx import OnnxModel as OnnxModel
from .onnx import export_onnx as export_onnx
from .onnx import import_onnx as import_onnx
from .operators import register_operator as register_operator
from .partmac import partmac as partmac
from .partmac import partmac_sequence as partmac_sequence
from .products import explain as explain
from .program import emulate as emulate
from .pwl import pwl as pwl
from .quantize import BlockTensor as BlockTensor
from .quantize import dequantize_blocks as dequantize_blocks
from .quantize import quantize_blocks as quantize_blocks
from .quire import quire as quire
from .quire import quire_sequence as quire_sequence
from .remainder import remainder as remainder
from .requantize import requantize as requantize
from .scaleb import scaleb as scaleb
from .sparse import SparseTensor as SparseTensor
from .sparse import compress as compress
from .sparsedot import sparsedot as sparsedot
from .sparsemac import sparsemac as sparsemac
from .sparsemac import sparsemac_sequence as sparsemac_sequence
from .sru import sru as sru
from .storage import export_blocks as export_blocks
from .storage import import_blocks as import_blocks
from .storage import load_blocks as load_blocks
from .storage import save_blocks as save_blocks
from .tiles import quantize_tiles as quantize_tiles
from .values import decode as decode
from .values import encode as encode
from .values import quantize as quantize
from .values import to_torch as to_torch
