"""Named formats, and the parser of formats."""

import difflib

from .base import Format
from .families import FAMILIES
from .floating import ML_DTYPES

_LIKE = "e5m2, bf16, e6m5-ftz, fxp4.4, int8 or posit8"


def parse(text: str | Format) -> Format:
    """Parse a format: a name such as ``bf16``, or fields in the syntax of a family.

    Raises
    ------
    TypeError
        If ``text`` is not a string.
    ValueError
        If the format is unknown or its fields are invalid.
    """
    if isinstance(text, Format):
        return text
    if not isinstance(text, str):
        raise TypeError(f"a format must be a Format or a string such as 'e5m2', not {type(text).__name__}")
    for family in FAMILIES:
        fmt = family.from_text(text)
        if fmt is not None:
            return fmt
    near = difflib.get_close_matches(text, [*NAMED, *ML_DTYPES], n=1)
    hint = f"did you mean {near[0]}?" if near else f"formats are written like {_LIKE}"
    raise ValueError(f"unknown format {text!r}; {hint}")


NAMED: dict[str, Format] = {name: parse(text) for family in FAMILIES for name, text in family.names.items()}
"""Named formats, from the ``names`` of each family; other formats are written by their fields."""
