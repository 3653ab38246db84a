"""Cost of lazy and eager stochastic rounding in floating-point adders, compared with rounding to nearest."""

from dataclasses import dataclass

import pandas as pd

from halfulp.boards.targets import TARGETS
from halfulp.fpga.synth.measure import Cost, measure_modules, module_of
from halfulp.hdl.formats import RN
from halfulp.hdl.formats.source import parse_source
from halfulp.implementation import Implementation, short
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.progress import Progress, silent
from halfulp.tools.tables import Table

TARGET = TARGETS["vu9p"]
"""Device of the figures."""

SOURCE = "lfsr16"
"""Random source of the units that have one."""

CASES = tuple(
    short(unit, fmt, acc=acc, rounding=f"sr{bits}")
    for unit, fmt, acc in (
        ("mac", "e5m2", "e6m5"),
        ("mac", "e5m2", "bf16"),
        ("mac", "e4m3", "e6m7"),
        ("mac", "e4m3fn", "bf16"),
        ("mac", "e4m3fn", "fp16"),
        ("mac", "e3m2fn", "e6m5"),
        ("mac", "e2m1fn", "e5m6"),
        ("accumulate", "e5m2", "e6m5"),
        ("add", "e5m2", None),
        ("add", "e4m3", None),
        ("add", "e4m3fn", None),
        ("add", "e6m5", None),
        ("add", "fp16", None),
        ("add", "bf16", None),
    )
    for bits in (4, 8, 10)
)
"""Accumulators and adders in formats for training."""


@dataclass(frozen=True)
class Measured:
    """Costs of a unit: with rounding to nearest, with each structure, and with a random source."""

    nearest: Cost
    lazy: Cost
    eager: Cost
    with_source: Cost


def study(
    units: tuple[Implementation, ...] = CASES, progress: Progress = silent, pool: JobPool = LOCAL
) -> dict[Implementation, Measured]:
    """Measure the variants of units with stochastic rounding of sums."""
    progress.total("synthesis", 4 * len(units))
    modules = (module_of(variant) for unit in units for variant in _variants(unit))
    costs = iter(measure_modules(modules, TARGET, progress, pool=pool))
    return {unit: Measured(next(costs), next(costs), next(costs), next(costs)) for unit in units}


def _variants(unit: Implementation) -> list[Implementation]:
    """Return the variants of a unit, in the order of `Measured`."""
    stochastic = [unit.with_build(stochastic=structure) for structure in ("lazy", "eager")]
    return [unit.with_spec(rounding=RN), *stochastic, unit.with_spec(random=parse_source(SOURCE))]


def table(costs: dict[Implementation, Measured]) -> Table:
    """Return a table with a row per unit."""
    rows = [_row(unit, cost) for unit, cost in costs.items()]
    return Table(
        "Stochastic rounding in floating-point adders",
        pd.DataFrame(rows),
        {"default / rn": ".3f"},
        [
            f"{Cost.origin(TARGET)}. LUT is the sum of LUT1 to LUT6; path counts cells on the longest path.",
            "rn: the same unit with rounding to nearest. Lazy: the random word is added to the normalised sum. Eager: "
            "it is added before normalisation, at both possible alignments. Both give the same bits.",
            "The random word comes from a port, whose source is not counted. In the last column the unit includes an "
            f"{SOURCE} and has its default structure.",
        ],
    )


def _row(unit: Implementation, cost: Measured) -> dict[str, object]:
    default = unit.component().stochastic
    chosen = {"lazy": cost.lazy, "eager": cost.eager}[default]
    return {
        "unit": unit.spec.form.unit,
        "operands": unit.spec.operands["a"],
        "sum": unit.spec.result,
        "bits": unit.spec.rounding.bits,
        "rn": cost.nearest.lut,
        "lazy": cost.lazy.lut,
        "eager": cost.eager.lut,
        "default": default,
        "default / rn": chosen.lut / cost.nearest.lut,
        "rn path": cost.nearest.path,
        "lazy path": cost.lazy.path,
        "eager path": cost.eager.path,
        f"with {SOURCE}": cost.with_source.lut,
    }
