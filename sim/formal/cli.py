"""The command `halfulp formal`."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from halfulp.options import unit_options
from halfulp.tools.commands import Command, also_written, publish, report_folder, requests, scheduled, show
from halfulp.tools.jobs import JobPool
from halfulp.tools.report import Report

from . import LIMIT


@click.command(cls=Command)
@partial(unit_options, default="all")
@click.option(
    "--seconds",
    default=LIMIT,
    metavar="SECONDS",
    type=click.FloatRange(1),
    help=f"time limit of each proof; default: {LIMIT:g}",
)
@scheduled
@also_written
def formal(unit: str, fmt: str | None, seconds: float, pool: JobPool, output: Path | None, **options: Any) -> None:
    """Prove claims about units for all inputs.

    Default: all units. A unit's name alone selects its claims in several formats. Verdicts are cached. A refuted claim
    is printed with a counterexample and the commands that save it as a regression.
    """
    from halfulp.tools.progress import Bar

    from .claims import claims, examine, table

    with requests():
        wanted = claims(unit, fmt, **{name: value for name, value in options.items() if value is not None})
    folder = output and report_folder(output)
    findings = []
    with pool, Bar("formal") as bar:
        bar.total("proving", len(wanted))
        for finding in examine(wanted, limit=seconds, progress=bar, pool=pool):
            findings.append(finding)
            if finding.lines:
                claim = finding.claim
                text = "\n".join([f"{claim.kind} of {claim.unit} is refuted", *finding.lines, ""])
                show(text, {"refuted": claim.kind, "unit": claim.unit, "lines": finding.lines})
    publish(Report({"formal": table(findings)}), folder)
    sys.exit(1 if any(finding.lines for finding in findings) else 0)
