"""Clocks that a device limits, and clocks that designs miss."""

from collections.abc import Iterable

from halfulp.boards.targets import Target
from halfulp.tools.errors import CheckError


def limit_notes(clocks: Iterable[float | None], target: Target) -> list[str]:
    """Return a note if measured clocks exceed that of the clock network of a device."""
    if not any(mhz is not None and mhz > target.max_mhz for mhz in clocks):
        return []
    return [
        f"Clocks above {target.max_mhz} MHz are those of logic alone: the clock network of {target.name} limits them."
    ]


def check_reached(missed: dict[str, float], clock_mhz: float, advice: str) -> None:
    """Raise CheckError if there are designs that miss a requested clock; ``missed`` has their clocks."""
    if missed:
        listed = ", ".join(f"{name} reaches {mhz:.2f} MHz" for name, mhz in missed.items())
        raise CheckError(
            f"the requested clock of {clock_mhz:g} MHz is missed after place and route: {listed}; {advice}"
        )
