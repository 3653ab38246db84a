"""Tables and plots of the co-report, from its record."""

from functools import partial
from typing import Any, Literal

import pandas as pd

from halfulp.hdl.specs import MacSpec
from halfulp.tools.plots import Kind, Panel, plot_front
from halfulp.tools.report import Report
from halfulp.tools.tables import Table

from . import asic
from .coreport import MacFigures, Record


def report(record: Record, stem: str) -> Report:
    """Return the report: the record, all tables and all plots."""
    return Report(
        tables={f"{stem}-{name}": table for name, table in tables(record).items()},
        plots={f"{stem}-{device}": partial(plot, record, device) for device in record.devices},
        records={f"{stem}.json": record.text()},
        title=record.title,
        made_by=record.made_by,
    )


def tables(record: Record) -> dict[str, Table]:
    """Return a table per device, by its name, and the table ``errors`` of all dot products."""
    return {device: _device(record, device) for device in record.devices} | {"errors": _errors(record)}


def _device(record: Record, device: str) -> Table:
    rows = [_row(record, row, device) for row in record.rows]
    frame = pd.DataFrame(rows).dropna(axis="columns", how="all")
    columns = {str(name): _column(str(name), frame) for name in frame if pd.api.types.is_numeric_dtype(frame[name])}
    return Table(
        f"{record.title}: {device}",
        frame,
        {name: spec for name, (spec, _) in columns.items() if spec},
        [
            *record.devices[device],
            *_reached(record, device),
            *_computed(record),
            *_trained(record),
            *_made(record, device),
        ],
        best={name: which for name, (_, which) in columns.items() if which},
        only_csv=("command", "tools"),
    )


def _row(record: Record, row: MacFigures, device: str) -> dict[str, Any]:
    plain, error = row.variants[device][0], row.errors[0]
    cells: dict[str, Any] = {
        "MAC": row.mac,
        "LUT": plain.lut,
        "FF": plain.ff,
        "carry": plain.carry,
        "path": plain.path,
        "MHz": plain.mhz,
    }
    if plain.in_cells is not None:
        cells |= asic.row(plain.in_cells)
    if record.clock is not None and plain.mhz is not None:
        chosen = record.at_clock(row, device)
        for name in ("lut", "ff"):
            cells[f"{name.upper()} at {record.clock:g}"] = None if chosen is None else getattr(chosen, name)
        cells["stages"] = None if chosen is None else chosen.pipeline
    cells |= {name: error.cells()[name] for name in ("error", "ulp")}
    for network in record.networks:
        accuracy = row.accuracy_of(network)
        cells[f"acc. {network}"] = accuracy.mean if accuracy else None
        cells[f"s.d. {network}"] = accuracy.deviation if accuracy else None
    own = {"Pareto": "yes" if row.pareto[device] else "no", "command": plain.command}
    return cells | own | {"tools": record.made_by}


def _column(name: str, frame: pd.DataFrame) -> tuple[str, Literal["lowest", "highest"] | None]:
    """Return the number format of a column, and which of its values is best."""
    if name.startswith(("acc. ", "s.d. ")):
        # Accuracies are fractions or percentages.
        spec = ".4f" if frame["acc. " + name.split(" ", 1)[1]].max() <= 1 else ".2f"
        return spec, "highest" if name.startswith("acc.") else None
    if name in asic.FORMATS:
        return asic.FORMATS[name], "lowest"
    match name:
        case "MHz":
            return ".1f", "highest"
        case "error":
            return ".2e", "lowest"
        case "ulp":
            # Errors in ulp of different formats are not comparable.
            return ".2f", None
        case "stages":
            return ".0f", None
    # pandas converts a column of integers with a missing value to floats.
    return ".0f", "lowest"


def _reached(record: Record, device: str) -> list[str]:
    """Return notes on the requested clock and on the units that do not reach it."""
    if record.clock is None or all(row.variants[device][0].mhz is None for row in record.rows):
        return []
    stages = " or ".join(map(str, record.pipelines))
    notes = [
        f"LUT and FF at {record.clock:g}: of the unit with the fewest LUT that reaches {record.clock:g} MHz, with "
        f"{stages} register stages. Stages are before the accumulator, whose loop has none."
    ]
    fastest = record.missed(device)
    if fastest:
        slow = ", ".join(f"{mac} ({mhz:.1f} MHz)" for mac, mhz in fastest.items())
        notes.append(f"Not reached by {slow}; their highest clocks are in brackets.")
    return notes


def _computed(record: Record) -> list[str]:
    """Return notes on the errors."""
    first = record.rows[0].errors[0]
    scale = "" if record.scale == 1 else f", times {record.scale:g}"
    against = {
        "rounded": "of the same operands, rounded to the operand formats",
        "drawn": "of the operands before rounding to the operand formats, so that this rounding counts",
    }[record.against]
    notes = [
        f"Error: of {record.count:,} dot products of {first.length:,} {first.distribution} operands{scale}, in the "
        f"arithmetic of the MAC by halfulp's golden model, against exact sums {against}; root mean square, relative to "
        "that of the exact sums, and in units of the last place of the accumulator at that magnitude (ulp). "
        f"Seed {record.seed}; the random source of each sum has a different seed."
    ]
    if any(error.not_finite for row in record.rows for error in row.errors):
        notes.append("An error is infinite if a sum overflowed to infinity or NaN.")
    return notes


def _trained(record: Record) -> list[str]:
    runs = [accuracy.runs for row in record.rows for accuracy in row.accuracy]
    notes = []
    if runs:
        each = f"{min(runs)}" if min(runs) == max(runs) else f"{min(runs)} to {max(runs)}"
        notes.append(
            f"Acc.: mean accuracy of {each} training runs per MAC; s.d.: standard deviation, if there are several."
        )
    if record.strangers:
        notes.append(f"Training runs of other MACs, not shown: {record.strangers}.")
    return notes


def _size(record: Record, device: str) -> str:
    """Return the unit of the sizes on a target."""
    return "GE" if record.rows[0].variants[device][0].in_cells else "LUT"


def _made(record: Record, device: str) -> list[str]:
    known = ", and in accuracy if both were trained" if record.networks else ""
    size = _size(record, device)
    return [
        f"Pareto: yes if no other MAC is at least as good in {size} and error{known}, and better in one of them.",
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


def kind_of(mac: MacSpec) -> Kind:
    """Families of the operands and roundings of a multiply-accumulate, by which plots choose colours and marks."""
    families = dict.fromkeys(type(fmt).__name__.lower() for fmt in (mac.a, mac.b))
    roundings = [] if mac.product is None else [str(mac.product_rounding)]
    return " and ".join(families), " and ".join(dict.fromkeys([*roundings, str(mac.rounding)]))


def plot(record: Record, device: str) -> Any:
    """Plot error and accuracy of trained networks against LUT or gate equivalents."""
    panels = [Panel("relative error of dot products", [row.errors[0].relative for row in record.rows], "lowest")]
    for network in record.networks:
        accuracies = [row.accuracy_of(network) for row in record.rows]
        panels.append(
            Panel(f"accuracy of {network}", [accuracy.mean if accuracy else None for accuracy in accuracies], "highest")
        )
    return plot_front(
        [row.mac for row in record.rows],
        [row.variants[device][0].size for row in record.rows],
        panels,
        [row.pareto[device] for row in record.rows],
        xlabel=f"{_size(record, device)} on {device}",
        caption=record.made_by,
        title=record.title,
        kinds=[kind_of(MacSpec.parse(row.mac)) for row in record.rows],
    )
