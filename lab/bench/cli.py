"""Commands `halfulp bench` and `halfulp cost`, and the reports `clocks`, `composed`, `delays` and `peers`."""

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from halfulp.boards.targets import Target, check_route
from halfulp.fpga.vendor.cli import target_option
from halfulp.hdl.specs.build import MAX_PIPELINE
from halfulp.implementation import implementations
from halfulp.options import GOAL, UNIT
from halfulp.tools.commands import Refused, publish, report_folder, requests, scheduled, show, written
from halfulp.tools.jobs import JobPool
from halfulp.tools.progress import Bar
from halfulp.tools.records import read_records
from halfulp.tools.report import Report


@click.command()
@click.option(
    *("-o", "--output"),
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="write the ratios to torch as CSV",
)
@click.option("--gpu", is_flag=True, help="test and measure the kernels of a GPU")
def bench(output: Path | None, gpu: bool) -> None:
    """Measure the speed of the golden model and of simulations.

    Speeds are relative to other speeds of the same run; those of matrix products, conversions to blocks and training
    steps, to torch in FP32. The packages mmasim and apytypes are measured if they are installed. The file has matrix
    products and training steps. With --gpu, the table has the kernels of a GPU, and the exit code is 1 if a bit differs
    from the CPU.
    """
    if gpu:
        if output is not None:
            raise click.UsageError("--gpu prints a table and writes no file; omit -o")
        _bench_gpu()
        return
    from . import packages
    from .speed import Speed, first_calls, matrix_units, products, quantizations, table, write
    from .training import steps

    if output is not None and not output.parent.is_dir():
        raise click.UsageError(f"{output.parent} is no folder; give a file in an existing folder")
    speeds: list[Speed] = []
    times: list[dict[str, Any]] = []
    units = [*matrix_units(speeds), "", *packages.table(speeds)]
    lines = [*table(times), "", *products(speeds), "", *units, "", *first_calls(times), "", *quantizations(times), ""]
    show("\n".join(lines), None)
    with Bar("bench") as bar:
        for line in steps(speeds, progress=bar):
            show(line, None)
    show(None, {"speeds": [*times, *(asdict(speed) | {"ratio": speed.ratio} for speed in speeds)]})
    if output is not None:
        write(speeds, output)


def _bench_gpu() -> None:
    from .gpu import device, study

    with requests():
        here = device()
    if not study(here, show):
        sys.exit(1)


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
    from .records import write

    with pool, Bar("cost") as bar:
        for path in write(report_folder(output), bar, pool):
            click.echo(f"halfulp: wrote {path}", err=True)
            show(None, {"file": path, "rows": read_records(path, {})})


@click.command()
@scheduled
@written
def delays(pool: JobPool, output: Path | None) -> None:
    """Compare the delay model with place and route (ECP5).

    The table has operators of several widths and units with register stages; its notes have the error and the constants
    of least error.
    """
    from .delays import measure, table

    folder = report_folder(output)
    with pool, Bar("report delays") as bar:
        measured = measure(bar, pool)
    publish(Report({"delays": table(measured)}), folder)


@click.command()
@written
def composed(output: Path | None) -> None:
    """Measure the total errors of softmax, rmsnorm and layernorm.

    Results of the golden model on random vectors are compared with the real function of the same operands.
    """
    from .composed import study, table

    folder = report_folder(output)
    with Bar("report composed") as bar:
        measured = study(bar)
    publish(Report({"composed": table(measured)}), folder)


@click.command()
@click.argument("units", nargs=-1, metavar="[UNIT]...", type=UNIT)
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
@click.option("--goal", metavar="GOAL", type=GOAL, help="area (default), speed, or loop: short loops of sums")
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
    from .clocks import UNITS, study, tables

    with requests():
        chosen = [implementations(unit, goal=goal)[0] for unit in units or UNITS]
        for unit in chosen:
            unit.component()
    folder = report_folder(output)
    with pool, Bar("report clocks") as bar, requests():
        measured, drawn = study(
            chosen,
            stages=stages,
            count=count,
            seed=seed,
            seeds=seeds,
            slices=slices,
            progress=bar,
            pool=pool,
        )
    publish(Report(tables(measured, drawn, seeds)), folder)


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--top", metavar="NAME", help="module to measure, with FILE")
@click.option(
    "--include",
    multiple=True,
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="folder of included files of SystemVerilog",
)
@click.option("--clock-port", metavar="NAME", help="port of the clock, with --route")
@click.option("--route", is_flag=True, help="place and route to measure the clock (ecp5-85k)")
@target_option(help="device of `halfulp list targets`; default: vu9p")
@scheduled
@written
def peers(
    files: tuple[Path, ...],
    top: str | None,
    include: tuple[Path, ...],
    clock_port: str | None,
    route: bool,
    target: Target,
    pool: JobPool,
    output: Path | None,
) -> None:
    """Measure a unit of another project.

    FILE are its sources in Verilog or SystemVerilog, or in VHDL if GHDL is installed. They are synthesised with the
    settings of `halfulp synth`. Without FILE, the units of FPnew are measured that `fpga/results/peers.csv` has.
    """
    from . import fpnew
    from .peers import measure, table

    if bool(files) != bool(top):
        raise click.UsageError("give FILE and --top, or neither for the units of FPnew")
    if not files:
        context = click.get_current_context()
        for name in ("include", "clock_port", "route", "target"):
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise click.UsageError(f"--{name.replace('_', '-')} needs FILE; omit it for the units of FPnew")
    with requests():
        if route:
            check_route(target)
    folder = report_folder(output)
    with pool, Bar("report peers") as bar, requests():
        if top:
            cost = measure(files, top, target, include=include, clock=clock_port, route=route, progress=bar, pool=pool)
            found = table(top, cost, target)
        else:
            found = fpnew.table(bar, pool)
    publish(Report({"peers": found}), folder)
