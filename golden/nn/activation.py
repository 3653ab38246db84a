"""Piecewise linear activation functions of torch models, with the result bits of the units."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from halfulp.golden.pwl import pwl
from halfulp.golden.values import decode
from halfulp.hdl.formats import EXACT, RN, Rounding, Saturation
from halfulp.hdl.specs.segments import Segments

from .cast import Cast, check_holds, check_real
from .draw import words
from .layers import Constant
from .operands import cast_of
from .operator import differentiable, transformed

TABLE_WIDTH = 16
"""Largest width of a format whose values and slopes are tabulated for all codes."""

PIECE, TRUE = "piece", "true"
"""Derivatives: slope of the segment, or of the approximated function."""

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "exp": torch.exp,
    "gelu": F.gelu,
    "silu": F.silu,
    "softplus": F.softplus,
    "elu": F.elu,
    "erf": torch.erf,
    "reciprocal": torch.reciprocal,
    "rsqrt": torch.rsqrt,
    "log2": torch.log2,
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,
    "hard_sigmoid": F.hardsigmoid,
    "hard_swish": F.hardswish,
}
"""Functions of torch by the names of segment tables, for true derivatives."""


class PiecewiseLinear(Constant):
    """Piecewise linear function of each element.

    Elements are rounded to the operand format and values to the result format, with the result bits of the unit.

    Parameters
    ----------
    table : Segments
        Segments of the function.
    rounding : Rounding or str
        Rounding of the value.
    saturate : Saturation, bool or str
        Overflow of the value gives the largest finite number; with ``satfinite`` infinities too.
    cast : Cast or str
        Rounding of elements to ``table.fmt``; the default saturates.
    derivative : str or callable
        ``piece``: slope of the segment; ``true``: derivative of the torch function with the table's name; or a
        torch function, for its derivative. Rounding has the derivative 1.
    seed : int, optional
        Seed of the random words; default: drawn from torch's generator.

    Raises
    ------
    TypeError, ValueError
        If a parameter has the wrong type, the cast has a format, or torch has no function with the table's name.
    """

    parameters_of_module = ("table", "rounding", "saturate", "cast", "derivative")

    def __init__(
        self,
        table: Segments,
        *,
        rounding: Rounding | str = RN,
        saturate: Saturation | bool | str = False,
        cast: Cast | str = "rn.sat",
        derivative: str | Callable[[Tensor], Tensor] = PIECE,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(table, Segments):
            raise TypeError(f"table must be a Segments, not {type(table).__name__}")
        self.table, self.rounding, self.saturate = table, Rounding.parse(rounding), Saturation.of(saturate)
        if self.rounding == EXACT:
            table.check_exact()
        self.cast = Cast.parse(cast)
        if not self.cast.plain or self.cast.scale is not None:
            raise ValueError(f"cast must be a rounding only, not {self.cast}; elements are rounded to {table.fmt}")
        self.derivative = derivative
        # torch.compile cannot trace the functions that make these texts.
        self._texts = table.text, str(self.rounding), self.saturate.word, str(self.cast)
        self._derivative = _derivative_key(derivative, table.name)
        self._set_state(bool(self.rounding.bits or self.cast.rounding.bits), seed)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # Keys of users' functions are valid in one process only.
        self._derivative = _derivative_key(self.derivative, self.table.name)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name
        """Evaluate the function."""
        check_real(input, "input")
        of_elements = self.next_key(input)
        of_values = self.next_key(input) if self.rounding.bits else None
        # In transforms of torch.func, requires_grad may be False for tensors that need a gradient.
        slopes = self._derivative == PIECE and (input.requires_grad or transformed())
        result: Tensor = _LINE_SEGMENTS(input, of_elements, of_values, *self._texts, self._derivative, slopes)[0]
        return result

    def extra_repr(self) -> str:
        """Return the text of the layer in a printed model."""
        kind = self.derivative if isinstance(self.derivative, str) else self.derivative.__name__
        return f"{self.table}, {self.table.fmt} to {self.table.out}, {self.rounding}, derivative={kind}"


_table_of = functools.lru_cache(maxsize=256)(Segments.read)


def _line_segments(
    x: Tensor,
    key: Tensor | None,
    value_key: Tensor | None,
    table: str,
    rounding: str,
    saturate: str,
    cast: str,
    derivative: str,
    needs_slopes: bool,
) -> tuple[Tensor, Tensor]:
    """Evaluate segments, and their slopes if ``needs_slopes``.

    ``key`` and ``value_key`` are the keys of the random words that round elements and values.
    """
    segments, mode, saturation = _table_of(table), Rounding.parse(rounding), Saturation.of(saturate)
    check_holds(x.dtype, segments.out)
    narrow = segments.fmt.width <= TABLE_WIDTH
    codes = cast_of(cast).codes(x.contiguous(), segments.fmt, 0 if key is None else int(key))
    if value_key is None and narrow:
        values = _all_values(segments, mode, saturation, x.device)[codes]
    else:
        random = None if value_key is None else words(int(value_key), mode.bits, tuple(codes.shape), x.device)
        results = pwl(codes, table=segments, rounding=mode, saturate=saturation, random=random)
        values = decode(results, segments.out)
    if not needs_slopes:
        return values.to(x.dtype), x.new_empty(0)
    slope = _all_slopes(segments, x.device)[codes] if narrow else slopes(decode(codes, segments.fmt), segments)
    return values.to(x.dtype), slope.to(x.dtype)


def _save(ctx: Any, inputs: Any, output: tuple[Tensor, Tensor]) -> None:
    ctx.derivative = inputs[7]
    ctx.save_for_backward(inputs[0], output[1])


def _backward(ctx: Any, gradient: Tensor, _: Tensor) -> Any:
    x, slope = ctx.saved_tensors
    if ctx.derivative != PIECE:
        slope = torch.func.grad(lambda at: _DERIVATIVES[ctx.derivative](at).sum())(x.detach())
    return gradient * slope, *[None] * 8


_LINE_SEGMENTS = differentiable(
    _line_segments,
    lambda x, *parts: (x.new_empty(x.shape), x.new_empty(x.shape if parts[-1] else 0)),
    _save,
    _backward,
)


def slopes(x: Tensor, table: Segments) -> Tensor:
    """Return the slope of the segment at each number, in float64; at a breakpoint, that of the upper segment."""
    x = x.to(torch.float64)
    if table.reduction is not None:
        return _reduced_slopes(x, table)
    starts = torch.tensor([float(start) for start in table.reached], dtype=torch.float64, device=x.device)
    index = torch.bucketize(x.abs() if table.symmetry else x, starts, right=True)
    positive, negative = (_slopes_of(table.unfolded(side), x) for side in (False, True))
    return torch.where(x < 0, negative[index], positive[index])


def _slopes_of(pieces: Any, like: Tensor) -> Tensor:
    return torch.tensor([float(piece.slope) for piece in pieces], dtype=torch.float64, device=like.device)


def _reduced_slopes(x: Tensor, table: Segments) -> Tensor:
    """Return the slopes of a function with range reduction, by the chain rule."""
    starts = torch.tensor([float(piece.start) for piece in table.pieces[1:]], dtype=torch.float64, device=x.device)
    own = _slopes_of(table.pieces, x)
    if table.reduction == "exp2":
        scaled = x * float(table.factor)
        power = scaled.floor()
        grains = 1 << table.fraction
        slope = own[torch.bucketize(((scaled - power) * grains).floor() / grains, starts, right=True)]
        return torch.where(scaled.isinf(), 0.0, slope * float(table.factor) * torch.exp2(power))
    mantissa, exponent = torch.frexp(x.abs())
    mantissa, exponent = 2 * mantissa, exponent - 1
    if table.reduction == "rsqrt":
        half = torch.div(exponent, 2, rounding_mode="floor")
        mantissa, power = mantissa * (1 + exponent % 2), -3 * half
    else:
        power = -exponent if table.reduction == "log2" else -2 * exponent
    slope = own[torch.bucketize(mantissa, starts, right=True)]
    return slope * torch.exp2(power.to(torch.float64))


@functools.lru_cache(maxsize=64)
def _all_values(table: Segments, rounding: Rounding, saturate: Saturation, device: torch.device) -> Tensor:
    """Evaluate the function at all codes."""
    codes = torch.arange(1 << table.fmt.width, device=device)
    return decode(pwl(codes, table=table, rounding=rounding, saturate=saturate), table.out)


@functools.lru_cache(maxsize=64)
def _all_slopes(table: Segments, device: torch.device) -> Tensor:
    """Return the slopes at all codes."""
    return slopes(decode(torch.arange(1 << table.fmt.width, device=device), table.fmt), table)


_DERIVATIVES = dict(FUNCTIONS)
"""Functions for derivatives, by key: the name of a segment table, or the id of a user's function."""


def _derivative_key(derivative: object, name: str) -> str:
    """Register a derivative and return its key."""
    if derivative == PIECE:
        return PIECE
    if callable(derivative):
        _DERIVATIVES[str(id(derivative))] = derivative
        return str(id(derivative))
    if derivative != TRUE:
        raise ValueError(f"unknown derivative {derivative!r}: expected {PIECE}, {TRUE} or a torch function")
    if name not in FUNCTIONS:
        raise ValueError(f"no torch function is known for {name}; pass one as derivative")
    return name
