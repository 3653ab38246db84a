"""Commands that run units and check results of other units."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from halfulp.hdl.specs import UNITS
from halfulp.implementation import implementation, implementations
from halfulp.options import unit_options
from halfulp.tools.commands import (
    Command,
    Parsed,
    also_written,
    publish,
    report_folder,
    requests,
    scheduled,
    show,
    written,
)
from halfulp.tools.jobs import JobPool


@click.command(cls=Command)
@unit_options
@click.option("--seed", default=0, metavar="N", type=click.IntRange(0), help="seed of the random generator; default: 0")
@click.option("--vectors", metavar="N", type=click.IntRange(1), help="maximum number of independent vectors")
@click.option("--vector", metavar="CODES", help="run one vector, such as 0x3c,0x40,0x001")
@click.option("--wave", is_flag=True, help="write a waveform with decoded numbers")
def sim(
    unit: str, fmt: str | None, seed: int, vectors: int | None, vector: str | None, wave: bool, **options: Any
) -> None:
    """Check a unit against the golden model.

    UNIT `all` checks every unit of the catalogue. Results are also written as JUnit XML, in results/ of the build
    folder (build, or HALFULP_BUILD).
    """
    from halfulp.tools.progress import Bar
    from halfulp.units.base import Unit

    from .bench import run
    from .ports import Ports
    from .report import expected_lines, fit_lines, summary

    with requests():
        if unit == "all" and vector is not None:
            raise ValueError("--vector goes with one unit, not with all of them")
        composed = vector is None and not wave
        units = [asked.component() for asked in implementations(unit, fmt, composed=composed, **options)]
        for built in units:
            if isinstance(built, Unit):
                built.check_one_latency("halfulp sim")
        chosen = None if vector is None else Ports.inputs_of(units[0]).read_vector(vector)
    passed = True
    for built in units:
        with Bar(built.name) as bar:
            result = run(built, seed=seed, limit=vectors, vector=chosen, wave=wave, progress=bar)
        result.notes += fit_lines(built)
        if chosen is not None:
            result.notes += expected_lines(built, chosen)
        show(summary(result), result.data)
        passed = passed and result.passed
    sys.exit(0 if passed else 1)


@click.command(cls=Command)
@unit_options
@click.option("--vector", required=True, metavar="CODES", help="such as 0x3c,0x40; steps separated by ;")
@click.option("--why", default="found by hand", metavar="TEXT", help="reason in one line; default: found by hand")
def save(unit: str, fmt: str | None, vector: str, why: str, **options: Any) -> None:
    """Save a vector of a unit as a regression.

    Regressions run before all other vectors. Units with an accumulator take codes for load and clear too, and several
    steps from reset, separated by semicolons. The golden model and exact arithmetic must agree on the results. The
    files are in tests/regressions, or in the folder HALFULP_REGRESSIONS.
    """
    from . import regressions
    from .ports import Ports

    with requests():
        built = implementation(unit, fmt, **options)
        built = replace(built, spec=built.spec.without_source).component()
        steps = regressions.parse_steps(vector, Ports.inputs_of(built))
        row = regressions.with_results(built, steps, why)
        path, new = regressions.save(built, row)
    text = row.text(built)
    show(text, {"unit": built.spec.text, "vector": text, "file": path, "new": new})
    click.echo(f"halfulp: {'saved in' if new else 'already in'} {path}", err=True)


@click.command(cls=Command)
@unit_options
@click.option("--seed", default=0, metavar="N", type=click.IntRange(0), help="seed of the random generator; default: 0")
@click.option("--vectors", metavar="N", type=click.IntRange(1), help="number of sampled vectors; default: every input")
@click.option("--restart", is_flag=True, help="start over; default: resume an interrupted run")
@scheduled
def sweep(
    unit: str, fmt: str | None, seed: int, vectors: int | None, restart: bool, pool: JobPool, **options: Any
) -> None:
    """Compare a unit with the golden model on every input."""
    from halfulp.tools.progress import Bar

    from .report import summary
    from .sweep import Interrupted, vectors_of
    from .sweep import sweep as run

    with requests():
        built = implementation(unit, fmt, **options).component()
        built.check_one_latency("halfulp sweep")
        vectors_of(built, seed=seed, limit=vectors)
    try:
        with pool, Bar(built.name) as bar:
            result = run(built, seed=seed, limit=vectors, restart=restart, progress=bar, pool=pool)
    except Interrupted as stop:
        click.echo(f"halfulp: stopped; {stop}", err=True)
        sys.exit(130)
    show(summary(result), result.data)
    sys.exit(0 if result.passed else 1)


@click.command(cls=Command)
@unit_options
@click.option(
    "--as",
    "layout",
    type=click.Choice(["txt", "c", "sv", "npz"]),
    help="layout; default: by the ending, or txt",
)
@click.option("--seed", default=0, metavar="N", type=click.IntRange(0), help="seed of the random generator; default: 0")
@click.option("--vectors", "count", metavar="N", type=click.IntRange(1), help="maximum number; default: 65536")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help=".txt, .h, .svh or .npz; default: print lines",
)
def vectors(
    unit: str,
    fmt: str | None,
    layout: str | None,
    seed: int,
    count: int | None,
    output: Path | None,
    **options: Any,
) -> None:
    """Write test vectors of a unit with their results.

    The results are those of the golden model. The vectors are all inputs of a small unit, or directed and random ones.
    The layout is lines of codes in hexadecimal as TestFloat has them, a C header, an include file for SystemVerilog, or
    a numpy archive.
    """
    from . import vector_files

    with requests():
        layout = vector_files.layout_of(output, layout)
        if layout == "npz" and output is None:
            raise ValueError("a numpy archive needs a file; give one with -o")
        built = implementation(unit, fmt, **options).buildable.component()
        table = vector_files.Table.of(built, seed=seed, limit=count)
    data = {"unit": built.spec.text, "vectors": table.count}
    if output is None:
        text = vector_files.LAYOUTS[layout][1](table)
        show(str(text).removesuffix("\n"), {**data, "files": [], "text": text})
    else:
        vector_files.write(table, layout, output)
        show(None, {**data, "files": [{"path": output, "kind": "vectors"}]})
        click.echo(f"halfulp: wrote {table.count:,} vectors, {table.what}, to {output}", err=True)


@click.command(cls=Command)
@unit_options
@click.option(
    "--results",
    required=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="vectors with the results of another unit",
)
@also_written
def check(unit: str, fmt: str | None, results: Path, output: Path | None, **options: Any) -> None:
    """Explain wrong results of another unit or library.

    They are compared with those of the golden model. The file has lines as `halfulp vectors` writes them, or is a
    numpy archive. A cause is a known fault, such as double rounding, with which the golden model gives the same wrong
    results.
    """
    from . import checking

    with requests():
        built = implementation(unit, fmt, **options).buildable.component()
        result = checking.check(built, results)
    data = {"unit": built.spec.text, "checked": result.given.count, "wrong": result.wrong}
    publish(checking.report(result), output and report_folder(output), checking.examples(result), data)
    sys.exit(1 if result.wrong else 0)


@click.command(cls=Command)
@click.argument("units", nargs=-1, metavar="[UNIT]...", type=Parsed(words=UNITS))
@click.option(
    "--oracles",
    metavar="XML",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JUnit XML of a run of tests/oracles",
)
@click.option("--all", "every", is_flag=True, help="also check units whose records are current")
@click.option("--compare", is_flag=True, help="only renew digests of current records, list stale ones")
@scheduled
@written
def signoff(
    units: tuple[str, ...], oracles: Path | None, every: bool, compare: bool, pool: JobPool, output: Path | None
) -> None:
    """Check every unit in every format family and write the records.

    The checks are sweeps, proofs, coverage and mutants of representative formats. Default: all units whose records are
    missing, or stale because their netlist or golden results have changed. An interrupted run continues after the last
    finished check. `make signoff` writes the records of the project in sim/results.
    """
    from halfulp.tools.progress import Bar
    from halfulp.units.catalogue import CATALOGUE, row

    from .signoff import failed, key_of, read, renew, write, write_oracles
    from .signoff_page import table

    with requests():
        names = [row(name).name for name in units] or list(CATALOGUE)
    folder, passed = report_folder(output), True
    if compare:
        with pool, Bar("signoff") as bar:
            current = renew(folder, names, bar, pool)
        old = [row for row in read("signoff", folder) if row["unit"] in names and key_of(row) not in current]
        lines = [f"stale: {row['text']}, of {row['date']}" for row in old] or ["no record is stale"]
        show("\n".join(lines), {"stale": [{name: row[name] for name in ("text", "family", "date")} for row in old]})
        sys.exit(1 if old else 0)
    if oracles is not None:
        with requests():
            write_oracles(folder, oracles)
    with pool, Bar("signoff") as bar:
        for record in write(folder, names, bar, pool, every=every):
            click.echo(f"halfulp: recorded {record['text']}", err=True)
            passed = passed and not failed(record)
    records = [record for record in read("signoff", folder) if record["unit"] in names]
    show("\n".join(table(names, folder)), {"passed": passed, "records": records})
    sys.exit(0 if passed else 1)
