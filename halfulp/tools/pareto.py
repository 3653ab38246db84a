"""Pareto front of points."""

from collections.abc import Sequence


def undominated(points: Sequence[Sequence[float | None]]) -> list[bool]:
    """Return True for each point that no other point dominates, by lower values in some coordinates and higher in none.

    A coordinate is not compared if one of the two points does not have it.
    """

    def beats(other: Sequence[float | None], own: Sequence[float | None]) -> bool:
        pairs = [(a, b) for a, b in zip(other, own, strict=True) if a is not None and b is not None]
        return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)

    return [not any(beats(other, point) for other in points) for point in points]
