"""Commands about cost: `halfulp synth` and `halfulp report`."""

import contextlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from halfulp.sim.cli import requests, unit_options, wanted

from .study import ENDINGS

if TYPE_CHECKING:
    from halfulp.sim.tables import Table

    from .coreport import Report


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


class _Reports(click.Group):
    """The reports that have names, and that of a study, which has the name of its file."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """A command, and what it is to be called with."""
        if args and Path(args[0]).suffix in (*ENDINGS, ".json"):
            return "STUDY", _study, args
        return super().resolve_command(ctx, args)


@click.group(cls=_Reports)
def report() -> None:
    """Figures side by side, as Markdown, CSV and LaTeX.

    COMMAND is one of those below, or a file in TOML or YAML that describes a study of multiply-accumulates: their cost,
    clock, error and accuracy, in tables and plots. A finished study is a JSON file, of which all is drawn again.
    """


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


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_OUTPUT
def _study(file: Path, output: Path | None) -> None:
    """Multiply-accumulates side by side: cost, clock, error, accuracy, and which no other beats.

    FILE describes a study, in TOML or YAML; or it is the JSON of a finished one, of which tables and plots are made
    again, beside it unless told otherwise.
    """
    from halfulp.sim.paths import build_root, machine_errors

    from .coreport import load

    if file.suffix == ".json":
        with requests():
            found = load(file)
        folder = output or file.parent
    else:
        folder = output or build_root() / "reports"
        # What is no place for files is told before the work.
        with machine_errors(str(folder)):
            folder.mkdir(parents=True, exist_ok=True)
        found = _measured(file, folder / f"{file.stem}.json")
    # matplotlib takes long to load.
    from .coreport_view import leave, tables

    for table in tables(found).values():
        click.echo(table.markdown())
    for path in leave(found, folder, file.stem):
        click.echo(f"halfulp: wrote {path}", err=True)


def _measured(file: Path, record: Path) -> "Report":
    """The figures of a study, from its record where nothing changed since."""
    from halfulp.sim.progress import Bar

    from .coreport import key_of, load, measure
    from .study import read

    with requests():
        study = read(file)
        if record.is_file():
            with contextlib.suppress(ValueError):
                if (found := load(record)).key == key_of(study):
                    return found
        with Bar(f"report {file.name}") as bar:
            return measure(study, shlex.join(["halfulp", "report", file.name]), bar)


def _show(tables: "dict[str, Table]", output: Path | None) -> None:
    """Print tables, and leave them in a folder under their names."""
    from halfulp.sim.paths import build_root

    folder = output or build_root() / "reports"
    for stem, table in tables.items():
        click.echo(table.markdown())
        for path in table.write(folder, stem):
            click.echo(f"halfulp: wrote {path}", err=True)
