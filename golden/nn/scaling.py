"""Scaling of operands: division by a factor before rounding, and multiplication of results by the factors."""

import functools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halfulp.golden.check import check_bool, check_int
from halfulp.golden.errorfree import product_error, sum_and_error, to_odd
from halfulp.golden.values import decoded, encoded
from halfulp.hdl.formats import BF16, FP16, OFF, RN, Fixed, Format

from .sparsity import runs_of

KINDS = ("pow2", "real")
_PER = re.compile(r"tensor|channel|group(?P<length>[1-9][0-9]*)")
_PART = re.compile(
    r"(?P<kind>pow2|real)|(?P<affine>affine)|(?P<current>current)|delayed(?P<history>[0-9]*)|margin(?P<margin>-?[0-9]+)"
)

_NARROW = {torch.float16: FP16, torch.bfloat16: BF16}

HISTORY = 1024
"""Default length of histories, that of Transformer Engine."""

LOW, HIGH = -126, 127
"""Exponents of the normal numbers of binary32, the range of factors."""


@dataclass(frozen=True)
class Scaling:
    """Scaling of an operand of products.

    Parameters
    ----------
    per : str
        ``tensor``: one factor for a tensor. ``channel``: one factor for each row of the first matrix of a product and
        for each column of the second, which are not summed; in convolutions one for each image, output channel, or
        input channel of a group. ``group128``: one factor for 128 consecutive elements along the sums of the forward
        product, in convolutions 128 channels at each place of the kernel. Elements are then multiplied by their factors
        before the product, and rounded to nearest to its operand format, which is a float.
    kind : str
        ``pow2``: powers of two. ``real``: numbers of binary32.
    margin : int
        Power of two by which factors are larger, for sums that would overflow.
    history : int
        Delayed scaling: number of earlier uses of the operand whose largest magnitude gives the factor. 0: the factor
        is that of the tensor itself.
    affine : bool
        Integers with a zero point, from the least and the largest element.

    Raises
    ------
    TypeError, ValueError
        If a parameter is invalid.

    Notes
    -----
    With the largest magnitude amax of the finite elements and the largest number of both the format of the cast, if it
    has one, and that of the operand, the factor is the smallest power of two, or number of binary32, whose product with
    the largest number is at least amax, times 2^margin, within the normal numbers of binary32. It is 1 if amax is 0.
    Elements are divided by the factor, and the exact quotients are rounded as elements without a scale are. A product
    is that of `halfulp.golden.gemm` on these codes, with sums that start from +0. Its result is multiplied by both
    factors, then a bias in the accumulator's format is added, and the exact value is rounded once to the type of the
    tensor. Without a bias and with powers of two, the value needs no rounding within the range of the type.

    With ``affine`` the format of the cast, or without one that of the operand, is fixed point. From the finite elements
    and 0, the factor is the smallest one whose product with the difference of the format's largest and lowest number is
    at least that of the largest and the least element (in binary64), times 2^margin. The zero point is the lowest
    number minus the quotient of the least element and the factor, rounded to nearest, ties to even, and at most the
    largest number. An element is its rounded quotient plus the zero point, which saturates. Products are those of the
    elements minus the zero points, in a format of one bit more, as with ``a_zero`` and ``b_zero`` of
    `halfulp.golden.gemm`.

    Delayed scaling is that of FP8 training recipes (Transformer Engine: ``amax_history_len=1024``, ``max``,
    ``margin=0``; ``delayed1`` is its ``most_recent``). The first factor is 1, and elements that grow may exceed the
    range: give the cast ``.sat``. A use adds amax to the history; see `halfulp.golden.nn.amax`.

    ``str()`` gives a text such as ``tensor.pow2.current``, ``tensor.pow2.delayed16`` or
    ``group128.real.affine.current.margin2``, which `Scaling.parse` reads; ``current`` and ``pow2`` may be left out, and
    ``delayed`` has a history of 1024 uses.
    """

    per: str = "tensor"
    kind: str = "pow2"
    margin: int = 0
    history: int = 0
    affine: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.per, str) or not _PER.fullmatch(self.per):
            raise ValueError(f"per of a scale must be tensor, channel or, for example, group128, not {self.per!r}")
        if self.kind not in KINDS:
            raise ValueError(f"kind of a scale must be {' or '.join(KINDS)}, not {self.kind!r}")
        check_bool("affine of a scale", self.affine)
        check_int("margin of a scale", self.margin, LOW, HIGH)
        check_int("history of a scale", self.history, 0, 1 << 20)
        if self.history and self.per != "tensor":
            raise ValueError(f"delayed scaling has one factor for a tensor; use tensor.{self.kind}.delayed")
        if self.history and self.affine:
            raise ValueError("histories have no least element for a zero point; use current in place of delayed")

    @property
    def group(self) -> int:
        """Number of consecutive elements along the sums with one factor; 0 for other scales."""
        match = _PER.fullmatch(self.per)
        return int((match and match["length"]) or 0)

    def __str__(self) -> str:
        affine = ".affine" if self.affine else ""
        margin = f".margin{self.margin}" if self.margin else ""
        length = "" if self.history == HISTORY else self.history
        return f"{self.per}.{self.kind}{affine}.{f'delayed{length}' if self.history else 'current'}{margin}"

    @classmethod
    def parse(cls, text: str) -> "Scaling":
        """Parse a text that ``str()`` wrote."""
        per, *parts = text.split(".")
        fields: dict[str, Any] = {}
        for part in parts:
            match = _PART.fullmatch(part)
            name = match and match.lastgroup
            value: Any = match and name and match[name]
            if name in ("current", "history"):
                # A digit must follow, or nothing: delayed0 would be no history.
                name, value = "history", 0 if name == "current" else int(value or HISTORY) or None
            if name is None or name in fields or value is None:
                raise ValueError(
                    f"invalid scale {text!r}: expected tensor, channel or group128, then pow2 or real, affine, current "
                    "or delayed16, and margin2, for example"
                )
            fields[name] = {"margin": int, "affine": bool}.get(name, lambda given: given)(value)
        return cls(per, **fields)

    def factor(
        self, values: Tensor, formats: Iterable[Format], summed: Sequence[int], delayed: Tensor | None = None
    ) -> Tensor:
        """Return the factors of a tensor for the formats to which it is rounded, as float64 with its dimensions.

        ``summed`` are the dimensions that have one factor in scaling by channel or group; ``delayed`` is the largest
        magnitude of a history.
        """
        if delayed is not None:
            amax = delayed.to(values.device).reshape([1] * values.dim())
        else:
            amax = largest_magnitude(values, range(values.dim()) if self.per == "tensor" else summed)
        return self._factor(amax, min(map(_largest, formats)))

    def quotients(
        self, values: Tensor, fmt: Format, summed: Sequence[int], runs: tuple[Sequence[int], int]
    ) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor] | None]:
        """Divide values by factors of groups, or by those of integers with zero points.

        Parameters
        ----------
        values : Tensor
        fmt : Format
            Format to which the quotients are rounded; fixed point for zero points.
        summed : sequence of int
            Dimensions of the sums.
        runs : tuple
            Dimensions along which groups run, and number of parts of the channels, as for `sparsity.runs_of`.

        Returns
        -------
        tuple
            Quotients and factors in float64, and the differences of lowest and largest number from the zero points.
        """
        grouped, restore = values, None
        if self.group and values.numel():
            grouped, restore = runs_of(values, *runs, self.group, 0.0)
            summed = (-1,)
        ends: tuple[Tensor, ...] = ()
        if self.affine:
            assert isinstance(fmt, Fixed)
            factor, zero = self._affine(grouped, fmt, summed)
            ends = tuple((end - zero) * 2.0**fmt.quantum for end in (fmt.least_integer, fmt.largest_integer))
        else:
            factor = self.factor(grouped, [fmt], summed)
        if restore is not None:
            factor = restore(factor.expand(grouped.shape))
            ends = tuple(restore(end.expand(grouped.shape)) for end in ends)
        return divided(values, factor), factor, (ends[0], ends[1]) if ends else None

    def _affine(self, values: Tensor, fmt: Fixed, summed: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return factors and zero points, integers in units of the last place, as float64."""
        dims = range(values.dim()) if self.per == "tensor" else summed
        least, most = largest_magnitude(values.clamp(max=0), dims), largest_magnitude(values.clamp(min=0), dims)
        unit = 2.0**fmt.quantum
        factor = self._factor(least + most, (fmt.largest_integer - fmt.least_integer) * unit)
        zero = fmt.least_integer + (divided(least, factor) / unit).round()
        return factor, zero.clamp(max=fmt.largest_integer)

    def _factor(self, amax: Tensor, limit: float) -> Tensor:
        """Return the smallest factors whose products with a limit are at least amax, with the margin."""
        factor = _power_of_two(amax, limit) if self.kind == "pow2" else _number(amax, limit)
        factor = torch.ldexp(factor, torch.tensor(self.margin, device=amax.device))
        factor = factor.clamp(2.0**LOW, (2 - 2.0**-23) * 2.0**HIGH)
        return torch.where(amax == 0, 1.0, factor)


def largest_magnitude(values: Tensor, dims: Sequence[int]) -> Tensor:
    """Return the largest magnitude of the finite elements over dimensions, which stay with one element; 0 of none."""
    finite = torch.where(values.isfinite(), values.abs(), 0).to(torch.float64)
    if not values.numel():
        places = {dim % values.dim() for dim in dims} if values.dim() else set()
        return finite.new_zeros([1 if place in places else size for place, size in enumerate(values.shape)])
    return finite.amax(list(dims), keepdim=True) if dims else finite


@functools.lru_cache(maxsize=256)
def _largest(fmt: Format) -> float:
    """Return the largest finite number of a format, of a compound one that of its parts: larger numbers overflow."""
    return float(fmt.part_format.largest)


def _power_of_two(amax: Tensor, limit: float) -> Tensor:
    """Return the smallest power of two whose product with the limit is at least amax."""
    significand, exponent = torch.frexp(amax)
    of_limit, limit_exponent = math.frexp(limit)
    return torch.ldexp(torch.ones_like(amax), exponent - limit_exponent + (significand > of_limit))


def _number(amax: Tensor, limit: float) -> Tensor:
    """Return the smallest number of binary32 whose product with the limit is at least amax."""
    near = (amax / limit).to(torch.float32)
    down, up = (torch.nextafter(near, near.new_tensor(end)) for end in (-math.inf, math.inf))
    number = up
    for candidate in (near, down):
        number = torch.where(candidate.to(torch.float64) * limit >= amax, candidate, number)
    return number.to(torch.float64)


def divided(values: Tensor, factor: Tensor) -> Tensor:
    """Divide by factors, as float64; a quotient that is not exact is rounded to odd."""
    x = values.to(torch.float64)
    quotient = x / factor
    if _powers_of_two(factor):
        return quotient
    product = quotient * factor
    # Factors are positive, so that the remainder has the sign of the error.
    return to_odd(quotient, (x - product) - product_error(quotient, factor, product))


def multiplied(sums: Tensor, factor: Tensor, dtype: torch.dtype, bias: Tensor | None = None) -> Tensor:
    """Multiply sums in float64 by factors, add a bias in float64, and round once to a type."""
    product = sums * factor
    error = None if _powers_of_two(factor) else product_error(sums, factor, product)
    if bias is not None:
        product, error = _added(product, error, bias)
    if dtype == torch.float64:
        return product
    if error is not None:
        product = to_odd(product, error)
    if dtype == torch.float32:
        return product.to(dtype)
    # torch rounds float64 to narrower types through float32.
    fmt = _NARROW[dtype]
    return decoded(encoded(product, fmt, RN, None, OFF), fmt, dtype)


def _added(product: Tensor, error: Tensor | None, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of a product with its error and a bias, rounded once, and a number with the sign of its error.

    The sum of both errors is rounded to odd (Boldo and Melquiond, IEEE TC 57(4), 2008, algorithm of fma).
    """
    total, rest = sum_and_error(product, bias)
    if error is None:
        return total, rest
    low, rest = sum_and_error(bias, error)
    high, more = sum_and_error(product, low)
    rounded, rest = sum_and_error(high, to_odd(*sum_and_error(more, rest)))
    # Infinities, NaN and zeros have their signs from the plain sum.
    usual = total.isfinite() & (rounded != 0)
    return torch.where(usual, rounded, total), torch.where(usual, rest, 0.0)


def _powers_of_two(factor: Tensor) -> bool:
    return bool((torch.frexp(factor)[0] == 0.5).all())
