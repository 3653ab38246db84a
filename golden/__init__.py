"""The golden model: every unit's operation on torch tensors of codes, and on single codes in ``exact``.

Operations take tensors of any integer dtype, any shape and any device, and give int64. A 64-bit code is the int64 of
the same bits.
"""

from . import nn, random
from .accumulate import accumulate, accumulate_sequence
from .activation import pwl
from .add import add
from .compare import compare
from .convert import convert
from .dot import dot
from .exact import Carried, Comparison
from .fma import fma
from .gemm import gemm
from .mac import mac, mac_sequence
from .mul import mul
from .quire import quire, quire_sequence
from .stochastic import sru
from .values import decode, encode

__all__ = [
    "Carried",
    "Comparison",
    "accumulate",
    "accumulate_sequence",
    "add",
    "compare",
    "convert",
    "decode",
    "dot",
    "encode",
    "fma",
    "gemm",
    "mac",
    "mac_sequence",
    "mul",
    "nn",
    "pwl",
    "quire",
    "quire_sequence",
    "random",
    "sru",
]
