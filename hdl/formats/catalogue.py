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


_PACKAGE = re.compile(r"^(torch|numpy|np|ml_dtypes|jnp)\.")

_OCP = re.compile(r"(?!(?i:fp?[468]_|ue)).*(E4M3|E3M2|E2M3|E2M1|E8M0)(?![A-Z\d])")
"""Texts with a name of OCP whose small letters are another format; behind ``fp8_`` they are those of OCP, too."""


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

    Types of torch, numpy and ml_dtypes are taken as their names, such as ``torch.float8_e4m3fn``. Capital letters are
    those of OCP in ``E4M3``, ``E3M2``, ``E2M3``, ``E2M1`` and ``E8M0``, and of no effect in other names.

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
    fmt = _format_of(text)
    if fmt is not None:
        return fmt
    check_unambiguous(text)
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
    if ocp := _OCP.match(text):
        raise ValueError(
            f"unknown format {text!r}; {ocp[1]} of OCP is {parse(ocp[1])}, and {ocp[1].lower()} is another format, so "
            "give one of them"
        )
    hint = did_you_mean(text, [*NAMED, *ML_DTYPES, *OTHER_NAMES, *BLOCK_NAMES], f"formats are written like {_LIKE}")
    raise ValueError(f"unknown format {text!r}; {hint}")


def _format_of(text: str) -> Format | None:
    """Return the format of a text as it is, else of its name in small letters and without the package; else None."""
    name = _PACKAGE.sub("", text)
    if ":" not in name and not _OCP.match(name):
        name = name.lower()
    return next((fmt for each in (text, name) for family in FORMATS if (fmt := family.from_text(each))), None)


def is_format(text: str) -> bool:
    """Return True if a text is a format or the name of a block, and no more."""
    try:
        return text.lower() in BLOCK_NAMES or _format_of(text) is not None
    except ValueError:
        return False


AMBIGUOUS = {
    "fp6": ("fp6_e3m2", "fp6_e2m3"),
    "float6": ("fp6_e3m2", "fp6_e2m3"),
    "mxfp8": ("mxfp8_e4m3", "mxfp8_e5m2"),
    "mxfp6": ("mxfp6_e3m2", "mxfp6_e2m3"),
}
"""Names that several formats or blocks share, with the name of each."""


def check_unambiguous(text: str) -> None:
    """Raise ValueError for a name that several formats share."""
    names = AMBIGUOUS.get(text.lower())
    if names is not None:
        raise ValueError(f"{text} names two formats; give {' or '.join(names)}")


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
    return text.lower() in {*BLOCK_NAMES, *AMBIGUOUS} or text.startswith("block(")


NAMED: dict[str, Format] = {name: parse(text) for family in FORMATS for name, text in family.names.items()}
"""Named formats, from the ``names`` of each family; other formats are written by their fields."""
