"""Activation functions of torch models as line segments, bit for bit as the units compute them."""

import copy
import fnmatch
import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfulp.golden.activation import pwl
from halfulp.golden.values import decode
from halfulp.hdl.formats import EXACT, RN, Rounding
from halfulp.hdl.specs.segments import Segments

from .cast import Cast, check_holds, check_real
from .draw import words
from .layers import Computed

TABLE_WIDTH = 16
"""Formats of up to so many bits have all their values worked out once."""

PIECE, TRUE = "piece", "true"
"""Derivatives: the slope of the line that a number is on, and that of the function which the lines stand for."""

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
"""Torch's functions by the names of ours; their derivatives are the true ones."""


class PiecewiseLinear(Computed):
    """A function of every element as line segments.

    Elements are rounded to the operand's format, the function's value at that is rounded to the result's, and both are
    what the unit gives bit for bit.

    Parameters
    ----------
    table : Segments
    rounding : Rounding or str
        Of the value.
    saturate : bool
        Overflow of the value gives the largest finite number.
    cast : Cast or str
        How elements become numbers of ``table.fmt``; what is beyond its range is the end of it unless told otherwise.
    derivative : str or callable
        ``piece``: the slope of the line that the element is on; ``true``: the derivative of the function of the
        table's name; or a function of torch, of which it is taken. Roundings count as if they were none.
    seed : int, optional
        Of random words; without one torch's generator draws it.

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
            raise TypeError(f"table is a Segments, not of {type(table).__name__}")
        if not isinstance(saturate, bool):
            raise TypeError(f"saturate is a bool, not {type(saturate).__name__}")
        self.table, self.rounding, self.saturate = table, Rounding.parse(rounding), saturate
        if self.rounding == EXACT:
            table.check_exact()
        self.cast = Cast.parse(cast)
        if self.cast.fmt is not None:
            raise ValueError(f"elements are rounded to {table.fmt}, so that {self.cast} names no format")
        self.derivative = derivative
        self._true = None if derivative == PIECE else _function(derivative, table.name)
        self._set_state(bool(self.rounding.bits or self.cast.rounding.bits), seed)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name
        """The function's values."""
        dtype = check_real(input, "input")
        check_holds(dtype, self.table.out)
        with torch.no_grad():
            codes = self.cast.codes(input, self.table.fmt, self.next_key())
            values = self._values(codes).to(dtype)
            if not (torch.is_grad_enabled() or input.requires_grad):
                return values
            slopes = self._slopes(input, codes).to(dtype)
        found: Tensor = _WithSlope.apply(input, values, slopes)
        return found

    def _values(self, codes: Tensor) -> Tensor:
        """Values of codes, as real numbers."""
        if self.rounding.bits:
            random = words(self.next_key(), self.rounding.bits, tuple(codes.shape), codes.device)
            found = pwl(codes, table=self.table, rounding=self.rounding, saturate=self.saturate, random=random)
            return decode(found, self.table.out)
        if self.table.fmt.width > TABLE_WIDTH:
            return decode(pwl(codes, table=self.table, rounding=self.rounding, saturate=self.saturate), self.table.out)
        return _all_values(self.table, self.rounding, self.saturate, codes.device)[codes]

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
        """What a printed model shows of it."""
        kind = self.derivative if isinstance(self.derivative, str) else self.derivative.__name__
        return f"{self.table}, {self.table.fmt} to {self.table.out}, {self.rounding}, derivative={kind}"


class _WithSlope(torch.autograd.Function):
    """Values that are given, with slopes that are given."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, values: Tensor, slope: Tensor) -> Tensor:
        """The values."""
        ctx.save_for_backward(slope)
        return values

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """The gradient times the slope."""
        (slope,) = ctx.saved_tensors
        return gradients[0] * slope, None, None


def slopes(x: Tensor, table: Segments) -> Tensor:
    """Derivatives of the lines that numbers are on, in float64; where lines meet, that of the later one."""
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
    """By the chain rule: what reduces the argument counts as a factor, and what scales the value too."""
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
    """The function of torch whose derivative is taken."""
    if callable(derivative):
        return derivative
    if derivative != TRUE:
        raise ValueError(f"unknown derivative {derivative!r}; there are {PIECE}, {TRUE}, and any function of torch")
    if name not in FUNCTIONS:
        raise ValueError(f"{name} is no function that torch has; give a function whose derivative is taken")
    return FUNCTIONS[name]


def swap_activations(
    model: nn.Module, swaps: Mapping[str | type[nn.Module], PiecewiseLinear], *, inplace: bool = False
) -> nn.Module:
    """Swap modules such as `torch.nn.Tanh` for line segments.

    Parameters
    ----------
    model : Module
    swaps : mapping
        By patterns of names such as ``"cell.*"`` or by types such as ``nn.Tanh``; the first that matches counts.
    inplace : bool
        Change the model itself, instead of a copy.

    Returns
    -------
    Module
        The model.

    Raises
    ------
    TypeError, ValueError
        If something is of the wrong kind, or a pattern or a type matches no module.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"a model is a Module of torch, not {type(model).__name__}")
    for pattern, twin in swaps.items():
        if not isinstance(twin, PiecewiseLinear):
            raise TypeError(f"an activation is swapped for a PiecewiseLinear, not for {type(twin).__name__}")
        if not (isinstance(pattern, str) or (isinstance(pattern, type) and issubclass(pattern, nn.Module))):
            raise TypeError(f"activations are named by a pattern or a type of Module, not by {pattern!r}")
    made = model if inplace else copy.deepcopy(model)
    used = set()
    for parent_name, parent in list(made.named_modules()):
        for child_name, child in list(parent.named_children()):
            name = f"{parent_name}.{child_name}" if parent_name else child_name
            found = next((pattern for pattern in swaps if _matches(pattern, name, child)), None)
            if found is not None:
                setattr(parent, child_name, copy.deepcopy(swaps[found]))
                used.add(found)
    for pattern in swaps:
        if pattern not in used:
            what = pattern.__name__ if isinstance(pattern, type) else repr(pattern)
            raise ValueError(f"{what} matches no module of the model")
    return made


def _matches(pattern: str | type[nn.Module], name: str, module: nn.Module) -> bool:
    return isinstance(module, pattern) if isinstance(pattern, type) else fnmatch.fnmatchcase(name, pattern)
