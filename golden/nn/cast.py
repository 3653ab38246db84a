"""Rounding of the tensors of a layer."""

import functools
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halfulp.golden.check import check_dense, one_mode
from halfulp.golden.kernels import elementwise
from halfulp.golden.random import of_stream
from halfulp.golden.values import decoded, encoded
from halfulp.hdl.formats import BF16, EXACT, FP16, FP32, FP64, OFF, RN, SATFINITE, Format, Rounding, Saturation, parse
from halfulp.hdl.formats.catalogue import is_format
from halfulp.hdl.formats.rounding import PATTERN
from halfulp.hdl.formats.source import Source, Stream, check_source, parse_source
from halfulp.hdl.specs import ValueRange

from .draw import states, words
from .scaling import Scaling
from .sparsity import Sparsity
from .tile import Tiles

DTYPES = {torch.float64: FP64, torch.float32: FP32, torch.float16: FP16, torch.bfloat16: BF16}
"""Formats of torch's floating-point dtypes."""

_BLANKS = re.compile(r"\s*([.:@=>])\s*")

_ROUNDED = re.compile(rf"(?:(?P<fmt>.+)\.)?(?P<rounding>{PATTERN})(?:@(?P<source>[\w-]+))?")


@dataclass(frozen=True)
class Cast:
    """Format and rounding of a tensor of a layer.

    Parameters
    ----------
    fmt : Format, optional
        Format to which values are rounded first; default: none, only the operand or accumulator format.
    rounding : Rounding
        Rounding to ``fmt``, or without it to the operand or accumulator format.
    saturate : Saturation, bool or str
        Overflow gives the largest finite number; with ``satfinite`` infinities too.
    source : Source, optional
        Hardware source of the random words: one rounding unit processes the elements of each tensor in row-major order,
        from a random state of the source. Default: independent words.
    sparsity : Sparsity, optional
        Elements that become zero before the rounding, at each use of the tensor.
    scale : Scaling, optional
        Factor by which elements are divided before the rounding, and results of products multiplied.
    tiles : Tiles, optional
        Scales of operands in blocks; default: each block has its own.
    before : Format, optional
        Input format of the rounding unit: scaled values are rounded to it, to nearest, before they are rounded to
        ``fmt``, all of whose numbers it has. Default: the unit takes exact values.

    Raises
    ------
    TypeError, ValueError
        If a parameter has the wrong type, the rounding is ``exact``, the source does not suit the rounding, or
        ``before`` lacks numbers of ``fmt``.

    Notes
    -----
    ``str()`` returns a text such as ``rn``, ``sr3.sat``, ``e5m2.rn``, ``int8.sr3@plateau3``, ``fxp8.8>int8.sr3``,
    ``e5m2.rn 2:4``, ``e5m2.rn scale=tensor.pow2.current`` or ``rn tiles=16``, which `Cast.parse` reads. In texts,
    ``e5m2`` is short for ``e5m2.rn``, and ``2:4`` for ``rn 2:4``.
    """

    fmt: Format | None = None
    rounding: Rounding = RN
    saturate: Saturation = OFF
    source: Source | None = None
    sparsity: Sparsity | None = None
    scale: Scaling | None = None
    before: Format | None = None
    tiles: Tiles | None = None

    def __post_init__(self) -> None:
        for name, fmt in (("fmt", self.fmt), ("before", self.before)):
            if fmt is not None and not isinstance(fmt, Format):
                raise TypeError(f"{name} of a cast must be a Format or None, not {type(fmt).__name__}")
        if not isinstance(self.rounding, Rounding):
            raise TypeError(f"rounding of a cast must be a Rounding, not {type(self.rounding).__name__}")
        object.__setattr__(self, "saturate", Saturation.of(self.saturate))
        for name, kind in (("sparsity", Sparsity), ("scale", Scaling), ("tiles", Tiles)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise TypeError(f"{name} of a cast must be {kind.__name__} or None, not {type(value).__name__}")
        if self.rounding == EXACT:
            raise ValueError("rounding of a cast must not be exact; use rn or another rounding")
        if self.source is not None:
            check_source(self.source, [self.rounding.bits] if self.rounding.bits else [])
        if self.before is not None:
            if self.fmt is None:
                raise ValueError(f"expected a format behind {self.before}>, such as {self.before}>int8.{self.rounding}")
            ValueRange.of(self.fmt).check_fits(self.before, f"number of {self.fmt}")

    def __str__(self) -> str:
        return self._text

    @functools.cached_property
    def _text(self) -> str:
        """Text of the cast, which each emulated operation needs."""
        before = "" if self.before is None else f"{self.before}>"
        fmt = "" if self.fmt is None else f"{self.fmt}."
        source = "" if self.source is None else f"@{self.source}"
        sparsity = "" if self.sparsity is None else f" {self.sparsity}"
        scale = "" if self.scale is None else f" scale={self.scale}"
        tiles = "" if self.tiles is None else f" tiles={self.tiles}"
        return f"{before}{fmt}{self.rounding}{source}{Saturation.of(self.saturate).suffix}{sparsity}{scale}{tiles}"

    @classmethod
    def parse(cls, text: "str | Cast") -> "Cast":
        """Parse the text of a cast; a `Cast` is returned unchanged."""
        if isinstance(text, cls):
            return text
        if not isinstance(text, str):
            raise TypeError(f"cast must be a Cast or a text such as 'e5m2.rn', not {type(text).__name__}")
        try:
            return cls._of(_BLANKS.sub(r"\1", text).split())
        except ValueError as error:
            raise ValueError(
                f"invalid cast {text!r}: expected rn, e5m2.rn, e5m2.sr3.sat or e5m2.rn 2:4, for example ({error})"
            ) from error

    @classmethod
    def _of(cls, words: list[str]) -> "Cast":
        """Make a cast from the words of its text: format and rounding, and its other parts in any order."""
        rest: list[str] = []
        parts: dict[str, Any] = {}
        for word in words:
            name, equals, text = word.partition("=")
            reader = {"scale": Scaling.parse, "tiles": Tiles.parse}.get(name) if equals else None
            value = reader(text) if reader else Sparsity.parse(word)
            if value is None:
                rest.append(word)
                continue
            name = name if reader else "sparsity"
            if name in parts:
                raise ValueError(f"{parts[name]} and {value} are two values of {name}; give one")
            parts[name] = value
        joined = "".join(rest) if rest or not parts else str(RN)
        saturate = next((one for one in Saturation if one and joined.endswith(one.suffix)), OFF)
        before, arrow, text = joined.removesuffix(saturate.suffix).rpartition(">")
        fmt: str | None = text
        rounding, source = RN, None
        if match := _ROUNDED.fullmatch(text):
            fmt, rounding = match["fmt"], Rounding.parse(match["rounding"])
            source = match["source"] and parse_source(match["source"])
        else:
            _check_mode(text)
        if arrow:
            parts["before"] = parse(before)
        return cls(None if fmt is None else parse(fmt), rounding, saturate, source or None, **parts)

    @property
    def plain(self) -> bool:
        """True if the cast neither rounds values to a format of its own nor prunes them."""
        return self.fmt is None and self.sparsity is None

    @property
    def is_for_operands(self) -> bool:
        """True if the cast has a part that operands of products have only."""
        return any(part is not None for part in (self.sparsity, self.scale, self.tiles))

    def keeps(self, fmt: Format | None) -> bool:
        """Return True if the cast changes no number of a format: it is the cast's, and its infinities stay."""
        return fmt is not None and fmt == self.fmt and not (self.saturate == SATFINITE and fmt.has_inf)

    def codes(self, values: Tensor, fmt: Format, key: int) -> Tensor:
        """Round values to a format with the words of a key and encode them."""
        random = self.words(key, values.shape, values.device) if self.rounding.bits else None
        if self.before is not None:
            values = real(encoded(values, self.before, RN, None, self.saturate), self.before, torch.float64)
        return encoded(values, fmt, self.rounding, random, self.saturate)

    def words(self, key: int, shape: torch.Size, device: torch.device) -> Tensor:
        """Return the random words of a key for the elements of a tensor."""
        if self.source is None:
            return words(key, self.rounding.bits, tuple(shape), device)
        stream = Stream(self.source, 1)
        state = states(key, self.source, (), device)
        return of_stream(stream, shape.numel(), self.rounding.bits, state).reshape(shape)

    @property
    def target(self) -> elementwise.Target | None:
        """Parameters of the element-wise kernel; None if it does not support the formats or the rounding."""
        if self.before is not None:
            return None
        return elementwise.target(self.fmt, self.rounding, self.saturate)

    def real(self, values: Tensor, key: int) -> Tensor:
        """Round values to the format of the cast, if it has one; the dtype does not change."""
        if self.fmt is None:
            return values
        return real(self.codes(values, self.fmt, key), self.fmt, values.dtype)


def _check_mode(text: str) -> None:
    """Raise ValueError, which names the mode, for a format with an unknown rounding mode behind it."""
    if is_format(text):
        return
    pieces = text.split(".")
    for count in range(len(pieces) - 1, 0, -1):
        if is_format(".".join(pieces[:count])):
            one_mode(".".join(pieces[count:]).partition("@")[0], "a cast")


def check_real(values: object, name: str) -> torch.dtype:
    """Return the dtype of a tensor of real numbers; TypeError for other values."""
    if not isinstance(values, Tensor):
        raise TypeError(f"{name} must be a tensor of real numbers, not {type(values).__name__}")
    if values.dtype not in DTYPES:
        raise TypeError(f"{name} has dtype {values.dtype}: expected {', '.join(map(str, DTYPES))}")
    check_dense(name, values)
    return values.dtype


class PolicyError(ValueError):
    """Policy that cannot be applied to an operation, or to the type of its tensors."""


def check_holds(dtype: torch.dtype, fmt: Format) -> None:
    """Check that a dtype represents every number of a format; PolicyError otherwise.

    Of a compound format only the parts count: a number of the dtype, rounded part by part, is one of the dtype.
    """
    if _holds(dtype, fmt):
        return
    wider = [other for other in DTYPES if _holds(other, fmt)]
    remedy = _in_dtype(wider[-1]) if wider else "use a smaller format"
    raise PolicyError(f"{dtype} does not hold every number of {fmt}; {remedy}")


def _in_dtype(dtype: torch.dtype) -> str:
    """Return the way to results in a dtype; torch.autocast makes narrow ones of a module in float32."""
    return f"convert the module to {dtype}, and run it outside of torch.autocast"


def check_holds_results(dtype: torch.dtype, fmt: Format) -> None:
    """Check that a dtype holds the results of an operation in a format; PolicyError otherwise.

    A result in a compound format, whose parts may be far apart, is the number of the dtype next to their sum.
    """
    check_holds(dtype, fmt)
    if fmt.parts > 1 and DTYPES[dtype].precision < FP32.precision:
        raise PolicyError(f"{dtype} does not hold sums of parts in {fmt}; {_in_dtype(torch.float32)}")


@functools.lru_cache(maxsize=256)
def _holds(dtype: torch.dtype, fmt: Format) -> bool:
    try:
        ValueRange.of(fmt.part_format).check_fits(DTYPES[dtype], f"number of {fmt}")
    except ValueError:
        return False
    return True


def real(codes: Tensor, fmt: Format, dtype: torch.dtype) -> Tensor:
    """Decode codes to a dtype; ValueError if it does not represent every number of the format."""
    check_holds(dtype, fmt)
    return decoded(codes, fmt, dtype)


def parse_update(given: Cast | str) -> Cast:
    """Parse the cast of an update; ValueError if it has neither a format nor a sparsity."""
    cast = Cast.parse(given)
    if cast.plain:
        raise ValueError(f"cast {cast} has no format: expected e6m5.{cast}, for example")
    if cast.scale is not None or cast.tiles is not None:
        raise ValueError(f"an update has no scale and no tiles, but {cast} has; they are for operands of products")
    return cast


def parse_rounding(given: Cast | str) -> Cast:
    """Parse a cast; ValueError if it has a part that operands of products have only."""
    cast = Cast.parse(given)
    if cast.is_for_operands:
        raise ValueError(f"{cast} has a sparsity, a scale or tiles, which are for weights, activations and gradients")
    return cast


def check_format(cast: Cast) -> None:
    """Check that a cast has a format; ValueError otherwise."""
    if cast.fmt is None:
        raise ValueError(f"expected a format and a rounding such as bf16.{cast}, not {cast}")


def parse_element(given: Cast | str) -> Cast:
    """Parse the cast of an operation; ValueError unless float32 holds all numbers of its format, or of its parts."""
    cast = parse_rounding(given)
    check_format(cast)
    assert cast.fmt is not None
    check_holds_results(torch.float32, cast.fmt)
    if cast.saturate and cast.fmt.parts > 1 and cast.fmt.largest > FP32.largest:
        raise ValueError(
            f"float32 does not hold the largest number of {cast.fmt}, to which {cast} saturates; omit .sat"
        )
    return cast
