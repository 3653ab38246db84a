"""Values of a quantized graph: integers with a factor, and the operators QuantizeLinear and DequantizeLinear."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

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
        One factor, or factors with the dimensions of the numbers.
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
    """Return scales or zero points in a shape that broadcasts to a tensor: one, by channel, or by blocks."""
    if values.numel() == 1:
        return values.reshape(())
    axis %= max(like.dim(), 1)
    if block:
        return values.repeat_interleave(block, axis).narrow(axis, 0, like.shape[axis])
    return values.reshape([-1 if place == axis else 1 for place in range(like.dim())])


def quantized(x: Value, scale: Tensor, zero: Tensor, fmt: Format, *, saturate: bool = True) -> Codes:
    """Compute QuantizeLinear: ``x / scale`` in float32, rounded to nearest, ties to even, plus the zero point.

    Sums of products are multiplied by one factor, that of the sums divided by ``scale``, as in QLinearConv.
    """
    if isinstance(x, Scaled) and x.fmt is None:
        quotient = x.numbers.to(torch.float32) * (x.scale / scale)
    else:
        quotient = real(x) / scale
    if not isinstance(fmt, Fixed):
        codes = encode(quotient, fmt, saturate=SATFINITE if saturate else OFF)
        return Codes(decode(codes, fmt), fmt)
    numbers = quotient.round().to(torch.float64) + zero
    return Codes(numbers.clamp(fmt.least_integer, fmt.largest_integer), fmt)


def dequantized(x: Codes, scale: Tensor, zero: Tensor) -> Scaled:
    """Compute DequantizeLinear."""
    if not bool(zero.any()):
        return Scaled(x.numbers, scale, x.fmt)
    return Scaled(x.numbers - zero, scale, difference_format(x.fmt))


def quant(x: Value, scale: Tensor, zero: Tensor, bits: int, attributes: dict[str, Any]) -> Scaled:
    """Compute QONNX's Quant: ``x / scale + zero``, rounded and clipped, as numbers with a factor."""
    signed, narrow = attributes.get("signed", 1), attributes.get("narrow", 0)
    mode = attributes.get("rounding_mode", "ROUND")
    if mode not in ("ROUND", "HALF_EVEN"):
        raise ValueError(f"its rounding_mode is {mode}; expected ROUND")
    fmt = Fixed(bits, 0, bool(signed), "narrow" if signed and narrow else "saturate")
    low, high = fmt.least_integer, fmt.largest_integer - (1 if narrow and not signed else 0)
    if isinstance(x, Scaled) and x.fmt is None:
        quotient = x.numbers.to(torch.float32) * (x.scale / scale)
    else:
        quotient = real(x) / scale
    numbers = (quotient + zero.to(torch.float32)).round().to(torch.float64).clamp(low, high)
    return dequantized(Codes(numbers, parse(str(fmt).removesuffix("-narrow"))), scale, zero)
