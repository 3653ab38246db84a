"""Kinds of operands by class of description."""

from halfulp.hdl.specs import BlockMacSpec, MacSpec, SparseMacSpec, UnitSpec

from .blocks import Blocks
from .numbers import Numbers
from .sparse import Sparse
from .steps import Kind

KINDS: dict[type[UnitSpec], Kind] = {MacSpec: Numbers(), BlockMacSpec: Blocks(), SparseMacSpec: Sparse()}
"""Kind of the operands of each class of multiply-accumulates."""
