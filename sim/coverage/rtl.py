"""Code coverage of the Verilog: lines and toggles that Verilator counts under the vectors of the test bench."""

import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from halfulp.sim.bench import plan
from halfulp.sim.model import CompiledModel
from halfulp.tools.errors import ToolError
from halfulp.tools.paths import machine_errors
from halfulp.tools.tables import Table

if TYPE_CHECKING:
    from halfulp.units import Unit

SHOWN = 12
"""Maximum number of named points per kind."""


@dataclass(frozen=True)
class Point:
    """Line, branch or toggle that Verilator counts.

    Attributes
    ----------
    kind : str
        ``line``, ``branch`` or ``toggle``.
    line : int
        Line number in the Verilog.
    what : str
        Signal and direction of a toggle, or kind of block.
    """

    kind: str
    line: int
    what: str
    hits: int


def points(unit: "Unit", *, seed: int = 0, limit: int | None = None) -> list[Point]:
    """Run the test bench's vectors, plain and chained, on a model with counters; raises ToolError if a tool fails."""
    chosen = plan(unit, seed=seed, limit=limit)
    with CompiledModel.of_unit(unit, "covered") as loop:
        loop.reset()
        loop.run(chosen.vectors.codes, chosen.vectors.count)
        if chosen.chain is not None:
            loop.reset()
            loop.run(chosen.chain, len(chosen.chain["a"]))
        with machine_errors("the counters of the model"), tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "coverage.dat"
            loop.write_coverage(path)
            covered = list(_read(path.read_text()))
    if not covered:
        raise ToolError(f"Verilator reported no coverage of {unit.name}")
    return covered


def _read(text: str) -> Iterator[Point]:
    """Parse a Verilator coverage file: fields separated by control characters, then a count."""
    for fields, hits in re.findall(r"^C '(.*)' (\d+)$", text, re.M):
        known = dict(re.findall("\x01([^\x02]*)\x02([^\x01]*)", fields))
        kind = known["page"].partition("/")[0].removeprefix("v_")
        what = re.sub("__0([0-9a-f]{2})", lambda match: chr(int(match[1], 16)), known.get("o", ""))
        # Yosys adds a signal that only starts processes in simulation.
        if not what.startswith("$auto$verilog_backend"):
            yield Point(kind, int(known["l"]), what, int(hits))


def code_coverage(unit: "Unit", *, seed: int = 0, limit: int | None = None) -> Table:
    """Compute the share of lines, branches and toggles that the vectors of the test bench reach.

    Unreached toggles include bits that are constant by construction.
    """
    covered = points(unit, seed=seed, limit=limit)
    counts, reached = Counter(point.kind for point in covered), Counter(point.kind for point in covered if point.hits)
    rows = [(kind, counts[kind], reached[kind], 100 * reached[kind] / counts[kind]) for kind in counts]
    frame = pd.DataFrame(rows, columns=["kind", "points", "reached", "%"])
    notes = []
    for kind in counts:
        missed = [f"{point.what} (line {point.line})" for point in covered if point.kind == kind and not point.hits]
        more = f", and {len(missed) - SHOWN:,} more" if len(missed) > SHOWN else ""
        notes += [f"{kind}, not reached: {', '.join(missed[:SHOWN])}{more}."] if missed else []
    return Table(f"Code coverage of {unit.name}", frame, {"%": ".1f"}, notes)
