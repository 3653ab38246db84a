"""Emulation of whole programs: every operation of torch code in the arithmetic of a policy."""

from .emulate import emulate
from .report import OperationCounts, Report

__all__ = ["OperationCounts", "Report", "emulate"]
