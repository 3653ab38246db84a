"""Named formats, and the parser of formats."""

import re

from .base import Format
from .checks import did_you_mean
from .families import FORMATS
from .floating import ML_DTYPES, OTHER_NAMES
from .rounding import PATTERN
from .saturation import SUFFIXES

_LIKE = "e5m2, bf16, e6m5-ftz, fxp4.4, int8 or posit8"

_SUFFIXED = re.compile(rf"(?P<fmt>[^.]+)(\.(?P<rounding>{PATTERN}))?(\.(?P<saturate>{'|'.join(SUFFIXES)}))?")
"""Format with suffixes of a unit's text."""


def _name_of(given: object) -> object:
    """Return the name of a type of torch, numpy or ml_dtypes; other objects as they are."""
    package = (given if isinstance(given, type) else type(given)).__module__.split(".")[0]
    if package == "torch" and type(given).__name__ == "dtype":
        return str(given).removeprefix("torch.")
    if package not in ("numpy", "ml_dtypes") or isinstance(given, str):
        return given
    return given.__name__ if isinstance(given, type) else getattr(given, "name", given)


def parse(text: object) -> Format:
    """Parse a format: a name such as ``bf16``, or fields in the syntax of a family.

    Types of torch, numpy and ml_dtypes are taken as their names, such as ``torch.float8_e4m3fn``.

    Raises
    ------
    TypeError
        If ``text`` is not a string.
    ValueError
        If the format is unknown or its fields are invalid.
    """
    if isinstance(text, Format):
        return text
    text = _name_of(text)
    if not isinstance(text, str):
        raise TypeError(f"a format must be a Format, a type or a string such as 'e5m2', not {type(text).__name__}")
    for family in FORMATS:
        fmt = family.from_text(text)
        if fmt is not None:
            return fmt
    if is_block_text(text):
        raise TypeError(
            f"{text} is a block of numbers with a shared scale, and the format of one number is needed here; the units "
            "blockdot and blockmac and golden.quantize_blocks take blocks"
        )
    if (match := _SUFFIXED.fullmatch(text)) and (match["rounding"] or match["saturate"]):
        apart = [f'rounding="{match["rounding"]}"'] if match["rounding"] else []
        apart += {None: [], "sat": ["saturate=True"]}.get(match["saturate"], [f'saturate="{match["saturate"]}"'])
        raise ValueError(
            f"{text!r} is a format with its rounding or saturation; a format is needed here, such as {match['fmt']}, "
            f"and the rest apart: {', '.join(apart)}"
        )
    hint = did_you_mean(text, [*NAMED, *ML_DTYPES, *OTHER_NAMES], f"formats are written like {_LIKE}")
    raise ValueError(f"unknown format {text!r}; {hint}")


def is_format(text: str) -> bool:
    """Return True if a text is a format or the name of a block, and no more."""
    try:
        return text in BLOCK_NAMES or any(family.from_text(text) is not None for family in FORMATS)
    except ValueError:
        return False


BLOCK_NAMES = {
    "mxfp8_e5m2": "block(e5m2,32,e8m0fnu,floor)",
    "mxfp8_e4m3": "block(e4m3fn,32,e8m0fnu,floor)",
    "mxfp6_e3m2": "block(e3m2fn,32,e8m0fnu,floor)",
    "mxfp6_e2m3": "block(e2m3fn,32,e8m0fnu,floor)",
    "mxfp4": "block(e2m1fn,32,e8m0fnu,floor)",
    "mxint8": "block(fxp2.6,32,e8m0fnu,floor)",
    "nvfp4": "block(e2m1fn,16,e4m3fn,nearest)",
    "msfp12": "block(e1m2b2-finite,16,e8m0fnu,floor)",
    "msfp16": "block(e1m6b2-finite,16,e8m0fnu,floor)",
    "bfp16": "block(e1m6b2-finite,16,e8m0fnu,floor)",
}
"""Texts of the named blocks, by name; ``bfp16`` is ``msfp16``."""


def is_block_text(text: str) -> bool:
    """Return True if a text names a block of numbers, or has the form of one."""
    return text in BLOCK_NAMES or text.startswith("block(")


NAMED: dict[str, Format] = {name: parse(text) for family in FORMATS for name, text in family.names.items()}
"""Named formats, from the ``names`` of each family; other formats are written by their fields."""
