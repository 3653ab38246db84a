"""The co-report as tables and plots, from its record alone."""

from functools import partial
from typing import Any, Literal

import pandas as pd

from halfulp.tools.plots import Panel, plot_front
from halfulp.tools.report import Report
from halfulp.tools.tables import Table

from .coreport import Record, Row


def report(record: Record, stem: str) -> Report:
    """The record, all tables and all plots."""
    return Report(
        tables={f"{stem}-{name}": table for name, table in tables(record).items()},
        plots={f"{stem}-{device}": partial(plot, record, device) for device in record.devices},
        records={f"{stem}.json": record.text()},
        title=record.title,
        made_by=record.made_by,
    )


def tables(record: Record) -> dict[str, Table]:
    """One table for each device, by its name, and one of all dot products, ``errors``."""
    return {device: _device(record, device) for device in record.devices} | {"errors": _errors(record)}


def _device(record: Record, device: str) -> Table:
    rows = [_row(record, row, device) for row in record.rows]
    frame = pd.DataFrame(rows).dropna(axis="columns", how="all")
    columns = {str(name): _column(str(name), frame) for name in frame if pd.api.types.is_numeric_dtype(frame[name])}
    return Table(
        f"{record.title}: {device}",
        frame,
        {name: spec for name, (spec, _) in columns.items() if spec},
        [*record.devices[device], *_reached(record, device), *_computed(record), *_trained(record), *_made(record)],
        best={name: which for name, (_, which) in columns.items() if which},
        only_csv=("command", "tools"),
    )


def _row(record: Record, row: Row, device: str) -> dict[str, Any]:
    plain, error = row.variants[device][0], row.errors[0]
    cells: dict[str, Any] = {
        "MAC": row.mac,
        "LUT": plain.lut,
        "FF": plain.ff,
        "carry": plain.carry,
        "depth": plain.depth,
        "MHz": plain.mhz,
    }
    if record.clock is not None and plain.mhz is not None:
        chosen = record.at_clock(row, device)
        for name in ("lut", "ff"):
            cells[f"{name.upper()} at {record.clock:g}"] = None if chosen is None else getattr(chosen, name)
        cells["stages"] = None if chosen is None else chosen.pipeline
    cells |= {name: error.cells()[name] for name in ("error", "ulp")}
    for network in record.networks:
        found = row.accuracy_of(network)
        cells[f"acc. {network}"] = found.mean if found else None
        cells[f"s.d. {network}"] = found.deviation if found else None
    own = {"Pareto": "yes" if row.pareto[device] else "no", "command": plain.command}
    return cells | own | {"tools": record.made_by}


def _column(name: str, frame: pd.DataFrame) -> tuple[str, Literal["lowest", "highest"] | None]:
    """Format of the numbers of a column, and the best of them."""
    if name.startswith(("acc. ", "s.d. ")):
        # Fractions, or percent.
        spec = ".4f" if frame["acc. " + name.split(" ", 1)[1]].max() <= 1 else ".2f"
        return spec, "highest" if name.startswith("acc.") else None
    match name:
        case "MHz":
            return ".1f", "highest"
        case "error":
            return ".2e", "lowest"
        case "ulp":
            # Last places of different formats do not compare.
            return ".2f", None
        case "stages":
            return ".0f", None
    # pandas makes integers floats where one is missing.
    return ".0f", "lowest"


def _reached(record: Record, device: str) -> list[str]:
    """Notes on the requested clock, and on the units that do not reach it."""
    if record.clock is None or all(row.variants[device][0].mhz is None for row in record.rows):
        return []
    stages = " or ".join(map(str, record.pipelines))
    notes = [
        f"LUT and FF at {record.clock:g}: at a clock of {record.clock:g} MHz; the fewest LUT among units with {stages} "
        "register stages that reach that clock; stages are before the accumulator, whose loop has none."
    ]
    fastest = {
        row.mac: max(one.mhz or 0.0 for one in row.variants[device] if one.pipeline in record.pipelines)
        for row in record.rows
        if record.at_clock(row, device) is None
    }
    if fastest:
        slow = ", ".join(f"{mac} ({mhz:.1f} MHz)" for mac, mhz in fastest.items())
        notes.append(f"Not reached by {slow}; in brackets their highest clock.")
    return notes


def _computed(record: Record) -> list[str]:
    """Notes on the errors."""
    first = record.rows[0].errors[0]
    scale = "" if record.scale == 1 else f", times {record.scale:g}"
    against = {
        "rounded": "of the same operands, rounded to the operand formats",
        "drawn": "of the operands before their rounding to the operand formats, which counts",
    }[record.against]
    notes = [
        f"Error: of {record.count:,} dot products of {first.length:,} {first.distribution} operands{scale}, in the "
        f"MAC's own arithmetic by halfulp's golden model, against exact sums {against}; root mean square, over "
        "that of the exact sums, and in units of the last place that the accumulator has there (ulp). "
        f"Seed {record.seed}; each sum has a seed of its own for its random source."
    ]
    if any(error.not_finite for row in record.rows for error in row.errors):
        notes.append("An error is infinite if a sum overflowed to infinity or NaN.")
    return notes


def _trained(record: Record) -> list[str]:
    runs = [found.runs for row in record.rows for found in row.accuracy]
    notes = []
    if runs:
        each = f"{min(runs)}" if min(runs) == max(runs) else f"{min(runs)} to {max(runs)}"
        notes.append(
            f"Acc.: accuracy, from {each} training runs of each MAC; mean, and s.d., their standard deviation, if "
            "there are several."
        )
    if record.strangers:
        notes.append(f"Training runs of other MACs, not shown: {record.strangers}.")
    return notes


def _made(record: Record) -> list[str]:
    known = " and in accuracy, where both were trained," if record.networks else ""
    return [
        f"Pareto: no other MAC is as good in LUT, in the error shown{known} and better in one of them.",
        f"Made by {record.made_by}.",
    ]


def _errors(record: Record) -> Table:
    rows = [{"MAC": row.mac} | error.cells() | {"tools": record.made_by} for row in record.rows for error in row.errors]
    notes = [
        *_computed(record),
        "Not finite: number of sums that are infinite or NaN.",
        f"Made by {record.made_by}.",
    ]
    formats = {"error": ".2e", "ulp": ".2f"}
    return Table(f"{record.title}: dot products", pd.DataFrame(rows), formats, notes, only_csv=("tools",))


def plot(record: Record, device: str) -> Any:
    """Error, and accuracy of trained networks, against LUT."""
    panels = [Panel("relative error of dot products", [row.errors[0].relative for row in record.rows], "lowest")]
    for network in record.networks:
        found = [row.accuracy_of(network) for row in record.rows]
        panels.append(Panel(f"accuracy of {network}", [one.mean if one else None for one in found], "highest"))
    return plot_front(
        [row.mac for row in record.rows],
        [row.variants[device][0].lut for row in record.rows],
        panels,
        [row.pareto[device] for row in record.rows],
        xlabel=f"LUT on {device}",
        caption=record.made_by,
    )
