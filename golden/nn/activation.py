"""Activation functions of torch models as line segments, bit for bit as the units compute them."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from halfulp.golden.activation import pwl
from halfulp.golden.check import check_bool
from halfulp.golden.values import decode
from halfulp.hdl.formats import EXACT, RN, Rounding
from halfulp.hdl.specs.segments import Segments

from .cast import Cast, check_holds, check_real
from .draw import words
from .functional import cast_of
from .layers import Stateful
from .operator import differentiable, transformed

TABLE_WIDTH = 16
"""Most bits of a format whose values and slopes are computed once, for all codes."""

PIECE, TRUE = "piece", "true"
"""Derivatives: slope of the line at a number, and slope of the function that the lines approximate."""

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
"""Functions of torch, for true derivatives, by the names of tables."""


class PiecewiseLinear(Stateful):
    """A function of every element as line segments.

    Elements are rounded to the operand's format and the value to the result's, bit for bit as in the unit.

    Parameters
    ----------
    table : Segments
    rounding : Rounding or str
        Rounding of the value.
    saturate : bool
        Overflow of the value gives the largest finite number.
    cast : Cast or str
        Rounding of elements to ``table.fmt``; by default numbers beyond its range saturate.
    derivative : str or callable
        ``piece``: slope of the line at the element; ``true``: derivative of the function with the table's name; or a
        function of torch, for its derivative. Roundings have derivative 1.
    seed : int, optional
        Seed of the random words; default: drawn from torch's generator.

    Raises
    ------
    TypeError, ValueError
        If a parameter is of the wrong kind, the cast has a format of its own, or no function has the table's name.
    """

    def __init__(
        self,
        table: Segments,
        *,
        rounding: Rounding | str = RN,
        saturate: bool = False,
        cast: Cast | str = "rn.sat",
        derivative: str | Callable[[Tensor], Tensor] = PIECE,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(table, Segments):
            raise TypeError(f"table is a Segments, not a {type(table).__name__}")
        check_bool("saturate", saturate)
        self.table, self.rounding, self.saturate = table, Rounding.parse(rounding), saturate
        if self.rounding == EXACT:
            table.check_exact()
        self.cast = Cast.parse(cast)
        if self.cast.fmt is not None:
            raise ValueError(f"elements are rounded to {table.fmt}, so that {self.cast} names no format")
        self.derivative = derivative
        # Compilers of torch cannot trace how these texts are made.
        self._texts = table.text, str(self.rounding), saturate, str(self.cast)
        self._derivative = _known(derivative, table.name)
        self._set_state(bool(self.rounding.bits or self.cast.rounding.bits), seed)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("table", "rounding", "saturate", "cast", "derivative") and name in self.__dict__:
            raise AttributeError(f"{name} of a PiecewiseLinear cannot be changed; make another one")
        super().__setattr__(name, value)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # Another process knows no function of the user's by its old key.
        self._derivative = _known(self.derivative, self.table.name)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name
        """The function's values."""
        check_real(input, "input")
        of_elements = self.next_key(input)
        of_values = self.next_key(input) if self.rounding.bits else None
        # Transforms of functions hide that a tensor requires a gradient.
        slopes = self._derivative == PIECE and (input.requires_grad or transformed())
        found: Tensor = _LINE_SEGMENTS(input, of_elements, of_values, *self._texts, self._derivative, slopes)[0]
        return found

    def extra_repr(self) -> str:
        """Text of the layer in a printed model."""
        kind = self.derivative if isinstance(self.derivative, str) else self.derivative.__name__
        return f"{self.table}, {self.table.fmt} to {self.table.out}, {self.rounding}, derivative={kind}"


_table_of = functools.lru_cache(maxsize=256)(Segments.read)


def _line_segments(
    x: Tensor,
    key: Tensor | None,
    value_key: Tensor | None,
    table: str,
    rounding: str,
    saturate: bool,
    cast: str,
    derivative: str,
    needs_slopes: bool,
) -> tuple[Tensor, Tensor]:
    """Values of line segments, and slopes of the lines if they are needed.

    Keys are those of the random words of the elements and of the values.
    """
    segments, mode = _table_of(table), Rounding.parse(rounding)
    check_holds(x.dtype, segments.out)
    narrow = segments.fmt.width <= TABLE_WIDTH
    codes = cast_of(cast).codes(x.contiguous(), segments.fmt, 0 if key is None else int(key))
    if value_key is None and narrow:
        values = _all_values(segments, mode, saturate, x.device)[codes]
    else:
        random = None if value_key is None else words(int(value_key), mode.bits, tuple(codes.shape), x.device)
        found = pwl(codes, table=segments, rounding=mode, saturate=saturate, random=random)
        values = decode(found, segments.out)
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
    """Slopes of the lines at numbers, in float64; at a breakpoint, that of the later line."""
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
    """Slopes by the chain rule: reducing the argument and scaling the value contribute factors."""
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
def _all_values(table: Segments, rounding: Rounding, saturate: bool, device: torch.device) -> Tensor:
    """Values at all codes."""
    codes = torch.arange(1 << table.fmt.width, device=device)
    return decode(pwl(codes, table=table, rounding=rounding, saturate=saturate), table.out)


@functools.lru_cache(maxsize=64)
def _all_slopes(table: Segments, device: torch.device) -> Tensor:
    """Slopes at all codes."""
    return slopes(decode(torch.arange(1 << table.fmt.width, device=device), table.fmt), table)


_DERIVATIVES = dict(FUNCTIONS)
"""Functions for derivatives by their keys: names of tables, and numbers of functions of users."""


def _known(derivative: object, name: str) -> str:
    """Key of a derivative."""
    if derivative == PIECE:
        return PIECE
    if callable(derivative):
        _DERIVATIVES[str(id(derivative))] = derivative
        return str(id(derivative))
    if derivative != TRUE:
        raise ValueError(f"unknown derivative {derivative!r}; there are {PIECE}, {TRUE}, and any function of torch")
    if name not in FUNCTIONS:
        raise ValueError(f"torch has no function {name}; give a function for the derivative")
    return name
