"""Report of lookup tables per multiply-accumulate of arrays, compared with published ones.

Published: Ben Ali et al., MPTorch-FPGA, DATE 2025, Table III. Its shares of the device include memory ports and the
shell of the card. The report counts arrays alone, and kernels with their memory ports.
"""

import pandas as pd

from halfulp.boards.targets import TARGETS
from halfulp.fpga.kernel.arrays import array
from halfulp.fpga.kernel.cost_model import MEMORY_LUTS, CostModel
from halfulp.fpga.match.published import PUBLISHED_LUT, TABLE_III, Built
from halfulp.fpga.synth.measure import Cost, Module, measure_modules
from halfulp.hdl.specs import MacSpec
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.progress import Progress, silent
from halfulp.tools.tables import Table

TARGET = TARGETS["u55c"]
"""Device of the published figures and ours."""

MAC = "e5m2*e5m2+e6m5.sr10@lfsr16"
"""Published multiply-accumulate; its random source was not published."""


WHOLE = 16
"""Largest number of multiply-accumulates in an array that is synthesised as one module; others would take minutes."""


def study(largest: int, progress: Progress = silent, pool: JobPool = LOCAL) -> dict[Built, Cost]:
    """Measure arrays of the published sizes, up to ``largest`` elements; ValueError if no size is left."""
    sizes = [row for row in TABLE_III if row.n <= largest]
    if not sizes:
        raise ValueError(f"no published array has {largest} elements or fewer; the smallest has 1")
    progress.total("synthesis", len(sizes))
    arrays = (array(MacSpec.parse(MAC), row.n, row.m) for row in sizes)
    modules = (Module.of_array(array) if array.n * array.m > WHOLE else Module.of(array) for array in arrays)
    return dict(zip(sizes, measure_modules(modules, TARGET, progress, pool), strict=True))


def table(costs: dict[Built, Cost], kernels: CostModel) -> Table:
    """Return a table of arrays with costs ``found`` and kernels by the cost model ``kernels``."""
    return Table(
        f"Systolic arrays of {MAC}",
        pd.DataFrame([_row(row, cost, kernels) for row, cost in costs.items()]),
        {"LUT/MAC": ".1f", "kernel LUT/MAC": ",.1f", "published LUT/MAC": ",.1f", "ratio": ".3f"},
        [
            f"{Cost.origin(TARGET, 'each array alone')}. LUT: LUT1 to LUT6, and {MEMORY_LUTS}, the maximum, for each "
            "distributed memory (column memory).",
            "Kernel: the array with memory ports of 512 bits and control registers, extrapolated from small ones "
            f"({kernels.source}). Ratio: kernel LUT/MAC over published LUT/MAC.",
            f"Published: Ben Ali et al., DATE 2025, Table III: share of {PUBLISHED_LUT:,} tables of the whole design "
            "with memory ports and shell, after place and route, divided by N * M * C.",
        ],
    )


def _row(row: Built, cost: Cost, kernels: CostModel) -> dict[str, object]:
    lut = cost.lut + MEMORY_LUTS * cost.memory
    published = row.lut / 100 * PUBLISHED_LUT / (row.n * row.m * row.cores)
    kernel = kernels.cells(row.n, row.m).lut / (row.n * row.m)
    return {
        "N": row.n,
        "M": row.m,
        "LUT": lut,
        "memory": cost.memory,
        "FF": cost.ff,
        "BRAM": cost.bram,
        "path": cost.path,
        "LUT/MAC": lut / (row.n * row.m),
        "kernel LUT/MAC": kernel,
        "published C": row.cores,
        "published LUT/MAC": published,
        "ratio": kernel / published,
    }
