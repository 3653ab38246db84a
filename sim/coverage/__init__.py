"""What vectors have shown of a unit: bins that are defined once for each family of formats, counted over whole batches,
and each of them hit, proved to be out of reach, or open."""

from .collect import Coverage

__all__ = ["Coverage"]
