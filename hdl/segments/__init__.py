"""Functions as line segments: plain, immutable data that hardware, golden model and oracle share."""

from .table import MAX_POWER, REDUCTIONS, SYMMETRIES, Piece, PowerSum, Segments, Special, last_place

__all__ = ["MAX_POWER", "REDUCTIONS", "SYMMETRIES", "Piece", "PowerSum", "Segments", "Special", "last_place"]
