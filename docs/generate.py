"""Pages that are made from the catalogue: the grammar, and a page for each unit."""

import csv
from collections.abc import Iterator
from pathlib import Path

from amaranth.hdl import Shape
from amaranth.lib.wiring import In

from halfulp.hdl.formats import Format, parse
from halfulp.hdl.specs import UNITS
from halfulp.hdl.specs.grammar import page
from halfulp.sim import signoff
from halfulp.tools.paths import write_whole
from halfulp.units.base import Unit
from halfulp.units.catalogue import CATALOGUE, Row, component

RESULTS = Path(__file__).resolve().parent.parent / "fpga" / "results"

EXAMPLES = {"sru": "sru int8>int4", "pwl": "pwl tanh(fxp4.4) pieces=4"}
"""Texts of units that do not take e5m2 alone."""


def write(folder: Path) -> None:
    """Write all pages that are made from the catalogue."""
    (folder / "units").mkdir(parents=True, exist_ok=True)
    write_whole(folder / "grammar.md", "\n".join(page(UNITS)) + "\n")
    write_whole(folder / "signoff.md", "\n".join(signoff.page()) + "\n")
    for row in CATALOGUE.values():
        write_whole(folder / "units" / f"{row.name}.md", "\n".join(_unit(row)) + "\n")


def _unit(row: Row) -> Iterator[str]:
    unit = component(EXAMPLES.get(row.name) or row.spec.filled(a=parse("e5m2")))
    yield from (f"# {row.unit.__name__}", "", f"Computes {row.summary}. Its text is `{row.spec.form.text}`.", "")
    yield from ("## Ports", "", f"Those of `{unit.spec}`, beside the clock and its reset:", "")
    yield from ("| port | direction | format |", "|---|---|---|")
    yield from _ports(unit)
    costs = _costs(row.name)
    if costs:
        yield from (
            "",
            "## Area and clock",
            "",
            "Synthesised by Yosys; clocks of ECP5 are those after place and route.",
            "",
        )
        yield from ("| unit | device | LUT | FF | cells on the longest path | MHz |", "|---|---|" + "---:|" * 4, *costs)
    yield from ("", "## Class", "", "```{eval-rst}")
    yield from (f".. autoclass:: halfulp.units.{row.unit.__name__}", "```", "", "## Golden model", "", "```{eval-rst}")
    yield from (f".. autofunction:: halfulp.golden.{row.name}", "```")


def _ports(unit: Unit) -> Iterator[str]:
    for name, member in unit.signature.members.items():
        shape, is_input = member.shape, member.flow is In
        what = f"`{shape}`" if isinstance(shape, Format) else f"{Shape.cast(shape).width} bit"
        yield f"| `{name}` | {'input' if is_input else 'output'} | {what} |"


def _costs(name: str) -> list[str]:
    """Rows of the table of records for a unit, one for each format and device."""
    with (RESULTS / "catalogue.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["unit"].split()[0].rstrip("0123456789") == name]
    cells = ("LUT", "FF", "path", "MHz")
    return [
        f"| `{row['unit']}` | {row['target']} | "
        + " | ".join(row[cell][:6] if cell == "MHz" else row[cell] for cell in cells)
        + " |"
        for row in rows
    ]
