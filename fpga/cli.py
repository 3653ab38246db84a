"""Commands about cost: `halfulp synth` and `halfulp report`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from halfulp.sim.cli import requests, unit_options, wanted

if TYPE_CHECKING:
    from halfulp.sim.tables import Table


@click.command()
@click.argument("unit")
@click.argument("fmt", default="e5m2")
@unit_options
@click.option(
    "--target", "name", default="vu9p", metavar="NAME", help="device; vu9p by default, all: halfulp list targets"
)
@click.option("--dsp", is_flag=True, help="products of factors longer than 16 bits may take DSP blocks")
@click.option("--route", is_flag=True, help="place and route between registers, for the frequency (ecp5-85k)")
def synth(unit: str, fmt: str, name: str, dsp: bool, route: bool, **options: Any) -> None:
    """Say what UNIT in FMT (e5m2 by default) costs on a device; UNIT `all` takes every unit for such operands."""
    from halfulp.sim.progress import Bar

    from .targets import check_route, target_of

    with requests():
        target = check_route(target_of(name)) if route else target_of(name)
        asked = wanted(unit, fmt, options)
        for request in asked:
            request.build()
    # pandas takes long to load.
    from .resources import measure_requests, table

    with Bar("synth") as bar:
        costs = measure_requests(asked, target, bar, dsp=dsp, route=route)
    click.echo(table(costs, target, dsp=dsp).markdown(), nl=False)


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
