"""Digests of the netlists whose costs are recorded: they show without a synthesis which figures are stale."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from halfulp.fpga.package.manifest import RECORDS
from halfulp.sim.formal.prove import circuit
from halfulp.sim.netlist import netlist
from halfulp.tools.digests import digest
from halfulp.tools.paths import write_whole

FILE = "netlists.csv"

COLUMNS = ("record", "unit", "rtlil", "netlist")
"""Columns of the file: the record with the figures, the unit, and digests of its RTLIL and of its netlist.

As in sign-off records, the netlist decides, and equal RTLIL saves the time to compute it.
"""

Components = Mapping[str, Callable[[], Any]]
"""Functions that make the components of a record, by the names of its rows."""

Row = dict[str, str]


def read(folder: Path = RECORDS) -> list[Row]:
    """Return the rows of the file, or none without the file."""
    path = folder / FILE
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def digests(component: Any, known: Mapping[str, str] = MappingProxyType({})) -> Row:
    """Return the digests of a component; a known digest of its RTLIL implies that of its netlist."""
    text = circuit(component)
    own = digest(text)[:12]
    return {"rtlil": own, "netlist": known["netlist"] if own == known.get("rtlil") else netlist(text)}


def update(folder: Path, record: str, components: Components) -> None:
    """Write the present digests of the components of a record, whose figures were measured."""
    rows = read(folder)
    known = {row["unit"]: row for row in rows if row["record"] == record}
    own = [
        {"record": record, "unit": name} | digests(build(), known.get(name, {})) for name, build in components.items()
    ]
    rows = sorted([row for row in rows if row["record"] != record] + own, key=lambda row: (row["record"], row["unit"]))
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_whole(folder / FILE, text.getvalue())


def stale(record: str, components: Components, names: Iterable[str] | None = None, folder: Path = RECORDS) -> list[str]:
    """Return the names of the components, default: all, whose netlist is another one than when they were measured."""
    known = {row["unit"]: row for row in read(folder) if row["record"] == record}
    wanted = list(components if names is None else names)
    return [
        name
        for name in wanted
        if name not in known or digests(components[name](), known[name])["netlist"] != known[name]["netlist"]
    ]
