"""Units by the short form of the command line."""

import shlex
from collections.abc import Iterable
from typing import Any

import click

from halfulp.hdl.formats import parse
from halfulp.hdl.specs import UNITS, UnitSpec
from halfulp.implementation import Implementation, implementation, short
from halfulp.options import unit_options

BLOCK = "block(e2m1fn,2,e3m0fnu,floor)"
"""Small block, for units that take no numbers."""


def build(unit: str, fmt: str, **options: Any) -> Any:
    """Return the component for a unit's name, a format and options, in a form that the unit has."""
    return short(unit, fmt, **options).buildable.component()


def defaults_of_others(texts: Iterable[str], fmt: str) -> list[str]:
    """Return the texts of units that are in none of the texts, in a format with default parameters."""
    named = {UnitSpec.parse(text).form.unit for text in texts}
    return [str(cls.filled(parse(fmt))) for name, cls in UNITS.items() if name not in named]


@click.command()
@unit_options
def _asked(unit: str, fmt: str | None, **options: Any) -> Implementation:
    return implementation(unit, fmt, **options)


def asked(words: str) -> Implementation:
    """Return the implementation that words of a command line describe."""
    found: Implementation = _asked.main(shlex.split(words), standalone_mode=False)
    return found
