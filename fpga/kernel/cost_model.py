"""Cost of an array, from the costs of small ones.

An array is so many multiply-accumulates, so many elements, so many columns and a rest, and so are its cells: four small
arrays tell how many of each, and with them those of any other, to a few percent.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halfulp.boards.board import KINDS
from halfulp.boards.targets import TARGETS, Target
from halfulp.fpga.synth.measure import Cost, Module, measure_modules
from halfulp.sim.build import verilog
from halfulp.tools.digests import version
from halfulp.tools.jobs import JobPool
from halfulp.tools.progress import Progress, silent
from halfulp.tools.records import read_records

SMALL = ((1, 1), (1, 2), (2, 1), (2, 2))
"""Elements and multiply-accumulates of each, of the arrays that are synthesised."""

MEMORY_LUTS = 8
"""Lookup tables that a memory made of them takes, at most; Yosys counts memories."""


@dataclass(frozen=True)
class Cells:
    """Resources of a device that an array takes.

    Attributes
    ----------
    lut : int
        Lookup tables, with those that are memories.
    ff, dsp, bram, uram : int
    """

    lut: int
    ff: int
    dsp: int
    bram: int
    uram: int

    @classmethod
    def of(cls, cost: Cost) -> "Cells":
        """As Yosys has them."""
        own = {kind: getattr(cost, kind) for kind in KINDS}
        return cls(**own | {"lut": cost.lut + MEMORY_LUTS * cost.memory})

    def share(self, target: Target, count: int = 1) -> dict[str, float]:
        """Share of each resource of a device that so many of them take, in percent."""
        shares = {}
        for kind in KINDS:
            total, own = getattr(target, kind), count * getattr(self, kind)
            shares[kind.upper()] = 100 * own / total if total else (float("inf") if own else 0.0)
        return shares


@dataclass(frozen=True)
class CostModel:
    """Cells of arrays of any size, by those of small ones.

    Parameters
    ----------
    small : dict of (int, int) to Cells
        Of the sizes `SMALL`.
    source : str
        Who counted them.
    """

    small: dict[tuple[int, int], Cells]
    source: str

    def cells(self, n: int, m: int) -> Cells:
        """Of n elements of m multiply-accumulates."""

        def of(kind: str) -> int:
            one, wide, tall, four = (getattr(self.small[size], kind) for size in SMALL)
            value = one + (wide - one) * (m - 1) + (tall - one) * (n - 1)
            return max(value + (four - wide - tall + one) * (n - 1) * (m - 1), 0)

        return Cells(**{kind: of(kind) for kind in KINDS})


RECORDS = Path(__file__).resolve().parents[1] / "results" / "tiles.csv"
"""Costs of small arrays, as `halfulp.fpga.report.records` leaves them."""


def recorded(names: Sequence[str], target: Target) -> list[Cells] | None:
    """Cells of components of these names on devices of that kind, by the records; None where one is not there."""
    if not RECORDS.is_file():
        return None
    counts = dict.fromkeys([kind.upper() for kind in KINDS] + ["memory"], int)
    found = read_records(RECORDS, {"unit": str, "target": TARGETS.__getitem__, **counts})
    rows = {row["unit"]: row for row in found if row["target"].family is target.family}
    if not set(names) <= set(rows):
        return None

    def cells(row: Mapping[str, Any]) -> Cells:
        own = {kind: row[kind.upper()] for kind in KINDS}
        return Cells(**own | {"lut": own["lut"] + MEMORY_LUTS * row["memory"]})

    return [cells(rows[name]) for name in names]


def cost_model(
    build: Callable[[int, int], Any],
    target: Target,
    progress: Progress = silent,
    pool: JobPool | None = None,
    *,
    dsp: bool = False,
) -> CostModel:
    """Cost model from small arrays, of the records or else synthesised; earlier results are kept.

    Parameters
    ----------
    build : callable
        Gives the component of a size.
    target : Target
    progress : Progress
        Advances with each array that is done.
    pool : JobPool, optional
        Runs the synthesis; default: this machine.
    dsp : bool
        Multipliers may become DSP blocks.

    Raises
    ------
    ToolError
        If Yosys or the machine fails.
    """
    if (known := recorded([build(*size).name for size in SMALL], target)) is not None and not dsp:
        return CostModel(dict(zip(SMALL, known, strict=True)), "the records of this version")
    found = measured(build, SMALL, target, progress, pool, dsp=dsp)
    return CostModel(dict(zip(SMALL, found, strict=True)), f"Yosys {version('pyosys')}")


def measured(
    build: Callable[[int, int], Any],
    sizes: Sequence[tuple[int, int]],
    target: Target,
    progress: Progress = silent,
    pool: JobPool | None = None,
    *,
    dsp: bool = False,
) -> list[Cells]:
    """Cells of arrays of some sizes, each synthesised."""
    progress.total("synthesis", len(sizes))

    def module(size: tuple[int, int]) -> Module:
        component = build(*size)
        return Module(verilog(component), component.name, dsp=dsp)

    return [Cells.of(cost) for cost in measure_modules(map(module, sizes), target, progress, pool)]
