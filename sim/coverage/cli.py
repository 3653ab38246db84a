"""The command `halfulp coverage`."""

import sys
from pathlib import Path
from typing import Any

import click

from halfulp.sim.options import unit_options, wanted
from halfulp.tools.commands import requests


@click.command()
@click.argument("unit")
@click.argument("fmt", default="e5m2")
@unit_options
@click.option("--seed", default=0, metavar="N", type=click.IntRange(0), help="of everything random; 0 by default")
@click.option("--vectors", metavar="N", type=click.IntRange(1), help="most independent vectors")
@click.option("--code", is_flag=True, help="count lines and toggles of the Verilog, too")
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="where the files go; reports/ of the build folder by default",
)
def coverage(
    unit: str, fmt: str, seed: int, vectors: int | None, code: bool, output: Path | None, **options: Any
) -> None:
    """Say what `halfulp sim` shows of UNIT in FMT (e5m2 by default); UNIT `all` takes the catalogue.

    The same vectors and stalls are run, and counted in bins. Each bin is hit, or proved to be out of reach, or open;
    the tables and a picture are left as files.
    """
    from halfulp.sim.bench import run
    from halfulp.sim.report import summary
    from halfulp.tools.paths import build_root
    from halfulp.tools.progress import Bar

    with requests():
        units = [request.build() for request in wanted(unit, fmt, options)]
    from .collect import Coverage
    from .plot import plot_coverage
    from .rtl import code_coverage

    folder = output or build_root() / "reports"
    passed = True
    for built in units:
        watched = Coverage.of(built)
        with Bar(built.name) as bar:
            result = run(built, seed=seed, limit=vectors, watch=watched, progress=bar)
            if not result.passed:
                click.echo(summary(result))
            report = watched.report(bar)
            lines = code_coverage(built, seed=seed, limit=vectors) if code else None
        tables = {"": report.table(), "-bins": report.bins_table()} | ({"-code": lines} if lines is not None else {})
        click.echo(tables[""].markdown())
        if lines is not None:
            click.echo(lines.markdown())
        click.echo("\n".join(report.lines()))
        files = [file for end, table in tables.items() for file in table.write(folder, f"coverage-{built.name}{end}")]
        files += plot_coverage(report, folder, f"coverage-{built.name}")
        for file in files:
            click.echo(f"halfulp: wrote {file}", err=True)
        closed = result.passed and report.closed
        click.echo(f"{built.name}: {'CLOSED' if closed else 'OPEN'}")
        passed = passed and closed
    sys.exit(0 if passed else 1)
