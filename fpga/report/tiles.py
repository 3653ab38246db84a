"""Arrays beside published ones: lookup tables for each multiply-accumulate.

Published: Ben Ali et al., MPTorch-FPGA, DATE 2025, Table III. Its shares of the device are of whole designs, with the
kernels' ports to memory and the card's shell; counted here are arrays alone, and kernels with their ports.
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
"""The published multiply-accumulate; its source of random words was not published."""


def study(largest: int, progress: Progress = silent, pool: JobPool = LOCAL) -> dict[Built, Cost]:
    """Measure arrays of the published sizes, up to ``largest`` elements; ValueError if there is none."""
    sizes = [row for row in TABLE_III if row.n <= largest]
    if not sizes:
        raise ValueError(f"the smallest published array has 1 element, not {largest}")
    progress.total("synthesis", len(sizes))
    arrays = [array(MacSpec.parse(MAC), row.n, row.m) for row in sizes]
    return dict(zip(sizes, measure_modules(map(Module.of, arrays), TARGET, progress, pool), strict=True))


def table(found: dict[Built, Cost], kernels: CostModel) -> Table:
    """The arrays as rows: ``found`` has their costs, ``kernels`` the cost model of kernels around them."""
    return Table(
        f"Systolic arrays of {MAC}",
        pd.DataFrame([_row(row, cost, kernels) for row, cost in found.items()]),
        {"LUT/MAC": ".1f", "kernel LUT/MAC": ",.1f", "published LUT/MAC": ",.1f", "ratio": ".3f"},
        [
            f"{Cost.origin(TARGET, 'each array by itself')}. LUT: LUT1 to LUT6, and of memories made of tables "
            f"(memory) at most {MEMORY_LUTS} each.",
            "Kernel: the array with ports to memory of 512 bits and registers, extrapolated from small ones "
            f"({kernels.source}). Ratio: of that to the published figure.",
            f"Published: Ben Ali et al., DATE 2025, Table III: the share of {PUBLISHED_LUT:,} tables of the whole "
            "design, ports to memory and shell included, after place and route, over N * M * C.",
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
