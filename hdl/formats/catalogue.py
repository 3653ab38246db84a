"""The named formats, and the text form of every format there is."""

import difflib
import re
from dataclasses import replace

from .base import Format
from .fixed import Fixed
from .floating import Float
from .posit import STANDARD_ES, Posit

NAMED: dict[str, Format] = {
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
    "int4": Fixed(4, 0),
    "int8": Fixed(8, 0),
    "int16": Fixed(16, 0),
    "int32": Fixed(32, 0),
    "uint8": Fixed(8, 0, signed=False),
    "posit8": Posit(8),
    "posit16": Posit(16),
    "posit32": Posit(32),
    "posit64": Posit(64),
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
_FIXED = re.compile(r"(u?)(?:fxp(-?[0-9]+)\.(-?[0-9]+)|int([0-9]+))")
_POSIT = re.compile(r"posit([0-9]+)(?:e([0-9]+))?")

_LIKE = "e5m2, bf16, e6m5-ftz, fxp4.4, int8 or posit8"


def parse(text: str | Format) -> Format:
    """Format that a text names.

    Parameters
    ----------
    text : str
        A name such as ``bf16``, or what a format is made of.

        Floating point: ``e<exp>m<man>``, then ``b<bias>`` if it is not the usual one, then ``fn``, ``fnuz`` or
        ``-finite`` for the specials, then ``-ftz`` for no subnormals. ``e3m2fn``, ``e2m3fn`` and ``e2m1fn`` have no
        NaN, as in ml_dtypes; ``e3m2-fn`` is the one that has.

        Fixed point: ``fxp<int_bits>.<frac_bits>`` or ``ufxp<int_bits>.<frac_bits>``, or ``int<bits>`` or
        ``uint<bits>``, then ``-wrap`` if it does not saturate.

        Posit: ``posit<width>`` with the two exponent bits of the standard, or ``posit<width>e<es>``.

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
    name = text.removesuffix("-ftz")
    row = NAMED.get(ML_DTYPES.get(name, name))
    if isinstance(row, Float):
        return replace(row, subnormals=name == text)
    if text in NAMED:
        return NAMED[text]
    if text in ("e8m0fnu", "float8_e8m0fnu"):
        raise ValueError(
            f"{text} is a scale of blocks, without sign and zero, and no operand; e8m0 is the nearest float"
        )
    fmt = _float(text) or _fixed(text) or _posit(text)
    if fmt is None:
        near = difflib.get_close_matches(text, [*NAMED, *ML_DTYPES], n=1)
        hint = f"did you mean {near[0]}?" if near else f"formats are written like {_LIKE}"
        raise ValueError(f"unknown format {text!r}; {hint}")
    return fmt


def _float(text: str) -> Float | None:
    match = _FLOAT.fullmatch(text.removesuffix("-ftz"))
    if match is None:
        return None
    exp, man = int(match[1]), int(match[2])
    # Without mantissa bits there is no room for the IEEE pair, so the bare name means the one NaN that fits.
    specials = (match[4] or ("fn" if man == 0 else "ieee")).removeprefix("-")
    bias = None if match[3] is None else int(match[3])
    return Float(exp, man, bias, specials, not text.endswith("-ftz"))  # type: ignore[arg-type]


def _fixed(text: str) -> Fixed | None:
    match = _FIXED.fullmatch(text.removesuffix("-wrap"))
    if match is None:
        return None
    int_bits, frac_bits = (int(match[4]), 0) if match[4] else (int(match[2]), int(match[3]))
    return Fixed(int_bits, frac_bits, match[1] == "", "wrap" if text.endswith("-wrap") else "saturate")


def _posit(text: str) -> Posit | None:
    match = _POSIT.fullmatch(text)
    if match is None:
        return None
    return Posit(int(match[1]), STANDARD_ES if match[2] is None else int(match[2]))
