"""Arithmetic units: Amaranth components with ports shaped by number formats."""

from .add import Add
from .base import Unit
from .compare import Compare
from .convert import Convert
from .fma import Fma
from .mac import Mac
from .mul import Mul
from .stream import Streamed

__all__ = ["Add", "Compare", "Convert", "Fma", "Mac", "Mul", "Streamed", "Unit"]
