"""Commands about cost: `halfulp synth`, `halfulp cost` and `halfulp report`."""

import contextlib
import importlib
import re
import shlex
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from halfulp.boards.targets import ASIC, Target, check_route, target_of
from halfulp.hdl.specs import MacSpec
from halfulp.hdl.specs.build import MAX_PIPELINE
from halfulp.sim.implementation import Implementation, implementations
from halfulp.sim.options import unit_options
from halfulp.tools.commands import Parsed, Refused, also_written, publish, report_folder, requests, scheduled, written
from halfulp.tools.jobs import JobPool
from halfulp.tools.progress import Bar
from halfulp.tools.report import Report

from .vendor.cli import DEFAULT_CLOCK, clock_option, stages_of, target_option

if TYPE_CHECKING:
    from .report.coreport import Record


_FILE = click.Path(dir_okay=False, path_type=Path)


def _stages(text: str) -> range:
    """Parse numbers of register stages such as ``0..8``."""
    first, dots, last = text.partition("..")
    if not (dots and first.isdecimal() and last.isdecimal() and int(first) <= int(last) <= MAX_PIPELINE):
        raise ValueError(f"invalid --explore {text!r}: expected numbers of stages up to {MAX_PIPELINE}, such as 0..8")
    return range(int(first), int(last) + 1)


def _delays(text: str) -> list[float]:
    """Parse delays in nanoseconds such as ``2,2.5,3``."""
    words = text.split(",")
    if not all(re.fullmatch(r"\d+(\.\d+)?", word) and float(word) for word in words):
        raise ValueError(f"invalid --delays {text!r}: expected nanoseconds such as 2,2.5,3")
    return sorted({float(word) for word in words})


def _device(text: str) -> Target | None:
    """Parse a target of `halfulp synth`; None stands for standard cells."""
    return None if text == ASIC else target_of(text)


_target = target_option(help="device of `halfulp list targets`; default: vu9p")


@click.command()
@unit_options
@target_option(type=Parsed(_device), help="device or asic, of halfulp list targets; default: vu9p")
@click.option("--liberty", metavar="FILE", type=_FILE, help="standard cells of asic; default: OSU 0.18 um of Debian")
@click.option("--delays", metavar="NS,NS,...", type=Parsed(_delays), help="compare delay targets of asic, in ns")
@click.option("--power", is_flag=True, help="simulate vectors for the energy of asic")
@click.option("--route", is_flag=True, help="place and route to measure the clock (ecp5-85k)")
@click.option(
    "--explore", metavar="A..B", type=Parsed(_stages), help="place and route with A to B register stages (ecp5-85k)"
)
@click.option(
    "--flow",
    type=click.Choice(["yosys", "vivado"]),
    default="yosys",
    metavar="TOOL",
    help="yosys, or vivado, which also routes; default: yosys",
)
@clock_option("Vivado")
@scheduled
@also_written
def synth(
    unit: str,
    fmt: str | None,
    target: Target | None,
    liberty: Path | None,
    delays: list[float] | None,
    power: bool,
    route: bool,
    explore: range | None,
    flow: str,
    clock: float | None,
    pool: JobPool,
    output: Path | None,
    **options: Any,
) -> None:
    """Measure the cost of a unit on a device.

    UNIT `all` measures every unit that takes operands in FMT. For asic, Yosys maps it to the cells of a Liberty file.
    """
    vivado, wanted = flow == "vivado", clock
    if target is None:
        if route or explore or vivado or clock is not None:
            raise Refused("--target asic takes none of --route, --explore, --flow vivado and --clock")
        with requests():
            units = implementations(unit, fmt, **options)
        _cells(units, liberty, delays or [], power, pool, output)
        return
    if liberty is not None or delays or power:
        raise Refused("--liberty, --delays and --power are for --target asic; add it")
    with requests():
        _check_flow(target, vivado=vivado, routes=route or explore is not None)
        asked = implementations(unit, fmt, **options, **stages_of(clock, target, options, routed=route or vivado))
        if explore and (len(asked) > 1 or asked[0].build.has_stages):
            raise ValueError(
                "--explore compares the numbers of stages of one unit; omit --pipeline and --clock, and name one unit"
            )
        for one in asked:
            one.component()
        if vivado:
            from .vendor.vivado import check

            clock = DEFAULT_CLOCK if clock is None else clock
            check(target, clock)
    folder = output and report_folder(output)
    if explore:
        from .report.explore import explore as explored

        with pool, Bar("synth") as bar:
            words = asked[0].command("synth", "--target", target.name, "--explore", f"{explore[0]}..{explore[-1]}")
            found = explored(asked[0], explore, target, words, bar, pool)
        publish(found, folder)
        return
    # pandas takes long to load.
    from .report.resources import check_clock, implement_units, measure_units, table

    with pool, Bar("synth") as bar:
        if vivado and clock is not None:
            costs = implement_units(asked, target, bar, clock_mhz=clock, pool=pool)
        else:
            costs = measure_units(asked, target, bar, route=route, clock_mhz=clock, pool=pool)
    publish(Report({"synth": table(asked, costs, target, clock_mhz=clock, vivado=vivado)}), folder)
    if wanted is not None:
        check_clock(costs, wanted, target, vivado=vivado)


def _check_flow(target: Target, *, vivado: bool, routes: bool) -> None:
    """Raise ValueError unless the flow can place and route on a device as ``routes`` asks."""
    if routes:
        check_route(target)
        if vivado:
            raise ValueError("--flow vivado places and routes every unit; --route is for the flow yosys")


def _cells(
    units: list[Implementation],
    liberty: Path | None,
    delays: list[float],
    power: bool,
    pool: JobPool,
    output: Path | None,
) -> None:
    """Measure units in standard cells."""
    from .report.asic import sweep, table
    from .synth.asic import measure_cells
    from .synth.liberty import Library

    with requests():
        library = Library.read(liberty)
        if delays and len(units) > 1:
            raise ValueError("--delays compares the delay targets of one unit; name one unit")
        for one in units:
            one.component()
    folder = output and report_folder(output)
    with requests(), pool, Bar("synth") as bar:
        bar.total("synthesis", len(units))
        costs = measure_cells(units, library, bar, pool, targets=delays, power=power)
    if delays:
        found = sweep(units[0], delays, costs[0], library)
    else:
        found = Report({"synth": table(units, [first for first, *_ in costs], library)})
    publish(found, folder)


def _no_unit(ctx: click.Context, parameter: click.Parameter, unit: str | None) -> None:
    if unit is not None:
        raise Refused(f"halfulp cost takes no unit; halfulp synth {shlex.quote(unit)} measures one")


@click.command()
@click.argument("unit", required=False, metavar="", expose_value=False, callback=_no_unit)
@scheduled
@written
def cost(pool: JobPool, output: Path | None) -> None:
    """Measure the units of the cost records and write them as CSV.

    `make cost` writes the records of the project in fpga/results, so that version control shows each change of cost.
    """
    from .report.records import write

    with pool, Bar("cost") as bar:
        for path in write(report_folder(output), bar, pool):
            click.echo(f"halfulp: wrote {path}", err=True)


class _Reports(click.Group):
    """Group of the named reports; it also accepts the file of a study in place of a name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the name of a report, or the file of a study, to a command and its arguments."""
        if Path(args[0]).suffix in (".toml", ".json"):
            return "STUDY", _study, args
        if args[0] not in self.commands:
            raise Refused(
                f"unknown report {args[0]!r}; expected {', '.join(self.commands)}, or a .toml file that describes a "
                "study; halfulp synth measures one unit"
            )
        return super().resolve_command(ctx, args)


@click.group(cls=_Reports)
def report() -> None:
    """Compare units by cost, error and accuracy, in tables and plots.

    COMMAND is a report of the list below, or the TOML file of a study, which compares multiply-accumulates by cost,
    clock, error and accuracy. The JSON file of a finished study draws its tables and plots again.
    """


@report.command()
@scheduled
@written
def sru(pool: JobPool, output: Path | None) -> None:
    """Compare stochastic rounding units (Chang, DATE 2023)."""
    from .report.sru import study, tables

    folder = report_folder(output)
    with pool, Bar("report sru") as bar:
        found = study(progress=bar, pool=pool)
    publish(Report(tables(found)), folder)


@report.command()
@scheduled
@written
def adders(pool: JobPool, output: Path | None) -> None:
    """Compare lazy and eager stochastic rounding in adders."""
    from .report.adders import study, table

    folder = report_folder(output)
    with pool, Bar("report adders") as bar:
        found = study(progress=bar, pool=pool)
    publish(Report({"adders": table(found)}), folder)


@report.command()
@scheduled
@written
def delays(pool: JobPool, output: Path | None) -> None:
    """Compare the delay model with place and route (ECP5).

    The table has operators of several widths and units with register stages; its notes have the error and the constants
    of least error.
    """
    from .report.delays import measure, table

    folder = report_folder(output)
    with pool, Bar("report delays") as bar:
        found = measure(bar, pool)
    publish(Report({"delays": table(found)}), folder)


@report.command()
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--top", required=True, metavar="NAME", help="module to measure")
@click.option("--clock-port", metavar="NAME", help="port of the clock, with --route")
@click.option("--route", is_flag=True, help="place and route to measure the clock (ecp5-85k)")
@_target
@scheduled
@written
def peers(
    files: tuple[Path, ...],
    top: str,
    clock_port: str | None,
    route: bool,
    target: Target,
    pool: JobPool,
    output: Path | None,
) -> None:
    """Measure a unit of another project.

    FILE are its sources in Verilog, or in SystemVerilog or VHDL if sv2v or GHDL is installed. They are synthesised with
    the settings of `halfulp synth`.
    """
    from .report.peers import measure, table

    with requests():
        if route:
            check_route(target)
    folder = report_folder(output)
    with pool, Bar("report peers") as bar, requests():
        found = measure(files, top, target, clock=clock_port, route=route, progress=bar, pool=pool)
    publish(Report({"peers": table(top, found, target)}), folder)


def _counts(text: str) -> list[int]:
    """Parse numbers of pieces such as ``2,3,4``."""
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise ValueError(f"invalid --pieces {text!r}: expected numbers such as 2,3,4")
    return [int(word) for word in words]


@report.command()
@click.argument("functions", nargs=-1, metavar="[FUNCTION]...")
@click.option("--fmt", default="fxp4.12", metavar="FMT", help="operand format; default: fxp4.12")
@click.option("--to", metavar="FMT", help="result format; default: that of the operand")
@click.option(
    "--pieces",
    default="2,3,4,8,16,32",
    metavar="N,N,...",
    type=Parsed(_counts),
    help="numbers of segments; default: 2,3,4,8,16,32",
)
@click.option("--slopes", default="any", metavar="KIND", help="any, or pow2: sums of powers of two; default: any")
@_target
@scheduled
@written
def pwl(
    functions: tuple[str, ...],
    fmt: str,
    to: str | None,
    pieces: list[int],
    slopes: str,
    target: Target,
    pool: JobPool,
    output: Path | None,
) -> None:
    """Compare line segments of functions by error and cost.

    FUNCTION is a function of `halfulp sim pwl`, such as exp; default: tanh and sigmoid. Errors are over all codes. The
    report compares free and uniform breakpoints, for each number of segments.
    """
    from .report.pwl import cases, study
    from .report.pwl import report as report_of

    with requests():
        wanted = cases(functions or ("tanh", "sigmoid"), fmt, pieces, to=to, slopes=slopes)
    folder = report_folder(output)
    with requests(), pool, Bar("report pwl") as bar:
        found = study(wanted, target, bar, pool)
    words = [*dict.fromkeys(case.fn for case in wanted), "--fmt", fmt, "--pieces", ",".join(map(str, pieces))]
    words += ["--to", to] if to else []
    words += ["--slopes", slopes, "--target", target.name]
    publish(report_of(found, target, shlex.join(["halfulp", "report", "pwl", *words])), folder)


@report.command()
@click.option("--largest", default=4, metavar="N", type=int, help="size of the largest array; default: 4")
@scheduled
@written
def tiles(largest: int, pool: JobPool, output: Path | None) -> None:
    """Compare systolic arrays (Ben Ali, DATE 2025).

    Arrays have up to N elements; those beyond 4 x 4 are synthesised by modules, 64 x 32 in minutes.
    """
    from .kernel.arrays import cores_cost_model
    from .report.tiles import MAC, TARGET, study, table

    folder = report_folder(output)
    with pool, Bar("report tiles") as bar, requests():
        found = study(largest, progress=bar, pool=pool)
        kernels = cores_cost_model(MacSpec.parse(MAC), TARGET, bar, pool)
    publish(Report({"tiles": table(found, kernels)}), folder)


@report.command()
@click.argument("units", nargs=-1, metavar="[UNIT]...")
@click.option(
    "--stages",
    default=8,
    metavar="N",
    type=click.IntRange(1, MAX_PIPELINE),
    help="measure up to N register stages; default: 8",
)
@click.option("--count", default=5, metavar="N", type=click.IntRange(0), help="drawn clocks of each unit; default: 5")
@click.option("--seed", default=0, metavar="N", type=click.IntRange(0), help="seed of the random generator; default: 0")
@click.option(
    "--seeds",
    default=1,
    metavar="N",
    type=click.IntRange(1),
    help="median of N placements; default: 1",
)
@click.option("--goal", metavar="GOAL", help="area (default), speed, or loop: short loops of sums")
@click.option("--slices", is_flag=True, help="also divide netlists without stages into equal slices")
@scheduled
@written
def clocks(
    units: tuple[str, ...],
    stages: int,
    count: int,
    seed: int,
    seeds: int,
    goal: str | None,
    slices: bool,
    pool: JobPool,
    output: Path | None,
) -> None:
    """Compare stages for a clock with place and route (ECP5).

    UNIT is a text; default: ten units. Clocks are drawn between those of neighbouring numbers of register stages. The
    delay model takes the stages for each, and place and route measures the clocks with them and with one stage fewer.
    `--count 0 --seeds 3 --slices` compares only the clocks by stages with those of slices.
    """
    from .report.clocks import UNITS, study, tables

    with requests():
        found = [implementations(unit, goal=goal)[0] for unit in units or UNITS]
        for one in found:
            one.component()
    folder = report_folder(output)
    with pool, Bar("report clocks") as bar, requests():
        measured, drawn = study(
            found,
            stages=stages,
            count=count,
            seed=seed,
            seeds=seeds,
            slices=slices,
            progress=bar,
            pool=pool,
        )
    publish(Report(tables(measured, drawn, seeds)), folder)


@report.command()
@click.option(
    "--results", "table", metavar="FILE.csv", type=_FILE, help="table of runs; default: that of `halfulp train`"
)
@click.option(
    "--mac",
    "macs",
    metavar="MAC",
    multiple=True,
    type=Parsed(MacSpec.parse),
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
    from halfulp.golden.train.results import results, rows

    from .report.accuracy import MACS, default_dots, measure, trained_layer
    from .report.accuracy import report as report_of

    with requests():
        place = table or results()
        runs = rows(place) if table is not None or place.is_file() else []
    folder = report_folder(output)
    with requests(), pool, Bar("report accuracy") as bar:
        layer, text = trained_layer(trained, bar)
        command = shlex.join(["halfulp", *sys.argv[1:]])
        wanted = tuple(dict.fromkeys(macs)) or MACS
        found = measure(wanted, runs, default_dots(count, layer), text, command, bar, pool)
    publish(report_of(found), folder)


def _trainings(name: str, sentence: str) -> None:
    """Add a report of trainings, whose module has the cases and the tables."""

    @report.command(name=name, help=sentence)
    @click.option("--quick", is_flag=True, help="train for one step only; accuracies mean nothing")
    @scheduled
    @written
    def command(quick: bool, pool: JobPool, output: Path | None) -> None:
        from .report.trainings import QUICK, Effort, measure

        module = importlib.import_module(f"halfulp.fpga.report.{name}")
        folder = report_folder(output)
        words = ["halfulp", "report", name, *(["--quick"] if quick else [])]
        with requests(), pool, Bar(f"report {name}") as bar:
            more = module.measured() if hasattr(module, "measured") else {}
            effort = QUICK if quick else Effort()
            found = measure(module.cases(), effort, shlex.join(words), str(date.today()), bar, pool, **more)
        publish(module.report(found), folder)


_trainings("arbitor", "Compare training in many formats (Jiang, ATC 2023).")
_trainings("blocks", "Compare training in block formats.")
_trainings("esru", "Compare sources for 8-bit gradients (Chang, DATE 2023).")
_trainings("fase", "Compare BF16 and mixed precision (Osorio, ECML 2022).")


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@scheduled
@written
def _study(file: Path, pool: JobPool, output: Path | None) -> None:
    """Compare multiply-accumulates by cost, clock, error and accuracy.

    FILE is the TOML file of a study, or the JSON file of a finished study, whose tables and plots are drawn again,
    by default in its folder. If a multiply-accumulate misses the clock of the study, all files are written and the exit
    code is 1.
    """
    from .report.coreport import load

    if file.suffix == ".json":
        with requests():
            found = load(file)
        folder = output or file.parent
    else:
        folder = report_folder(output)
        found = _measured(file, folder / f"{file.stem}.json", pool)
    # matplotlib takes long to load.
    from .report.coreport_tables import report as report_of

    publish(report_of(found, file.stem), folder)
    found.check_clock()


def _measured(file: Path, record: Path, pool: JobPool) -> "Record":
    """Return the figures of a study, from its record if nothing changed since then."""
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


@click.group()
def stats() -> None:
    """Measure the statistics of stochastic rounding."""


@stats.command(name="sru")
@click.option(
    "--random",
    "texts",
    metavar="SOURCE",
    multiple=True,
    help="lfsrN, naiveN, plateauN or lfsrN.srM; repeatable",
)
@click.option("--rounds", metavar="N", type=click.IntRange(1), help="roundings per fraction; default: period or 2^17")
@written
def stats_sru(texts: tuple[str, ...], rounds: int | None, output: Path | None) -> None:
    """Measure the frequency of rounding up, per random source.

    The table compares it with the exact and the ideal frequency. A naiveN is an lfsrN; lfsrN.srM takes M bits of N.
    Tables are printed as Markdown, and written with a plot as Markdown, CSV, LaTeX, PNG and SVG.
    """
    from .report.stats import SOURCES, Rounder, measure
    from .report.stats import report as report_of

    with requests():
        rounders = [Rounder.parse(text) for text in dict.fromkeys(texts or SOURCES)]
    folder = report_folder(output)
    with Bar("stats sru") as bar:
        measurements = [measure(rounder, rounds, bar) for rounder in rounders]
    words = ["halfulp", "stats", "sru", *(f"--random={text}" for text in texts)]
    publish(report_of(measurements, shlex.join(words)), folder)
