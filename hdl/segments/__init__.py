"""Functions as line segments: plain, immutable data that hardware, golden model and oracle share."""

from .table import REDUCTIONS, SYMMETRIES, Piece, PowerSum, Segments, Special

__all__ = ["REDUCTIONS", "SYMMETRIES", "Piece", "PowerSum", "Segments", "Special"]
