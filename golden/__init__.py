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
saturate : bool
    Overflow gives the largest finite number; an infinite operand stays infinite.
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

from . import nn, random
from .accumulate import accumulate, accumulate_sequence
from .activation import pwl
from .add import add
from .blocks import blockdequantize, blockdot, blockmac, blockmac_sequence, blockquantize
from .compare import compare
from .convert import convert
from .div import div
from .dot import dot
from .exact import Blocks, Carried, Comparison, Flagged, FlaggedComparison
from .fma import fma
from .gemm import gemm
from .integral import logb, rint
from .join import join
from .mac import mac, mac_sequence
from .mul import mul
from .partmac import partmac, partmac_sequence
from .program import emulate
from .quantize import BlockTensor, dequantize_blocks, quantize_blocks
from .quire import quire, quire_sequence
from .reciprocal import reciprocal
from .rsqrt import rsqrt
from .sparsedot import sparsedot
from .split import split
from .sqrt import sqrt
from .stochastic import sru
from .values import decode, encode

__all__ = [
    "BlockTensor",
    "Blocks",
    "Carried",
    "Comparison",
    "Flagged",
    "FlaggedComparison",
    "accumulate",
    "accumulate_sequence",
    "add",
    "blockdequantize",
    "blockdot",
    "blockmac",
    "blockmac_sequence",
    "blockquantize",
    "compare",
    "convert",
    "decode",
    "dequantize_blocks",
    "div",
    "dot",
    "emulate",
    "encode",
    "fma",
    "gemm",
    "join",
    "logb",
    "mac",
    "mac_sequence",
    "mul",
    "nn",
    "partmac",
    "partmac_sequence",
    "pwl",
    "quantize_blocks",
    "quire",
    "quire_sequence",
    "random",
    "reciprocal",
    "rint",
    "rsqrt",
    "sparsedot",
    "split",
    "sqrt",
    "sru",
]
