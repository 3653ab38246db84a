"""Registry of format families; the first family that recognises a text parses it."""

from .base import Format
from .codebook import Codebook
from .compound import Compound
from .custom import Custom
from .fixed import Fixed
from .floating import Float
from .posit import Posit
from .scale import Scale
from .takum import Takum

__all__ = ["FORMATS", "Codebook", "Compound", "Custom", "Fixed", "Float", "Posit", "Scale", "Takum"]

FORMATS: tuple[type[Format], ...] = (Float, Fixed, Posit, Takum, Codebook, Scale, Compound, Custom)
"""Families of formats, in display order."""
