"""The commands `halfulp mutate` and `halfulp faults`."""

import contextlib
import sys
from pathlib import Path
from typing import Any

import click

from halfulp.implementation import implementation
from halfulp.options import unit_options
from halfulp.tools.commands import Command, Parsed, also_written, publish, report_folder, requests, scheduled, written
from halfulp.tools.jobs import JobPool
from halfulp.tools.report import Report


@click.command(cls=Command)
@unit_options
@click.option(
    "-n", "--mutants", default=200, metavar="N", type=click.IntRange(1, 50000), help="number of mutants; default: 200"
)
@click.option("--seed", default=0, metavar="N", type=click.IntRange(0), help="seed of the random generator; default: 0")
@click.option("--stream", is_flag=True, help="mutate and run the stream wrapper of the unit")
@click.option("--save", is_flag=True, help="save vectors that detect survivors as regressions")
@scheduled
@also_written
def mutate(
    unit: str,
    fmt: str | None,
    mutants: int,
    seed: int,
    stream: bool,
    save: bool,
    pool: JobPool,
    output: Path | None,
    **options: Any,
) -> None:
    """Count the mutants of a unit that the test bench detects.

    Mutants of the netlist run the vectors of the test bench. A solver compares each survivor with the unit on all
    inputs: it is equivalent, or a vector detects it.
    """
    from halfulp.tools.progress import Bar

    from . import mutants as mutation

    with requests():
        asked = implementation(unit, fmt, **options)
        asked.check_every_cycle("halfulp mutate")
        built = asked.component()
        if stream:
            mutation.check_stream(built)
    folder = output and report_folder(output)
    with pool, Bar(built.name) as bar:
        campaign = mutation.mutate(built, count=mutants, seed=seed, stream=stream, progress=bar, pool=pool)
    tables = {"mutation": mutation.table(campaign), "mutants": mutation.mutants_table(campaign)}
    survivors = mutation.survivors(campaign)
    data = {"unit": built.spec.text, "survivors": len(campaign.survivors()), "lines": survivors}
    publish(Report(tables, hidden=["mutants"]), folder, survivors, data)
    if save:
        for path in mutation.save(campaign):
            click.echo(f"halfulp: saved in {path}", err=True)
    sys.exit(1 if campaign.survivors() else 0)


FLIPS, STUCK = 100_000, 256
"""Default numbers of bit flips in total, and of results per stuck net."""


def _count(text: str) -> int:
    """Parse a number of trials, such as 100000 or 1e5."""
    with contextlib.suppress(ValueError):
        if 1 <= (number := float(text)) <= 1e9 and number.is_integer():
            return int(number)
    raise ValueError(f"invalid number of trials {text}: expected 1 to 1e9")


_COUNT = Parsed(_count)


@click.command(cls=Command)
@unit_options
@click.option("--bit-flips", "flips", metavar="N", type=_COUNT, help="total number of register bit flips")
@click.option("--stuck-at", "stuck", metavar="N", type=_COUNT, help="results per net for stuck-at-0 and stuck-at-1")
@click.option("--seed", default=0, metavar="N", type=click.IntRange(0), help="seed of the random generator; default: 0")
@scheduled
@written
def faults(
    unit: str,
    fmt: str | None,
    flips: int | None,
    stuck: int | None,
    seed: int,
    pool: JobPool,
    output: Path | None,
    **options: Any,
) -> None:
    """Inject faults into a unit and count wrong results.

    Default: 1e5 bit flips if the unit has registers, and 256 results per net for stuck-at-0 and stuck-at-1. A table of
    errors in ulp by net is printed; tables by net and by bit and a plot are written.
    """
    from halfulp.tools.progress import Bar

    from . import faults as campaigns

    with requests():
        asked = implementation(unit, fmt, **options)
        asked.check_every_cycle("halfulp faults")
        built = asked.component()
        if flips is None and stuck is None:
            flips, stuck = FLIPS if built.clocked else None, STUCK
        campaigns.check(built, flips)
    folder = report_folder(output)
    with pool, Bar(built.name) as bar:
        measured = campaigns.campaign(built, flips=flips, stuck=stuck, seed=seed, progress=bar, pool=pool)
    publish(campaigns.report(measured), folder)
