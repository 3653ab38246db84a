"""Units by the short form of the command line."""

import shlex
from typing import Any

import click

from halfulp.sim.implementation import Implementation, implementation, short
from halfulp.sim.options import unit_options


def build(unit: str, fmt: str, **options: Any) -> Any:
    """The component of a unit's name, a format and options."""
    return short(unit, fmt, **options).component()


@click.command()
@unit_options
def _asked(unit: str, fmt: str | None, **options: Any) -> Implementation:
    return implementation(unit, fmt, **options)


def asked(words: str) -> Implementation:
    """The implementation that words of a command line stand for."""
    found: Implementation = _asked.main(shlex.split(words), standalone_mode=False)
    return found
