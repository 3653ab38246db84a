"""Units by the short form of the command line."""

import shlex
from typing import Any

import click

from halfulp.sim.implementation import Implementation, implementation, short
from halfulp.sim.options import unit_options

BLOCK = "block(e2m1fn,2,e3m0fnu,floor)"
"""Small block, for units that take no numbers."""


def build(unit: str, fmt: str, **options: Any) -> Any:
    """Return the component for a unit's name, a format and options."""
    return short(unit, fmt, **options).component()


@click.command()
@unit_options
def _asked(unit: str, fmt: str | None, **options: Any) -> Implementation:
    return implementation(unit, fmt, **options)


def asked(words: str) -> Implementation:
    """Return the implementation that words of a command line describe."""
    found: Implementation = _asked.main(shlex.split(words), standalone_mode=False)
    return found
