"""Cost model of arrays, extrapolated from the costs of small ones.

The cells of an array are a constant plus a number of cells per element, per column and per multiply-accumulate. Four
small arrays determine these numbers. They predict the cells of any other array to a few percent, because they are
synthesised like large ones, each distinct module once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from halfulp.boards.board import KINDS, Resources
from halfulp.boards.targets import TARGETS, Target
from halfulp.fpga.synth.measure import Cost, Module, measure_modules
from halfulp.tools.digests import version
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.progress import Progress, silent
from halfulp.tools.records import read_records

FEW, MANY = 2, 8
"""Numbers of elements, and of multiply-accumulates per element, of the small arrays.

Yosys' results for arrays of similar sizes differ by about two percent. The wide gap divides this error by 36 in the
cells per multiply-accumulate. With at least two of each, a module that a large array instantiates many times is a
module of its own in the small ones too.
"""

SMALL = ((FEW, FEW), (FEW, MANY), (MANY, FEW), (MANY, MANY))
"""Sizes of the small arrays: number of elements, and multiply-accumulates per element."""

MEMORY_LUTS = 8
"""Upper bound of the lookup tables of a distributed memory; Yosys counts memories only."""

RECORDS = Path(__file__).resolve().parents[1] / "results" / "tiles.csv"
"""Recorded costs of arrays and kernels, written by `halfulp cost`."""


@dataclass(frozen=True)
class CostModel:
    """Resources of arrays of any size, extrapolated from small ones.

    Parameters
    ----------
    small : dict of (int, int) to Resources
        Resources of arrays of the sizes `SMALL`.
    source : str
        Origin of these resources, for the notes of a table.
    """

    small: dict[tuple[int, int], Resources]
    source: str

    def cells(self, n: int, m: int) -> Resources:
        """Estimate the resources of n elements with m multiply-accumulates each."""

        def extrapolate(kind: str) -> int:
            small, wide, tall, large = (getattr(self.small[size], kind) for size in SMALL)
            rows, columns = (Fraction(count - FEW, MANY - FEW) for count in (n, m))
            value = small + (wide - small) * columns + (tall - small) * rows
            return max(round(value + (large - wide - tall + small) * rows * columns), 0)

        return Resources(**{kind: extrapolate(kind) for kind in KINDS})


def recorded(names: Sequence[str], target: Target) -> list[Resources] | None:
    """Return the recorded resources of components on a device family; None if one is not recorded."""
    if not RECORDS.is_file():
        return None
    counts = dict.fromkeys([kind.upper() for kind in KINDS] + ["memory"], int)
    records = read_records(RECORDS, {"unit": str, "target": TARGETS.__getitem__, **counts})
    rows = {row["unit"]: row for row in records if row["target"].family is target.family}
    if not set(names) <= set(rows):
        return None
    return [_resources({kind: rows[name][kind.upper()] for kind in KINDS}, rows[name]["memory"]) for name in names]


def resources(cost: Cost) -> Resources:
    """Return the resources of a synthesised component, with memories counted as lookup tables."""
    return _resources({kind: getattr(cost, kind) for kind in KINDS}, cost.memory)


def _resources(counts: dict[str, int], memory: int) -> Resources:
    """Convert counts to resources, with memories counted as lookup tables."""
    return Resources(**counts | {"lut": counts["lut"] + MEMORY_LUTS * memory})


def recorded_model(components: Sequence[Any], target: Target) -> CostModel | None:
    """Return the cost model of the small arrays in the order of `SMALL` from records; None if one is not recorded."""
    known = recorded([component.name for component in components], target)
    return None if known is None else CostModel(dict(zip(SMALL, known, strict=True)), "the records of this version")


def cost_model(
    build: Callable[[int, int], Any], target: Target, progress: Progress = silent, pool: JobPool = LOCAL
) -> CostModel:
    """Return the cost model of arrays, from recorded costs or from cached synthesis of small arrays.

    ``build`` returns the component of a size.
    """
    components = [build(*size) for size in SMALL]
    if (known := recorded_model(components, target)) is not None:
        return known
    progress.total("synthesis", len(SMALL))
    costs = measure_modules(map(Module.of_array, components), target, progress, pool)
    return CostModel(dict(zip(SMALL, map(resources, costs), strict=True)), f"Yosys {version('pyosys')}")
