"""CSV table of finished training runs."""

import csv
import io
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path

from halfulp.hdl.specs.segments import Segments
from halfulp.tools.digests import version
from halfulp.tools.paths import build_root, locked, machine_errors, write_whole
from halfulp.tools.records import finite, read_records

from .loop import Plan, Run

MIXED = "mixed"
"""Entry of the column ``mac`` for a run with several multiply-accumulates."""

NONE = "none"
"""Accuracy of a run whose targets are no classes."""


def results() -> Path:
    """Return the default path of the table."""
    return build_root() / "train" / "results.csv"


def row_of(run: Run, command: str) -> dict[str, str]:
    """Return the row of a finished run."""
    last, plan, data = run.epochs[-1], run.plan, run.data
    macs = {mac for policy in run.file.policies for mac in policy.macs}
    mac = macs.pop() if len(macs) == 1 else MIXED
    cells = {
        "mac": getattr(mac, "expression", mac or "fp32"),
        "network": network_of(plan),
        "accuracy": NONE if math.isnan(last.accuracy) else f"{last.accuracy:.4f}",
        "loss": f"{last.loss:.6g}",
        **{name: f"{last.score:.6g}" if name == run.network.result else "" for name in ("perplexity", "BLEU")},
        "seed": plan.seed,
        "epochs": plan.epochs,
        "policy": run.file,
        "batch": plan.batch,
        "rate": f"{plan.rate:g}",
        "scale": f"{plan.scale:g}{'' if plan.adaptive else ' static'}" if run.scaler else "",
        "skipped": run.scaler.skipped if run.scaler else "",
        "train": len(data.train[0]),
        "test": len(data.test[0]),
        "data": data.name,
        "device": plan.device,
        "seconds": f"{run.seconds:.1f}",
        "halfulp": version("halfulp"),
        "torch": version("torch"),
        "command": command,
        "run": run.key,
        "counts": run.counts.record if run.counts else "",
    }
    return {name: str(cell) for name, cell in cells.items()}


def network_of(plan: Plan) -> str:
    """Return the name of the network, of the piecewise linear functions in it, and of emulation."""
    tables = [Segments.read(text) for _, text in plan.activations]
    swapped = [f"{table.name} of {len(table.pieces)} segments in {table.fmt}" for table in tables]
    ending = ", true derivative" if swapped and plan.derivative == "true" else ""
    name = f"{plan.network} with {' and '.join(swapped)}{ending}" if swapped else plan.network
    return f"{name}, emulated" if plan.emulate else name


def rows(path: Path) -> list[dict[str, str]]:
    """Read the rows of a table as texts; errors as for `read_records`."""
    return read_records(path, {"mac": str, "network": str, "accuracy": _number})


def _number(text: str) -> str:
    if text != NONE:
        finite(text)
    return text


def check_place(path: Path) -> None:
    """Check the path of a table: ValueError if another file is there, ToolError if it cannot be written."""
    if path.is_file():
        rows(path)
    elif not path.exists():
        with machine_errors(str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=path.parent).close()


def append(path: Path, row: Mapping[str, str]) -> None:
    """Add a row, or replace that of the same run; other processes may append at the same time.

    Raises
    ------
    ValueError
        If the file at the path is no such table.
    ToolError
        If the disk is full or the file cannot be written.
    """
    with locked(path.with_name(f".{path.name}.lock")):
        others = [old for old in rows(path) if old.get("run") != row["run"]] if path.is_file() else []
        text = io.StringIO()
        # Preserve columns that users have added.
        names = list(dict.fromkeys([*(others[0] if others else ()), *row]))
        writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows([*others, row])
        write_whole(path, text.getvalue())
