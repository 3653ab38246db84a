"""Emulation of whole programs: every operation of torch code in the arithmetic of a policy."""

from .emulate import emulate
from .report import Report, Row

__all__ = ["Report", "Row", "emulate"]
