"""Commands about cost: `halfulp synth`, `halfulp cost` and `halfulp report`."""

import contextlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from halfulp.sim.options import Function, unit_options, wanted
from halfulp.tools.commands import requests

from .report.study import ENDINGS
from .vendor.cli import DEFAULT_CLOCK

if TYPE_CHECKING:
    from halfulp.tools.jobs import JobPool
    from halfulp.tools.tables import Table

    from .report.coreport import Report


def _scheduled(function: Function) -> Function:
    """The option that says where synthesis runs."""
    return click.option(
        "--scheduler", metavar="tcp://HOST:PORT", help="Dask scheduler whose workers synthesise; else this machine does"
    )(function)


def _written(function: Function) -> Function:
    """The option that says where tables are left."""
    return click.option(
        "-o",
        "--output",
        metavar="FOLDER",
        type=click.Path(file_okay=False, path_type=Path),
        help="where the files go; reports/ of the build folder by default",
    )(function)


@click.command()
@click.argument("unit")
@click.argument("fmt", default="e5m2")
@unit_options
@click.option(
    "--target", "name", default="vu9p", metavar="NAME", help="device; vu9p by default, all: halfulp list targets"
)
@click.option("--route", is_flag=True, help="place and route between registers, for the frequency (ecp5-85k)")
@click.option(
    "--flow",
    type=click.Choice(["yosys", "vivado"]),
    default="yosys",
    help="who synthesises; yosys by default, vivado places and routes too where it is installed",
)
@click.option("--clock", metavar="MHZ", type=float, help=f"frequency that Vivado aims at; {DEFAULT_CLOCK} by default")
@_scheduled
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="leave the table there too, as Markdown, CSV and LaTeX",
)
def synth(
    unit: str,
    fmt: str,
    name: str,
    route: bool,
    flow: str,
    clock: float | None,
    scheduler: str | None,
    output: Path | None,
    **options: Any,
) -> None:
    """Say what UNIT in FMT (e5m2 by default) costs on a device; UNIT `all` takes every unit for such operands."""
    from halfulp.boards.targets import check_route, target_of
    from halfulp.tools.jobs import JobPool
    from halfulp.tools.progress import Bar

    vivado = flow == "vivado"
    with requests():
        target = check_route(target_of(name)) if route else target_of(name)
        asked = wanted(unit, fmt, options)
        for request in asked:
            request.build()
        pool = JobPool(scheduler)
        if vivado and route:
            raise ValueError("--flow vivado places and routes every unit; --route is for the flow yosys")
        if clock is not None and not vivado:
            raise ValueError("--clock means something to Vivado only; add --flow vivado")
        if vivado:
            from .vendor.vivado import check

            clock = DEFAULT_CLOCK if clock is None else clock
            check(target, clock)
    # pandas takes long to load.
    from .report.resources import implement_requests, measure_requests, table

    with pool, Bar("synth") as bar:
        if clock is not None:
            costs = implement_requests(asked, target, bar, clock_mhz=clock, pool=pool)
        else:
            costs = measure_requests(asked, target, bar, route=route, pool=pool)
    found = table(costs, target, clock_mhz=clock)
    click.echo(found.markdown(), nl=False)
    if output is not None:
        _write_report(found, output, "synth")


@click.command()
@_scheduled
@_written
def cost(scheduler: str | None, output: Path | None) -> None:
    """Measure the units that costs are recorded of, and leave the records as CSV.

    The project's own are in fpga/results, where `make cost` leaves them: a change of cost is a change of these files.
    """
    from halfulp.tools.jobs import JobPool
    from halfulp.tools.progress import Bar

    with requests():
        pool = JobPool(scheduler)
    from .report.records import write

    with pool, Bar("cost") as bar:
        for path in write(output or _reports(), bar, pool):
            click.echo(f"halfulp: wrote {path}", err=True)


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


@report.command()
@_scheduled
@_written
def sru(scheduler: str | None, output: Path | None) -> None:
    """Stochastic rounding units beside those of Chang et al. (DATE 2023)."""
    from halfulp.tools.jobs import JobPool
    from halfulp.tools.progress import Bar

    with requests():
        pool = JobPool(scheduler)
    from .report.sru import study, tables

    with pool, Bar("report sru") as bar:
        found = study(progress=bar, pool=pool)
    _show(tables(found), output)


@report.command()
@_scheduled
@_written
def adders(scheduler: str | None, output: Path | None) -> None:
    """Stochastic rounding in adders and accumulators, lazy and eager, beside rounding to nearest."""
    from halfulp.tools.jobs import JobPool
    from halfulp.tools.progress import Bar

    with requests():
        pool = JobPool(scheduler)
    from .report.adders import study, table

    with pool, Bar("report adders") as bar:
        found = study(progress=bar, pool=pool)
    _show({"adders": table(found)}, output)


def _counts(ctx: click.Context, parameter: click.Parameter, text: str) -> list[int]:
    """Numbers of pieces, from ``2,3,4``."""
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise click.BadParameter(f"numbers of pieces are written like 2,3,4, and not {text!r}")
    return [int(word) for word in words]


@report.command()
@click.argument("functions", nargs=-1, metavar="FUNCTION...")
@click.option("--fmt", default="fxp4.12", metavar="FMT", help="operand format; fxp4.12 by default")
@click.option("--to", metavar="FMT", help="result format; that of the operand by default")
@click.option(
    "--pieces",
    default="2,3,4,8,16,32",
    metavar="N,N,...",
    callback=_counts,
    help="line segments; 2,3,4,8,16,32 by default",
)
@click.option("--slopes", default="any", metavar="WHICH", help="any, or pow2: sums of powers of two; any by default")
@click.option("--target", "name", default="vu9p", metavar="NAME", help="device; vu9p by default")
@_scheduled
@_written
def pwl(
    functions: tuple[str, ...],
    fmt: str,
    to: str | None,
    pieces: list[int],
    slopes: str,
    name: str,
    scheduler: str | None,
    output: Path | None,
) -> None:
    """Functions as line segments: error over every code, and cost, against the number of segments.

    FUNCTION is tanh, sigmoid, exp, or another that halfulp sim pwl knows; tanh and sigmoid if none is named. Free
    breakpoints stand beside uniform ones.
    """
    from halfulp.boards.targets import target_of
    from halfulp.tools.jobs import JobPool
    from halfulp.tools.paths import machine_errors
    from halfulp.tools.progress import Bar

    from .report.pwl import cases, study, table, write_files

    with requests():
        target = target_of(name)
        wanted = cases(functions or ("tanh", "sigmoid"), fmt, pieces, to=to, slopes=slopes)
        pool = JobPool(scheduler)
    folder = output or _reports()
    # What is no place for files is told before the work.
    with machine_errors(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    with requests(), pool, Bar("report pwl") as bar:
        found = study(wanted, target, bar, pool)
    click.echo(table(found).markdown())
    words = [*dict.fromkeys(case.fn for case in wanted), "--fmt", fmt, "--pieces", ",".join(map(str, pieces))]
    words += ["--to", to] if to else []
    words += ["--slopes", slopes, "--target", name]
    for path in write_files(found, folder, shlex.join(["halfulp", "report", "pwl", *words])):
        click.echo(f"halfulp: wrote {path}", err=True)


@report.command()
@click.option("--largest", metavar="N", type=int, help="elements of the largest array; 4 by default, 8 takes minutes")
@_scheduled
@_written
def tiles(largest: int | None, scheduler: str | None, output: Path | None) -> None:
    """Systolic arrays beside those of Ben Ali et al. (DATE 2025)."""
    from halfulp.tools.jobs import JobPool
    from halfulp.tools.progress import Bar

    with requests():
        pool = JobPool(scheduler)
    from halfulp.boards.targets import TARGETS
    from halfulp.hdl.specs import MacSpec

    from .kernel.arrays import cores_cost_model
    from .report.tiles import LARGEST, MAC, study, table

    with pool, Bar("report tiles") as bar, requests():
        found = study(LARGEST if largest is None else largest, progress=bar, pool=pool)
        kernels = cores_cost_model(MacSpec.parse(MAC), TARGETS["u55c"], bar, pool)
    _show({"tiles": table(found, kernels)}, output)


_FILE = click.Path(dir_okay=False, path_type=Path)


@report.command()
@click.option("--results", "table", metavar="FILE.csv", type=_FILE, help="table of runs; where halfulp train leaves it")
@click.option("--mac", "texts", metavar="MAC", multiple=True, help="whose dot products; those published by default")
@click.option("--trained", metavar="FILE.pt", type=_FILE, help="a trained layer; one of a LeNet5 by default")
@click.option("--count", default=1024, metavar="N", type=click.IntRange(1, 4096), help="dot products of each kind")
@_written
def accuracy(table: Path | None, texts: tuple[str, ...], trained: Path | None, count: int, output: Path | None) -> None:
    """Networks that were trained, beside those of Ben Ali et al. (DATE 2025), and the error of dot products."""
    import sys

    from halfulp.golden.train.results import results, rows
    from halfulp.hdl.specs import MacSpec
    from halfulp.tools.paths import machine_errors
    from halfulp.tools.progress import Bar

    from .report.accuracy import MACS, default_dots, measure, tables, trained_layer, write_files

    with requests():
        macs = [MacSpec.parse(text) for text in dict.fromkeys(texts or MACS)]
        place = table or results()
        runs = rows(place) if table is not None or place.is_file() else []
    folder = output or _reports()
    # What is no place for files is told before the work.
    with machine_errors(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    with requests(), Bar("report accuracy") as bar:
        layer, text = trained_layer(trained, bar)
        found = measure(macs, runs, default_dots(count, layer), text, shlex.join(["halfulp", *sys.argv[1:]]), bar)
    for one in tables(found).values():
        click.echo(one.markdown())
    for path in write_files(found, folder):
        click.echo(f"halfulp: wrote {path}", err=True)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_scheduled
@_written
def _study(file: Path, scheduler: str | None, output: Path | None) -> None:
    """Multiply-accumulates side by side: cost, clock, error, accuracy, and which no other beats.

    FILE describes a study, in TOML or YAML; or it is the JSON of a finished one, of which tables and plots are made
    again, beside it unless told otherwise.
    """
    from halfulp.tools.jobs import JobPool
    from halfulp.tools.paths import machine_errors

    from .report.coreport import load

    with requests():
        pool = JobPool(scheduler)

    if file.suffix == ".json":
        with requests():
            found = load(file)
        folder = output or file.parent
    else:
        folder = output or _reports()
        # What is no place for files is told before the work.
        with machine_errors(str(folder)):
            folder.mkdir(parents=True, exist_ok=True)
        found = _measured(file, folder / f"{file.stem}.json", pool)
    # matplotlib takes long to load.
    from .report.coreport_tables import tables, write_files

    for table in tables(found).values():
        click.echo(table.markdown())
    for path in write_files(found, folder, file.stem):
        click.echo(f"halfulp: wrote {path}", err=True)


def _measured(file: Path, record: Path, pool: "JobPool") -> "Report":
    """The figures of a study, from its record where nothing changed since."""
    from halfulp.tools.progress import Bar

    from .report.coreport import key_of, load, measure
    from .report.study import read

    with requests():
        study = read(file)
        if record.is_file():
            with contextlib.suppress(ValueError):
                if (found := load(record)).key == key_of(study):
                    return found
        with pool, Bar(f"report {file.name}") as bar:
            return measure(study, shlex.join(["halfulp", "report", file.name]), bar, pool)


def _show(tables: "dict[str, Table]", output: Path | None) -> None:
    """Print tables, and leave them in a folder under their names."""
    folder = output or _reports()
    for stem, table in tables.items():
        click.echo(table.markdown())
        _write_report(table, folder, stem)


def _write_report(table: "Table", folder: Path, stem: str) -> None:
    for path in table.write(folder, stem):
        click.echo(f"halfulp: wrote {path}", err=True)


def _reports() -> Path:
    from halfulp.tools.paths import build_root

    return build_root() / "reports"


@click.group()
def stats() -> None:
    """Statistics of rounding, as a table and plots."""


@stats.command(name="sru")
@click.option(
    "--random",
    "texts",
    metavar="SOURCE",
    multiple=True,
    help="lfsrN, naiveN (the same), plateauN, or with fewer bits lfsrN.srM; several times for several sources",
)
@click.option("--rounds", metavar="N", type=click.IntRange(1), help="of each fraction; a period or 2^17 by default")
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="where the files go; reports/ of the build folder by default",
)
def stats_sru(texts: tuple[str, ...], rounds: int | None, output: Path | None) -> None:
    """How often stochastic rounding goes up, for each random source: measured, by the source's law, and ideally.

    The tables are printed as Markdown and left, with a plot, as Markdown, CSV, LaTeX, PNG and SVG.
    """
    from halfulp.tools.paths import build_root, machine_errors
    from halfulp.tools.progress import Bar

    from .report.stats import SOURCES, Rounder, fractions_table, measure, sources_table

    with requests():
        rounders = [Rounder.parse(text) for text in dict.fromkeys(texts or SOURCES)]
    folder = output or build_root() / "reports"
    # What is no place for files is told before the work.
    with machine_errors(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    with Bar("stats sru") as bar:
        measurements = [measure(rounder, rounds, bar) for rounder in rounders]
    # matplotlib takes long to load.
    from halfulp.tools.plots import plot_chances, write

    files = []
    for stem, table in (
        ("stats-sru-fractions", fractions_table(measurements)),
        ("stats-sru", sources_table(measurements)),
    ):
        click.echo(table.markdown())
        files += table.write(folder, stem)
    files += write(plot_chances([measurement.count.plotted() for measurement in measurements]), folder, "stats-sru")
    for file in files:
        click.echo(f"halfulp: wrote {file}", err=True)
