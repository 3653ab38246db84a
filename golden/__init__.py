"""The golden model: the operation of each unit on torch tensors of codes, and on single codes in ``exact``.

Operations take tensors of codes ``x``, ``y``, ``z`` of any integer dtype, on any device, with shapes that broadcast.
They return codes as int64; a 64-bit code is the int64 with the same bits. They share these keywords:

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
from .function import function as function
