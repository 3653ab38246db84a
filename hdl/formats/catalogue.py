"""The named formats, and the text form of every format there is."""

import difflib
import re

from .base import Format
from .floating import Float

NAMED: dict[str, Float] = {
    "fp64": Float(11, 52),
    "fp32": Float(8, 23),
    "tf32": Float(8, 10),
    "bf16": Float(8, 7),
    "fp16": Float(5, 10),
    "e3m4": Float(3, 4),
    "e4m3": Float(4, 3),
    "e5m2": Float(5, 2),
    "e6m5": Float(6, 5),
    "e4m3fn": Float(4, 3, specials="fn"),
    "e4m3fnuz": Float(4, 3, specials="fnuz"),
    "e4m3b11fnuz": Float(4, 3, bias=11, specials="fnuz"),
    "e5m2fnuz": Float(5, 2, specials="fnuz"),
    "e3m2fn": Float(3, 2, specials="finite"),
    "e2m3fn": Float(2, 3, specials="finite"),
    "e2m1fn": Float(2, 1, specials="finite"),
}
"""Formats with a name of their own; every other is spelled by its fields."""

ML_DTYPES: dict[str, str] = {
    "float64": "fp64",
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "float8_e3m4": "e3m4",
    "float8_e4m3": "e4m3",
    "float8_e4m3b11fnuz": "e4m3b11fnuz",
    "float8_e4m3fn": "e4m3fn",
    "float8_e4m3fnuz": "e4m3fnuz",
    "float8_e5m2": "e5m2",
    "float8_e5m2fnuz": "e5m2fnuz",
    "float6_e2m3fn": "e2m3fn",
    "float6_e3m2fn": "e3m2fn",
    "float4_e2m1fn": "e2m1fn",
}
"""What numpy and ml_dtypes call the same formats; these names parse too."""

_FLOAT = re.compile(r"e([0-9]+)m([0-9]+)(?:b(-?[0-9]+))?(-?fn|-?fnuz|-finite)?")


def parse(text: str | Format) -> Format:
    """Format that a text names.

    Parameters
    ----------
    text : str
        A name such as ``bf16``, or the fields of a float: ``e<exp>m<man>``, then ``b<bias>`` if it is not the usual
        one, then ``fn``, ``fnuz`` or ``-finite`` for the specials, then ``-ftz`` for no subnormals. ``e3m2fn``,
        ``e2m3fn`` and ``e2m1fn`` have no NaN, as in ml_dtypes; ``e3m2-fn`` is the one that has.

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
    name, subnormals = (text[:-4], False) if text.endswith("-ftz") else (text, True)
    name = ML_DTYPES.get(name, name)
    if name in NAMED:
        row = NAMED[name]
        return Float(row.exp, row.man, row.bias, row.specials, subnormals)
    if name in ("e8m0fnu", "float8_e8m0fnu"):
        raise ValueError(
            f"{text} is a scale of blocks, without sign and zero, and no operand; e8m0 is the nearest float"
        )
    match = _FLOAT.fullmatch(name)
    if match is None:
        near = difflib.get_close_matches(name, [*NAMED, *ML_DTYPES], n=1)
        hint = f"did you mean {near[0]}?" if near else "formats are written like e5m2, e4m3fn, bf16 or e6m5-ftz"
        raise ValueError(f"unknown format {text!r}; {hint}")
    exp, man = int(match[1]), int(match[2])
    # Without mantissa bits there is no room for the IEEE pair, so the bare name means the one NaN that fits.
    specials = (match[4] or ("fn" if man == 0 else "ieee")).removeprefix("-")
    return Float(exp, man, None if match[3] is None else int(match[3]), specials, subnormals)  # type: ignore[arg-type]
