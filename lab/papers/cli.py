"""Reports of papers: commands of `halfulp report`."""

import importlib
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from halfulp.hdl.specs import MacSpec
from halfulp.options import MAC_TEXTS
from halfulp.tools.commands import Parsed, Refused, publish, report_folder, requests, scheduled, written
from halfulp.tools.errors import ToolError
from halfulp.tools.jobs import JobPool
from halfulp.tools.progress import Bar
from halfulp.tools.report import Report, versions

if TYPE_CHECKING:
    from .trainings import Figures

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@scheduled
@written
def sru(pool: JobPool, output: Path | None) -> None:
    """Compare stochastic rounding units (Chang, DATE 2023)."""
    from .sru import study, tables

    folder = report_folder(output)
    with pool, Bar("report sru") as bar:
        costs = study(progress=bar, pool=pool)
    publish(Report(tables(costs)), folder)


@click.command()
@scheduled
@written
def adders(pool: JobPool, output: Path | None) -> None:
    """Compare lazy and eager stochastic rounding in adders."""
    from .adders import study, table

    folder = report_folder(output)
    with pool, Bar("report adders") as bar:
        costs = study(progress=bar, pool=pool)
    publish(Report({"adders": table(costs)}), folder)


def _of_losses(name: str, sentence: str) -> Callable[[Callable[..., Report]], click.Command]:
    """Return the decorator of the function that makes a report of losses, recorded ones or those of trainings."""

    def command(make: Callable[..., Report]) -> click.Command:
        @click.command(name=name, help=sentence)
        @click.option("--quick", is_flag=True, help="train for one step only; losses mean nothing")
        @click.option(
            "--losses",
            "recorded",
            metavar="FILE.csv",
            type=_FILE,
            help="losses of an earlier report; default: train networks",
        )
        @scheduled
        @written
        def reported(quick: bool, recorded: Path | None, pool: JobPool, output: Path | None) -> None:
            if quick and recorded:
                raise click.UsageError("--quick trains networks and --losses reads a file; give one of them")
            folder = report_folder(output)
            with requests(), pool, Bar(f"report {name}") as bar:
                made = make(quick, recorded, bar, pool)
            publish(made, folder)

        return reported

    return command


@_of_losses("matrix-units", "Compare products and trainings on matrix units.")
def matrix_units(quick: bool, recorded: Path | None, bar: Bar, pool: JobPool) -> Report:
    from .matrix_trainings import losses, read
    from .matrix_units import errors, report

    trained = read(recorded) if recorded else losses(quick=quick, progress=bar, pool=pool)
    return report(list(errors(bar)), trained)


@_of_losses("models", "Compare GPT-2 and Llama in many formats.")
def models(quick: bool, recorded: Path | None, bar: Bar, pool: JobPool) -> Report:
    from .models import EFFORT, QUICK, losses, read, report

    if recorded is None and find_spec("transformers") is None:
        raise ToolError("transformers is not installed; run: pip install 'transformers>=5'")
    rows = read(recorded) if recorded else losses(quick=quick, progress=bar, pool=pool)
    return report(rows, QUICK if quick else EFFORT)


def _record(path: Path, name: str) -> "Figures":
    """Read the record of a report."""
    from .trainings import Figures

    try:
        return Figures.load(path)
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, TypeError, LookupError) as error:
        raise Refused(f"{path} is no record of halfulp report {name}") from error


def _publish_measured(name: str, report: Callable[["Figures"], Report], found: dict[str, Any], folder: Path) -> None:
    """Publish a report of figures that need no training."""
    from .trainings import Effort, Figures

    tools = versions("halfulp", "torch")
    publish(report(Figures(f"halfulp report {name}", str(date.today()), tools, Effort(()), {}, found)), folder)


@click.command()
@written
def emulation(output: Path | None) -> None:
    """Measure what emulation costs (FASE, Arbitor)."""
    from .emulation import measured, report

    folder = report_folder(output)
    with Bar("report emulation") as bar:
        found = measured(progress=bar)
    _publish_measured("emulation", report, found, folder)


@click.command()
@click.option("--quick", is_flag=True, help="measure one network once")
@written
def lowgen(quick: bool, output: Path | None) -> None:
    """Measure a type from two casts (Lowgen, MAPL 2020)."""
    from .lowgen import measured, report

    folder = report_folder(output)
    with Bar("report lowgen") as bar:
        found = measured(quick=quick, progress=bar)
    _publish_measured(f"lowgen{' --quick' * quick}", report, found, folder)


@click.command()
@click.option("--largest", default=4, metavar="N", type=int, help="size of the largest array; default: 4")
@scheduled
@written
def tiles(largest: int, pool: JobPool, output: Path | None) -> None:
    """Compare systolic arrays (Ben Ali, DATE 2025).

    Arrays have up to N elements; those beyond 4 x 4 are synthesised by modules, 64 x 32 in minutes.
    """
    from halfulp.fpga.kernel.arrays import cores_cost_model

    from .tiles import MAC, TARGET, study, table

    folder = report_folder(output)
    with pool, Bar("report tiles") as bar, requests():
        costs = study(largest, progress=bar, pool=pool)
        kernels = cores_cost_model(MacSpec.parse(MAC), TARGET, bar, pool)
    publish(Report({"tiles": table(costs, kernels)}), folder)


@click.command()
@written
def steps(output: Path | None) -> None:
    """Compare training steps on arrays with published ones."""
    from .steps import report, rows

    folder = report_folder(output)
    with Bar("report steps") as bar:
        found = list(rows(progress=bar))
    publish(report(found), folder)


@click.command()
@click.option(
    "--results", "table", metavar="FILE.csv", type=_FILE, help="table of runs; default: that of `halfulp train`"
)
@click.option(
    "--mac",
    "macs",
    metavar="MAC",
    multiple=True,
    type=Parsed(MacSpec.parse, MAC_TEXTS),
    help="MAC of dot products, repeatable; default: published",
)
@click.option("--trained", metavar="FILE.pt", type=_FILE, help="trained layer; default: one of a LeNet5")
@click.option(
    "--count", default=1024, metavar="N", type=click.IntRange(1, 4096), help="dot products of each kind; default: 1024"
)
@scheduled
@written
def accuracy(
    table: Path | None, macs: tuple[MacSpec, ...], trained: Path | None, count: int, pool: JobPool, output: Path | None
) -> None:
    """Compare training and dot products (Ben Ali, DATE 2025)."""
    from halfulp.lab.train.results import results, rows

    from .accuracy import MACS, default_dots, measure, trained_layer
    from .accuracy import report as report_of

    with requests():
        place = table or results()
        runs = rows(place) if table is not None or place.is_file() else []
    folder = report_folder(output)
    with requests(), pool, Bar("report accuracy") as bar:
        layer, text = trained_layer(trained, bar)
        command = shlex.join(["halfulp", *sys.argv[1:]])
        wanted = tuple(dict.fromkeys(macs)) or MACS
        figures = measure(wanted, runs, default_dots(count, layer), text, command, bar, pool)
    publish(report_of(figures), folder)


def _trainings(name: str, sentence: str) -> click.Command:
    """Return the command of a report of trainings, whose module has the cases and the tables."""

    @click.command(name=name, help=sentence)
    @click.option("--quick", is_flag=True, help="train for one step only; accuracies mean nothing")
    @click.option("--seeds", metavar="N", type=click.IntRange(1), help="number of seeds; default: 3")
    @click.option(
        "--add", metavar="FILE.json", type=_FILE, help="record of this report, to which only new figures are added"
    )
    @scheduled
    @written
    def command(quick: bool, seeds: int | None, add: Path | None, pool: JobPool, output: Path | None) -> None:
        from .trainings import QUICK, Effort, added, measure

        module = importlib.import_module(f"halfulp.lab.papers.{name}")
        folder = report_folder(output)
        words = ["halfulp", "report", name, *(["--quick"] if quick else [])]
        words += [] if seeds is None else ["--seeds", str(seeds)]
        with requests(), pool, Bar(f"report {name}") as bar:
            before = None if add is None else _record(add, name)
            effort = QUICK if quick else Effort() if before is None else before.effort
            effort = effort if seeds is None else replace(effort, seeds=tuple(range(seeds)))
            if before is not None and before.effort != effort:
                raise Refused(f"{add} has other seeds or epochs; give those of its trainings, or leave out --add")
            cases = [case for case in module.cases() if before is None or case not in before.values]
            figures = module.measured(quick=quick, pool=pool) if hasattr(module, "measured") else {}
            known = {} if before is None else before.more
            more = {figure: measured() for figure, measured in figures.items() if figure not in known}
            more |= {"most_seeds": module.most_seeds} if hasattr(module, "most_seeds") else {}
            words += [] if before is None else ["--add", f"{name}.json"]
            found = measure(cases, effort, shlex.join(words), str(date.today()), bar, pool, **more)
        publish(module.report(found if before is None else added(before, found)), folder)

    return command


arbitor = _trainings("arbitor", "Compare training in many formats (Jiang, ATC 2023).")
blocks = _trainings("blocks", "Compare training in block formats.")
esru = _trainings("esru", "Compare sources for 8-bit gradients (Chang, DATE 2023).")
fase = _trainings("fase", "Compare BF16 and mixed precision (Osorio, ECML 2022).")
mptorch = _trainings("mptorch", "Compare LeNet5 in ten arithmetics (Ben Ali, DATE 2025).")
