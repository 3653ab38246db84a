"""Commands about cost and error: `halfulp synth`, `halfulp stats`, and the reports `pwl` and of a study."""

import contextlib
import re
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from halfulp.boards.targets import ASIC, DEVICES, Target, check_route, target_of
from halfulp.hdl.specs.build import MAX_PIPELINE
from halfulp.hdl.specs.pwl import FUNCTIONS, SLOPES
from halfulp.implementation import Implementation, implementation, implementations
from halfulp.options import FORMAT, unit_options
from halfulp.tools.commands import (
    Command,
    Parsed,
    Refused,
    also_written,
    publish,
    report_folder,
    requests,
    scheduled,
    written,
)
from halfulp.tools.extras import check_installed
from halfulp.tools.jobs import JobPool
from halfulp.tools.progress import Bar
from halfulp.tools.report import Report

from .constraints import DEFAULT_CLOCK
from .vendor.cli import clock_option, stages_of, target_option

if TYPE_CHECKING:
    from .report.coreport import Record


NEXTPNR = "halfulp.fpga.synth.nextpnr"
"""Module that places and routes; what it needs is checked before units are synthesised."""

_FILE = click.Path(dir_okay=False, path_type=Path)


def _stages(option: str, text: str) -> range:
    """Parse the numbers of register stages of an option, such as ``0..8``."""
    first, dots, last = text.partition("..")
    if not (dots and first.isdecimal() and last.isdecimal() and int(first) <= int(last) <= MAX_PIPELINE):
        raise ValueError(f"invalid {option} {text!r}: expected numbers of stages up to {MAX_PIPELINE}, such as 0..8")
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


@click.command(cls=Command)
@unit_options
@target_option(type=Parsed(_device, (*DEVICES, ASIC)), help="device or asic, of halfulp list targets; default: vu9p")
@click.option("--liberty", metavar="FILE", type=_FILE, help="standard cells of asic; default: OSU 0.18 um of Debian")
@click.option("--delays", metavar="NS,NS,...", type=Parsed(_delays), help="compare delay targets of asic, in ns")
@click.option("--power", is_flag=True, help="simulate vectors for the energy of asic")
@click.option("--route", is_flag=True, help="place and route to measure the clock (ecp5-85k)")
@click.option(
    "--explore",
    metavar="A..B",
    type=Parsed(partial(_stages, "--explore")),
    help="place and route with A to B register stages (ecp5-85k)",
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
    _check_options(target, any((route, explore, vivado, clock is not None)), any((liberty, delays, power)))
    if target is None:
        with requests():
            units = implementations(unit, fmt, composed=not power, **options)
        _cells(units, liberty, delays or [], power, pool, output)
        return
    with requests():
        _check_flow(target, vivado=vivado, routes=route or explore is not None)
        flow = "--route" if target.nextpnr else "--flow vivado"
        stages = stages_of(clock, target, options, routed=route or vivado, flow=flow)
        asked = implementations(unit, fmt, composed=not explore, **options, **stages)
        if explore and (len(asked) > 1 or asked[0].build.has_stages):
            raise ValueError(
                "--explore compares the numbers of stages of one unit; omit --pipeline and --clock, and name one unit"
            )
        for implementation in asked:
            implementation.component()
        if vivado:
            from .vendor.vivado import check

            clock = DEFAULT_CLOCK if clock is None else clock
            check(target, clock)
    folder = output and report_folder(output)
    if explore:
        from .report.explore import explore as explored

        with pool, Bar("synth") as bar:
            words = asked[0].command("synth", "--target", target.name, "--explore", f"{explore[0]}..{explore[-1]}")
            report = explored(asked[0], explore, target, words, bar, pool)
        publish(report, folder)
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


@click.command(cls=Command)
@unit_options
@target_option(default="ecp5-85k", help="device that nextpnr supports; default: ecp5-85k")
@click.option("--clock", metavar="MHZ", type=float, required=True, help="clock to meet after place and route")
@click.option(
    "--stages",
    metavar="A..B",
    type=Parsed(partial(_stages, "--stages")),
    help="register stages to try; default: by the delay model",
)
@scheduled
@also_written
def choose(
    unit: str,
    fmt: str | None,
    target: Target,
    clock: float,
    stages: range | None,
    pool: JobPool,
    output: Path | None,
    **options: Any,
) -> None:
    """Find the smallest build of a unit that meets a clock.

    The clock is measured by nextpnr, after place and route of the unit between registers; sizes are those of Yosys.
    Builds differ in goal, DSP blocks, other structures, and number and places of register stages; an option such as
    --no-dsp or --pipeline fixes its part. From the fewest LUT on, builds are placed and routed until one meets the
    clock. The table has all that were measured, and the last line writes the chosen one. The exit code is 1 if no
    measured build meets the clock.
    """
    # pandas takes long to load.
    from .report.choose import choose as chosen

    with requests():
        asked = implementation(unit, fmt, **options)
        check_route(target)
        check_installed(NEXTPNR)
        target.check_clock(clock)
        fixed = [name for name, value in options.items() if value is not None]
    folder = output and report_folder(output)
    words = [
        "--target",
        target.name,
        "--clock",
        f"{clock:g}",
        *(["--stages", f"{stages[0]}..{stages[-1]}"] if stages else []),
    ]
    with requests(), pool, Bar("choose") as bar:
        choice = chosen(asked, target, clock, fixed=fixed, stages=stages, progress=bar, pool=pool)
    best = choice.chosen
    lines = ["", best.unit.command("emit")] if best else []
    publish(choice.report(asked.command("choose", *words)), folder, lines, choice.data())
    choice.check()


def _check_options(target: Target | None, of_devices: bool, of_cells: bool) -> None:
    """Refuse options that the target does not take."""
    if target is None and of_devices:
        raise Refused("--target asic takes none of --route, --explore, --flow vivado and --clock")
    if target is not None and of_cells:
        raise Refused("--liberty, --delays and --power are for --target asic; add it")


def _check_flow(target: Target, *, vivado: bool, routes: bool) -> None:
    """Raise ValueError unless the flow can place and route on a device as ``routes`` asks."""
    if routes:
        check_route(target)
        if vivado:
            raise ValueError("--flow vivado places and routes every unit; --route is for the flow yosys")
        check_installed(NEXTPNR)


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
        for unit in units:
            unit.component()
    folder = output and report_folder(output)
    with requests(), pool, Bar("synth") as bar:
        bar.total("synthesis", len(units))
        costs = measure_cells(units, library, bar, pool, targets=delays, power=power)
    if delays:
        report = sweep(units[0], delays, costs[0], library)
    else:
        report = Report({"synth": table(units, [first for first, *_ in costs], library)})
    publish(report, folder)


def _counts(text: str) -> list[int]:
    """Parse numbers of pieces such as ``2,3,4``."""
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise ValueError(f"invalid --pieces {text!r}: expected numbers such as 2,3,4")
    return [int(word) for word in words]


@click.command()
@click.argument("functions", nargs=-1, metavar="[FUNCTION]...", type=Parsed(words=FUNCTIONS))
@click.option("--fmt", default="fxp4.12", metavar="FMT", type=FORMAT, help="operand format; default: fxp4.12")
@click.option("--to", metavar="FMT", type=FORMAT, help="result format; default: that of the operand")
@click.option(
    "--pieces",
    default="2,3,4,8,16,32",
    metavar="N,N,...",
    type=Parsed(_counts),
    help="numbers of segments; default: 2,3,4,8,16,32",
)
@click.option(
    "--slopes",
    default="any",
    metavar="KIND",
    type=Parsed(words=SLOPES),
    help="any, or pow2: sums of powers of two; default: any",
)
@target_option(help="device of `halfulp list targets`; default: vu9p")
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
        measured = study(wanted, target, bar, pool)
    words = [*dict.fromkeys(case.fn for case in wanted), "--fmt", fmt, "--pieces", ",".join(map(str, pieces))]
    words += ["--to", to] if to else []
    words += ["--slopes", slopes, "--target", target.name]
    publish(report_of(measured, target, shlex.join(["halfulp", "report", "pwl", *words])), folder)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@scheduled
@written
def study(file: Path, pool: JobPool, output: Path | None) -> None:
    """Compare multiply-accumulates by cost, clock, error and accuracy.

    FILE is the TOML file of a study, or the JSON file of a finished study, whose tables and plots are drawn again,
    by default in its folder. If a multiply-accumulate misses the clock of the study, all files are written and the exit
    code is 1.
    """
    from .report.coreport import load

    if file.suffix == ".json":
        with requests():
            record = load(file)
        folder = output or file.parent
    else:
        folder = report_folder(output)
        record = _measured(file, folder / f"{file.stem}.json", pool)
    # matplotlib takes long to load.
    from .report.coreport_tables import report as report_of

    publish(report_of(record, file.stem), folder)
    record.check_clock()


def _measured(file: Path, record: Path, pool: JobPool) -> "Record":
    """Return the figures of a study, from its record if nothing changed since then."""
    from .report.coreport import key_of, load, measure
    from .report.study import read

    with requests():
        study = read(file)
        if record.is_file():
            with contextlib.suppress(ValueError):
                if (recorded := load(record)).key == key_of(study):
                    return recorded
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
    help="lfsrN, naiveN, plateauN[-rep], lfsrN.srM; repeatable",
)
@click.option("--rounds", metavar="N", type=click.IntRange(1), help="roundings per fraction; default: period or 2^17")
@written
def stats_sru(texts: tuple[str, ...], rounds: int | None, output: Path | None) -> None:
    """Measure the frequency of rounding up, per random source.

    The table compares it with the exact and the ideal frequency. lfsrN.srM takes M bits of N.
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
