"""The command `halfulp mutate`."""

import sys
from pathlib import Path
from typing import Any

import click

from halfulp.sim.cli import requests, unit_options
from halfulp.sim.request import Request


@click.command()
@click.argument("unit")
@click.argument("fmt", default="e5m2")
@unit_options
@click.option("-n", "--mutants", default=200, metavar="N", type=click.IntRange(1, 50000), help="200 by default")
@click.option("--seed", default=0, metavar="N", type=click.IntRange(0), help="of mutants and vectors; 0 by default")
@click.option("--stream", is_flag=True, help="mutate the stream wrapper of the unit, and run that")
@click.option("--keep", is_flag=True, help="keep vectors that show survivors, to be run before all others")
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="leave the tables there too, as Markdown, CSV and LaTeX",
)
def mutate(
    unit: str, fmt: str, mutants: int, seed: int, stream: bool, keep: bool, output: Path | None, **options: Any
) -> None:
    """Say how many mistakes in UNIT in FMT (e5m2 by default) the bench sees.

    Mutants of the netlist are run through the vectors of the bench. Those that live on are compared with the unit for
    all inputs there are: they are equivalent, or there is a vector that shows them, which belongs to the bench.
    """
    from halfulp.sim.progress import Bar

    from .mutation import check_stream

    with requests():
        built = Request(unit, fmt, **options).build()
        if stream:
            check_stream(built)
    from . import mutation

    with Bar(built.name) as bar:
        campaign = mutation.mutate(built, count=mutants, seed=seed, stream=stream, progress=bar)
    found = mutation.table([campaign])
    click.echo(found.markdown(), nl=False)
    for line in mutation.survivors(campaign):
        click.echo(line)
    if output is not None:
        for table, stem in ((found, "mutation"), (mutation.mutants_table(campaign), "mutants")):
            for path in table.write(output, stem):
                click.echo(f"halfulp: wrote {path}", err=True)
    if keep:
        for path in mutation.keep(campaign):
            click.echo(f"halfulp: {path} has one more", err=True)
    sys.exit(1 if campaign.survivors() else 0)
