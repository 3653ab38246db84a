"""Parts that the commands of all rooms share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .jobs import JobPool
from .paths import build_root, machine_errors

if TYPE_CHECKING:
    from .report import Report

Function = Callable[..., Any]


class Refused(click.ClickException):
    """A request that cannot be met: one sentence, exit code 2."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        """Print the sentence."""
        click.echo(f"halfulp: {self.message}", err=True)


@contextmanager
def requests() -> Iterator[None]:
    """Turn errors of parameters into a refusal."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise Refused(str(error)) from error


def scheduled(function: Function) -> Function:
    """Add ``--scheduler`` to a command, which takes the parameter ``pool``."""
    return click.option(
        "--scheduler",
        "pool",
        metavar="tcp://HOST:PORT",
        callback=_pool,
        help="Dask scheduler whose workers do the work; default: this machine",
    )(function)


def _pool(ctx: click.Context, parameter: click.Parameter, address: str | None) -> JobPool:
    with requests():
        return JobPool(address)


def written(function: Function) -> Function:
    """Add ``-o`` to a command that always writes a report."""
    return _output("where the files go; default: reports/ of the build folder")(function)


def also_written(function: Function) -> Function:
    """Add ``-o`` to a command that prints a report and optionally writes it."""
    return _output("write the tables there too, as Markdown, CSV and LaTeX")(function)


def _output(text: str) -> Function:
    return click.option("-o", "--output", metavar="FOLDER", type=click.Path(file_okay=False, path_type=Path), help=text)


def report_folder(output: Path | None) -> Path:
    """The folder of a report's files, made before the work that the report takes."""
    folder = output or build_root() / "reports"
    with machine_errors(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def publish(report: "Report", folder: Path | None) -> None:
    """Print the tables of a report, and write all its files."""
    click.echo(report.markdown(), nl=False)
    for path in report.write(folder) if folder is not None else ():
        click.echo(f"halfulp: wrote {path}", err=True)
