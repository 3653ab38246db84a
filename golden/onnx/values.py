"""Values of a quantized graph: integers with a factor, and the operators QuantizeLinear and DequantizeLinear."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halfulp.golden.check import broadcast
from halfulp.golden.values import decode, encode
from halfulp.golden.zeros import difference_format
from halfulp.hdl.formats import OFF, SATFINITE, Fixed, Format, parse

FORMATS = {
    **{f"{kind}{bits}": f"{kind.lower()}{bits}" for kind in ("INT", "UINT") for bits in (4, 8, 16, 32)},
    "FLOAT8E4M3FN": "e4m3fn",
    "FLOAT8E4M3FNUZ": "e4m3fnuz",
    "FLOAT8E5M2": "e5m2",
    "FLOAT8E5M2FNUZ": "e5m2fnuz",
    "FLOAT4E2M1": "e2m1fn",
}
"""Formats by the names of ONNX's types of quantized tensors."""


@dataclass(frozen=True)
class Codes:
    """Numbers of a quantized tensor without zero point and factor, in float64, with their format."""

    numbers: Tensor
    fmt: Format


@dataclass(frozen=True)
class Scaled:
    """Numbers of a quantized tensor, or sums of their products, with the factor of the real numbers.

    Attributes
    ----------
    numbers : Tensor of float64
        Differences from the zero point.
    scale : Tensor of float32
        One factor without dimensions, or factors with as many dimensions as the numbers.
    fmt : Format, optional
        Format of the numbers; None for sums of products.
    """

    numbers: Tensor
    scale: Tensor
    fmt: Format | None

    @property
    def real(self) -> Tensor:
        """Real numbers in float32, with one rounding of the number and one of the product."""
        return self.numbers.to(torch.float32) * self.scale

    @property
    def by_tensor(self) -> bool:
        """True if the tensor has one factor."""
        return self.scale.numel() == 1


Value = Tensor | Codes | Scaled
"""Real numbers in float32, indices in int64, or a quantized tensor."""


def real(value: Value) -> Tensor:
    """Return real numbers; ValueError for codes, which have no factor."""
    if isinstance(value, Codes):
        raise ValueError(f"its operand has codes in {value.fmt}; expected real numbers, behind a DequantizeLinear")
    return value.real if isinstance(value, Scaled) else value


def as_parameter(values: Tensor, like: Tensor, axis: int, block: int = 0) -> Tensor:
    """Return scales or zero points in a shape that broadcasts to a tensor: one, by channel, or by blocks.

    Raises
    ------
    ValueError
        If the tensor has no such axis, or another number of channels or blocks.
    """
    if values.numel() == 1:
        return values.reshape(())
    if not -like.dim() <= axis < like.dim():
        raise ValueError(f"its axis is {axis}, but its operand has {like.dim()} dimensions")
    axis %= like.dim()
    expected = list(like.shape) if block else [like.shape[axis]]
    if block:
        expected[axis] = -(-like.shape[axis] // block)
    if list(values.shape) != expected:
        raise ValueError(f"its scale or zero point has shape {tuple(values.shape)}; expected {tuple(expected)}")
    if block:
        return values.repeat_interleave(block, axis).narrow(axis, 0, like.shape[axis])
    return values.reshape([-1 if place == axis else 1 for place in range(like.dim())])


def aligned(values: Tensor, dims: int) -> Tensor:
    """Return factors with a number of dimensions, the first of size 1; a single factor has no dimensions."""
    return values.reshape(()) if values.numel() == 1 else values.reshape(([1] * dims + list(values.shape))[-dims:])


def _less_zero(fmt: Format, zero: Tensor) -> Format:
    """Return the format of differences from zero points; that of the numbers if all are 0."""
    return difference_format(fmt) if bool(zero.any()) else fmt


def _quotient(x: Value, scale: Tensor) -> Tensor:
    """Divide by a scale in float32; sums of products are multiplied by one factor, that of the sums over the scale."""
    if isinstance(x, Scaled) and x.fmt is None:
        return x.numbers.to(torch.float32) * (x.scale / scale)
    return real(x) / scale


def quantized(x: Value, scale: Tensor, zero: Tensor, fmt: Format, *, saturate: bool = True) -> Codes:
    """Compute QuantizeLinear: ``x / scale`` in float32, rounded to nearest, ties to even, plus the zero point.

    Sums of products are multiplied by one factor, that of the sums divided by ``scale``, as in QLinearConv.
    """
    quotient = _quotient(x, scale)
    if not isinstance(fmt, Fixed):
        _less_zero(fmt, zero)
        codes = encode(quotient, fmt, saturate=SATFINITE if saturate else OFF)
        return Codes(decode(codes, fmt), fmt)
    numbers = quotient.round().to(torch.float64) + zero
    return Codes(numbers.clamp(fmt.least_integer, fmt.largest_integer), fmt)


def dequantized(x: Codes, scale: Tensor, zero: Tensor) -> Scaled:
    """Compute DequantizeLinear."""
    return Scaled(x.numbers - zero, scale, _less_zero(x.fmt, zero))


def quant(x: Value, scale: Tensor, zero: Tensor, bits: int, attributes: dict[str, Any]) -> Scaled:
    """Compute QONNX's Quant: ``x / scale + zero``, rounded and clipped, as numbers with a factor.

    Scales and zero points broadcast to ``x``.
    """
    shape = x.shape if isinstance(x, Tensor) else x.numbers.shape
    for name, values in (("its scale", scale), ("its zero point", zero)):
        if values.numel() != 1:
            broadcast(name, values, tuple(shape))
    if not zero.equal(zero.round()):
        raise ValueError("its zero point is not an integer")
    scale, zero = aligned(scale, len(shape)), aligned(zero, len(shape))
    signed, narrow = attributes.get("signed", 1), attributes.get("narrow", 0)
    mode = attributes.get("rounding_mode", "ROUND")
    if mode not in ("ROUND", "HALF_EVEN"):
        raise ValueError(f"its rounding_mode is {mode}; expected ROUND")
    fmt = Fixed(bits, 0, bool(signed), "narrow" if signed and narrow else "saturate")
    low, high = fmt.least_integer, fmt.largest_integer - (1 if narrow and not signed else 0)
    numbers = (_quotient(x, scale) + zero.to(torch.float32)).round().to(torch.float64).clamp(low, high)
    return dequantized(Codes(numbers, parse(str(fmt).removesuffix("-narrow"))), scale, zero)
