"""Commands about cost: `halfulp report`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from halfulp.sim.tables import Table


@click.group()
def report() -> None:
    """Figures beside published ones, as Markdown, CSV and LaTeX."""


_OUTPUT = click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="where the files go; reports/ of the build folder by default",
)


@report.command()
@_OUTPUT
def sru(output: Path | None) -> None:
    """Stochastic rounding units beside those of Chang et al. (DATE 2023)."""
    from halfulp.sim.progress import Bar

    from .sru import study, tables

    with Bar("report sru") as bar:
        found = study(progress=bar)
    _show(tables(found), output)


@report.command()
@_OUTPUT
def adders(output: Path | None) -> None:
    """Stochastic rounding in adders and accumulators, lazy and eager, beside rounding to nearest."""
    from halfulp.sim.progress import Bar

    from .adders import study, table

    with Bar("report adders") as bar:
        found = study(progress=bar)
    _show({"adders": table(found)}, output)


def _show(tables: "dict[str, Table]", output: Path | None) -> None:
    """Print tables, and leave them in a folder under their names."""
    from halfulp.sim.paths import build_root

    folder = output or build_root() / "reports"
    for stem, table in tables.items():
        click.echo(table.markdown())
        for path in table.write(folder, stem):
            click.echo(f"halfulp: wrote {path}", err=True)
