"""Registry of the families of operands: formats of numbers, and blocks."""

from .base import Family
from .block import Block
from .catalogue import FORMATS
from .codebook import Codebook
from .compound import Compound
from .fixed import Fixed
from .floating import Float
from .posit import Posit
from .scale import Scale
from .takum import Takum

__all__ = ["FAMILIES", "Block", "Codebook", "Compound", "Fixed", "Float", "Posit", "Scale", "Takum"]

FAMILIES: tuple[type[Family], ...] = (*FORMATS, Block)
"""All families, in display order."""
