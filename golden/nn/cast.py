"""Rounding of real values to codes for the arithmetic of a layer."""

import functools
import re
from dataclasses import dataclass

import torch
from torch import Tensor

from halfulp.golden.check import check_bool
from halfulp.golden.values import decoded, encoded
from halfulp.hdl.formats import BF16, EXACT, FP16, FP32, FP64, RN, Format, Rounding, parse
from halfulp.hdl.specs import ValueRange

from .draw import words

DTYPES = {torch.float64: FP64, torch.float32: FP32, torch.float16: FP16, torch.bfloat16: BF16}
"""Formats of torch's real numbers."""

_ROUNDED = re.compile(r"(?:(?P<fmt>.+)\.)?(?P<rounding>rn|ra|rh|rz|ru|rd|ro|exact|sr[0-9]+)")


@dataclass(frozen=True)
class Cast:
    """Rounding of real values.

    Parameters
    ----------
    fmt : Format, optional
        Format that they are rounded to before any use; default: only that of their use, an operand's or an
        accumulator's.
    rounding : Rounding
    saturate : bool
        Overflow gives the largest finite number.

    Raises
    ------
    TypeError, ValueError
        If a part is of the wrong kind, or the rounding is ``exact``.

    Notes
    -----
    ``str()`` gives a text such as ``rn``, ``sr3.sat`` or ``e5m2.rn``, and `Cast.parse` reads it back; there a format
    alone, as ``e5m2``, is rounded to nearest.
    """

    fmt: Format | None = None
    rounding: Rounding = RN
    saturate: bool = False

    def __post_init__(self) -> None:
        if self.fmt is not None and not isinstance(self.fmt, Format):
            raise TypeError(f"the format of a cast is a Format or None, not {type(self.fmt).__name__}")
        if not isinstance(self.rounding, Rounding):
            raise TypeError(f"the rounding of a cast is a Rounding, not {type(self.rounding).__name__}")
        check_bool("saturate", self.saturate)
        if self.rounding == EXACT:
            raise ValueError("real values are rounded, which exact forbids; take rn or another rounding")

    def __str__(self) -> str:
        fmt = "" if self.fmt is None else f"{self.fmt}."
        return f"{fmt}{self.rounding}{'.sat' if self.saturate else ''}"

    @classmethod
    def parse(cls, text: "str | Cast") -> "Cast":
        """Cast that ``str()`` wrote; a cast is taken as it is."""
        if isinstance(text, cls):
            return text
        if not isinstance(text, str):
            raise TypeError(f"a cast is a Cast or a text such as 'e5m2.rn', not {type(text).__name__}")
        joined = "".join(text.split())
        rest = joined.removesuffix(".sat")
        if match := _ROUNDED.fullmatch(rest):
            fmt, rounding = match["fmt"], Rounding.parse(match["rounding"])
        else:
            fmt, rounding = rest, RN
        try:
            return cls(None if fmt is None else parse(fmt), rounding, rest != joined)
        except ValueError as error:
            raise ValueError(f"{text!r} is no cast such as rn, e5m2.rn or e5m2.sr3.sat: {error}") from error

    def codes(self, values: Tensor, fmt: Format, key: int) -> Tensor:
        """Codes of values in a format, rounded once."""
        random = words(key, self.rounding.bits, tuple(values.shape), values.device) if self.rounding.bits else None
        return encoded(values, fmt, self.rounding, random, self.saturate)

    def real(self, values: Tensor, key: int) -> Tensor:
        """Values rounded to the format of the cast, if it has one; of the dtype that they had."""
        if self.fmt is None:
            return values
        return real(self.codes(values, self.fmt, key), self.fmt, values.dtype)


def check_real(values: object, name: str) -> torch.dtype:
    """The dtype of a tensor of real numbers."""
    if not isinstance(values, Tensor):
        raise TypeError(f"{name} is a tensor of real numbers, not {type(values).__name__}")
    if values.dtype not in DTYPES:
        raise TypeError(f"{name} is of {values.dtype}; layers compute on {', '.join(map(str, DTYPES))}")
    return values.dtype


def check_holds(dtype: torch.dtype, fmt: Format) -> None:
    """Raise ValueError if a dtype does not hold every number of a format."""
    if _holds(dtype, fmt):
        return
    wider = [str(other) for other in DTYPES if _holds(other, fmt)]
    remedy = f"take a module of {wider[-1]}" if wider else "take a smaller format"
    raise ValueError(f"{dtype} does not hold every number of {fmt}; {remedy}")


@functools.lru_cache(maxsize=256)
def _holds(dtype: torch.dtype, fmt: Format) -> bool:
    try:
        ValueRange.of(fmt).check_fits(DTYPES[dtype], f"number of {fmt}")
    except ValueError:
        return False
    return True


def real(codes: Tensor, fmt: Format, dtype: torch.dtype) -> Tensor:
    """Real values of codes in a dtype, exactly."""
    check_holds(dtype, fmt)
    return decoded(codes, fmt, dtype)
