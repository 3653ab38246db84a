"""Parts that the commands of all rooms share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from .jobs import JobPool

Function = Callable[..., Any]


class Refused(click.ClickException):
    """A request that cannot be met: one sentence, exit code 2."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        """Print the sentence."""
        click.echo(f"halfulp: {self.message}", err=True)


@contextmanager
def requests() -> Iterator[None]:
    """Turn what a unit or a format says of its parameters into a refusal."""
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
