"""Cost model of arrays, from the costs of small ones.

The cells of an array are a constant plus a part for each element, each column and each multiply-accumulate. Four small
arrays determine these parts, and with them the cells of any other array to a few percent.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halfulp.boards.board import KINDS, Resources
from halfulp.boards.targets import TARGETS, Target
from halfulp.fpga.synth.measure import Module, measure_modules
from halfulp.tools.digests import version
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.progress import Progress, silent
from halfulp.tools.records import read_records

SMALL = ((1, 1), (1, 2), (2, 1), (2, 2))
"""Sizes of the small arrays: elements, and multiply-accumulates of each."""

MEMORY_LUTS = 8
"""Most lookup tables of a memory that is made of them; Yosys counts memories."""

RECORDS = Path(__file__).resolve().parents[1] / "results" / "tiles.csv"
"""Costs of small arrays, which `halfulp.fpga.report.records` writes."""


@dataclass(frozen=True)
class CostModel:
    """Resources of arrays of any size, extrapolated from small ones.

    Parameters
    ----------
    small : dict of (int, int) to Resources
        Resources of the sizes `SMALL`.
    source : str
        Origin of these, in the notes of a table.
    """

    small: dict[tuple[int, int], Resources]
    source: str

    def cells(self, n: int, m: int) -> Resources:
        """Resources of n elements of m multiply-accumulates."""

        def extrapolate(kind: str) -> int:
            one, wide, tall, four = (getattr(self.small[size], kind) for size in SMALL)
            value = one + (wide - one) * (m - 1) + (tall - one) * (n - 1)
            return max(value + (four - wide - tall + one) * (n - 1) * (m - 1), 0)

        return Resources(**{kind: extrapolate(kind) for kind in KINDS})


def recorded(names: Sequence[str], target: Target) -> list[Resources] | None:
    """Recorded resources of components on devices of that kind, by name; None if one is missing."""
    if not RECORDS.is_file():
        return None
    counts = dict.fromkeys([kind.upper() for kind in KINDS] + ["memory"], int)
    found = read_records(RECORDS, {"unit": str, "target": TARGETS.__getitem__, **counts})
    rows = {row["unit"]: row for row in found if row["target"].family is target.family}
    if not set(names) <= set(rows):
        return None
    return [_resources({kind: rows[name][kind.upper()] for kind in KINDS}, rows[name]["memory"]) for name in names]


def _resources(counts: dict[str, int], memory: int) -> Resources:
    """Resources with memories counted as lookup tables."""
    return Resources(**counts | {"lut": counts["lut"] + MEMORY_LUTS * memory})


def cost_model(
    build: Callable[[int, int], Any], target: Target, progress: Progress = silent, pool: JobPool = LOCAL
) -> CostModel:
    """Cost model from the records of small arrays, or from their synthesis, which is cached.

    ``build`` makes the component of a size.
    """
    components = [build(*size) for size in SMALL]
    if (known := recorded([component.name for component in components], target)) is not None:
        return CostModel(dict(zip(SMALL, known, strict=True)), "the records of this version")
    progress.total("synthesis", len(SMALL))
    costs = measure_modules(map(Module.of, components), target, progress, pool)
    found = [_resources({kind: getattr(cost, kind) for kind in KINDS}, cost.memory) for cost in costs]
    return CostModel(dict(zip(SMALL, found, strict=True)), f"Yosys {version('pyosys')}")
