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
from .layers import Stateful

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
        self._true = None if derivative == PIECE else _function(derivative, table.name)
        self._set_state(bool(self.rounding.bits or self.cast.rounding.bits), seed)

    @torch.compiler.disable
    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name
        """The function's values, outside of compiled graphs."""
        dtype = check_real(input, "input")
        check_holds(dtype, self.table.out)
        with torch.no_grad():
            codes = self.cast.codes(input, self.table.fmt, self._key(input))
            values = self._values(codes).to(dtype)
            if not (torch.is_grad_enabled() or input.requires_grad):
                return values
            slopes = self._slopes(input, codes).to(dtype)
        found: Tensor = _WithSlope.apply(input, values, slopes)
        return found

    def _key(self, x: Tensor) -> int:
        key = self.next_key(x)
        return 0 if key is None else int(key)

    def _values(self, codes: Tensor) -> Tensor:
        """Values of codes, as real numbers."""
        if not self.rounding.bits and self.table.fmt.width <= TABLE_WIDTH:
            return _all_values(self.table, self.rounding, self.saturate, codes.device)[codes]
        random = None
        if self.rounding.bits:
            random = words(self._key(codes), self.rounding.bits, tuple(codes.shape), codes.device)
        found = pwl(codes, table=self.table, rounding=self.rounding, saturate=self.saturate, random=random)
        return decode(found, self.table.out)

    def _slopes(self, values: Tensor, codes: Tensor) -> Tensor:
        if self._true is None:
            if self.table.fmt.width > TABLE_WIDTH:
                return slopes(decode(codes, self.table.fmt), self.table)
            return _all_slopes(self.table, codes.device)[codes]
        with torch.enable_grad():
            at = values.detach().requires_grad_()
            (found,) = torch.autograd.grad(self._true(at).sum(), at)
        return found

    def extra_repr(self) -> str:
        """Text of the layer in a printed model."""
        kind = self.derivative if isinstance(self.derivative, str) else self.derivative.__name__
        return f"{self.table}, {self.table.fmt} to {self.table.out}, {self.rounding}, derivative={kind}"


class _WithSlope(torch.autograd.Function):
    """Given values with given slopes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, values: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        return values

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return gradients[0] * slope, None, None


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


def _function(derivative: object, name: str) -> Callable[[Tensor], Tensor]:
    """Function of torch for the derivative."""
    if callable(derivative):
        return derivative
    if derivative != TRUE:
        raise ValueError(f"unknown derivative {derivative!r}; there are {PIECE}, {TRUE}, and any function of torch")
    if name not in FUNCTIONS:
        raise ValueError(f"torch has no function {name}; give a function for the derivative")
    return FUNCTIONS[name]
