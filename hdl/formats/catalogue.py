"""The named formats, and the format of a text."""

import difflib

from .base import Format
from .families import FAMILIES
from .floating import ML_DTYPES

_LIKE = "e5m2, bf16, e6m5-ftz, fxp4.4, int8 or posit8"


def parse(text: str | Format) -> Format:
    """Format that a text names: a name such as ``bf16``, or the fields of a format as its family writes them.

    Raises
    ------
    TypeError
        If ``text`` is not a text.
    ValueError
        If it names no format, or one that cannot be.
    """
    if isinstance(text, Format):
        return text
    if not isinstance(text, str):
        raise TypeError(f"a format is a Format or a text such as 'e5m2', not {type(text).__name__}")
    for family in FAMILIES:
        fmt = family.from_text(text)
        if fmt is not None:
            return fmt
    near = difflib.get_close_matches(text, [*NAMED, *ML_DTYPES], n=1)
    hint = f"did you mean {near[0]}?" if near else f"formats are written like {_LIKE}"
    raise ValueError(f"unknown format {text!r}; {hint}")


NAMED: dict[str, Format] = {name: parse(text) for family in FAMILIES for name, text in family.names.items()}
"""Formats with a name of their own, from the ``names`` of each family; all others are written by their fields."""
