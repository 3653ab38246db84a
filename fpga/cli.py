"""Commands about cost: `halfulp report`."""

from pathlib import Path

import click


@click.group()
def report() -> None:
    """Figures beside published ones, as Markdown, CSV and LaTeX."""


@report.command()
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="where the files go; reports/ of the build folder by default",
)
def sru(output: Path | None) -> None:
    """Stochastic rounding units beside those of Chang et al. (DATE 2023)."""
    from halfulp.sim.paths import build_root
    from halfulp.sim.progress import Bar

    from .sru import study, tables

    with Bar("report sru") as bar:
        found = study(progress=bar)
    folder = output or build_root() / "reports"
    for stem, table in tables(found).items():
        click.echo(table.markdown())
        for path in table.write(folder, stem):
            click.echo(f"halfulp: wrote {path}", err=True)
