"""The command `halfulp coverage`."""

import sys
from pathlib import Path
from typing import Any

import click

from halfulp.implementation import implementations
from halfulp.options import unit_options
from halfulp.tools.commands import Command, publish, report_folder, requests, show, written
from halfulp.tools.report import Report


@click.command(cls=Command)
@unit_options
@click.option("--seed", default=0, metavar="N", type=click.IntRange(0), help="seed of the random generator; default: 0")
@click.option("--vectors", metavar="N", type=click.IntRange(1), help="maximum number of independent vectors")
@click.option("--code", is_flag=True, help="also count lines and toggles of the Verilog")
@written
def coverage(
    unit: str, fmt: str | None, seed: int, vectors: int | None, code: bool, output: Path | None, **options: Any
) -> None:
    """Count the cases of a unit that `halfulp sim` reaches.

    UNIT `all` takes every unit of the catalogue. The vectors and stalls of `halfulp sim` run and are counted in bins.
    Each bin is hit, proved unreachable, or open. Tables and a plot are written as files.
    """
    from halfulp.sim.bench import run
    from halfulp.sim.report import summary
    from halfulp.tools.progress import Bar

    with requests():
        units = [asked.component() for asked in implementations(unit, fmt, **options)]
        for built in units:
            built.check_one_latency("halfulp coverage")
    from .collect import Coverage
    from .rtl import code_coverage
    from .verdicts import Verdicts

    folder = report_folder(output)
    passed = True
    for built in units:
        watched = Coverage(built)
        with Bar(built.name) as bar:
            result = run(built, seed=seed, limit=vectors, watch=watched, progress=bar)
            if not result.passed:
                show(summary(result), result.data)
            verdicts = Verdicts.of(watched, bar)
            stem = f"coverage-{built.name}"
            tables = {stem: verdicts.table(), f"{stem}-bins": verdicts.bins_table()}
            if code:
                tables[f"{stem}-code"] = code_coverage(built, seed=seed, limit=vectors)
        files = Report(
            tables,
            {stem: verdicts.plot},
            title=verdicts.title,
            made_by=f"halfulp coverage of {built.name}",
            hidden=[f"{stem}-bins"],
        )
        closed = result.passed and verdicts.closed
        lines = ["", *verdicts.lines(), f"{built.name}: {'CLOSED' if closed else 'OPEN'}"]
        publish(files, folder, lines, {"unit": built.spec.text, "passed": result.passed, "closed": closed})
        passed = passed and closed
    sys.exit(0 if passed else 1)
