"""Operators of quantized graphs on tensors."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfulp.golden.nn.layers import Bmm
from halfulp.hdl.formats import parse

from .values import Codes, Scaled, Value, aligned, as_parameter, dequantized, quant, quantized, real

FLOAT = 1
"""Type of float32 in ONNX."""

INT32 = parse("int32")


@dataclass(frozen=True)
class Node:
    """Operator of a graph.

    Attributes
    ----------
    kind, name : str
        Type and name of the node.
    inputs, outputs : tuple of str
        Names of values; an empty name is an input that is left out.
    attributes : dict
    layer : str
        Name of the layer that computes a product; empty for other operators.
    """

    kind: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    layer: str = ""


Given = list[Value | None]
Operator = Callable[[Node, Given], Value]


def _scale_and_zero(node: Node, given: Given, like: Tensor) -> tuple[Tensor, Tensor]:
    axis, block = node.attributes.get("axis", 1), node.attributes.get("block_size", 0)
    scale, zero = given[1], given[2] if len(given) > 2 else None
    if not isinstance(scale, Tensor) or scale.dtype != torch.float32:
        raise ValueError("its scale is not in float32")
    offsets = torch.zeros((), dtype=torch.float64) if zero is None else _numbers(zero)
    return as_parameter(scale, like, axis, block), as_parameter(offsets, like, axis, block)


def _numbers(value: Value) -> Tensor:
    return value.numbers if isinstance(value, Codes) else real(value).to(torch.float64)


def _quantize_linear(node: Node, given: Given) -> Value:
    x = _given(given, 0)
    fmt = node.attributes["format"]
    like = x.numbers if isinstance(x, (Scaled, Codes)) else x
    saturate = bool(node.attributes.get("saturate", 1))
    return quantized(x, *_scale_and_zero(node, given, like), fmt, saturate=saturate)


def _dequantize_linear(node: Node, given: Given) -> Value:
    x = _given(given, 0)
    if not isinstance(x, Codes):
        raise ValueError("its operand is not quantized")
    return dequantized(x, *_scale_and_zero(node, given, x.numbers))


def _quant(node: Node, given: Given) -> Value:
    x, scale, zero, bits = (_given(given, place) for place in range(4))
    widths = real(bits)
    width = float(widths.flatten()[0]) if widths.numel() == 1 else 0.0
    if width not in range(1, 33):
        raise ValueError(f"its bitwidth is {widths.tolist()}; expected an integer, 1 to 32")
    return quant(x, real(scale), real(zero).to(torch.float64), int(width), node.attributes)


def _given(given: Given, place: int) -> Value:
    value = given[place] if place < len(given) else None
    if value is None:
        raise ValueError(f"its input {place} is missing")
    return value


def _kept(run: Callable[[Node, Given, Tensor], Tensor]) -> Operator:
    """Make an operator that moves or selects numbers; one factor of the tensor stays, others multiply them first."""

    def operator(node: Node, given: Given) -> Value:
        x = _given(given, 0)
        if isinstance(x, Scaled) and x.by_tensor:
            return Scaled(run(node, given, x.numbers), x.scale.reshape(()), x.fmt)
        if isinstance(x, Codes):
            return Codes(run(node, given, x.numbers), x.fmt)
        return run(node, given, real(x))

    return operator


def _transpose(node: Node, given: Given) -> Value:
    x = _given(given, 0)
    if isinstance(x, Scaled) and not x.by_tensor:
        order = node.attributes.get("perm") or list(reversed(range(x.numbers.dim())))
        return Scaled(x.numbers.permute(order), x.scale.permute(order), x.fmt)
    return _kept(lambda node, _, x: x.permute(node.attributes.get("perm") or list(reversed(range(x.dim())))))(
        node, given
    )


def _reshape(node: Node, given: Given, x: Tensor) -> Tensor:
    wanted = [int(size) for size in real(_given(given, 1)).tolist()]
    shape = wanted
    if not node.attributes.get("allowzero", 0):
        shape = [x.shape[place] if size == 0 and place < x.dim() else size for place, size in enumerate(wanted)]
    try:
        return x.reshape(shape)
    except RuntimeError as error:
        raise ValueError(f"its operand has shape {tuple(x.shape)}, which has no form {tuple(wanted)}") from error


def _flatten(node: Node, _: Given, x: Tensor) -> Tensor:
    axis = node.attributes.get("axis", 1)
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def _relu(node: Node, given: Given) -> Value:
    x = _given(given, 0)
    if isinstance(x, Scaled):
        # Factors are positive, so that a number has the sign of the real number.
        return Scaled(x.numbers.clamp(min=0), x.scale, x.fmt)
    return real(x).clamp(min=0)


def windows(node: Node) -> tuple[list[int], list[int], list[int]]:
    """Return stride, dilation and padding of a node (left, right, above, below); ValueError if it is not supported."""
    attributes = node.attributes
    if attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise ValueError(f"its auto_pad is {attributes['auto_pad']}; expected NOTSET, with pads")
    if attributes.get("ceil_mode", 0):
        raise ValueError("its ceil_mode is 1; expected 0")
    kernel = attributes.get("kernel_shape", [1, 1])
    if len(kernel) != 2:
        raise ValueError(f"its kernel has {len(kernel)} dimensions; expected 2")
    pads = attributes.get("pads") or [0] * 4
    if len(pads) != 4:
        raise ValueError(f"its pads are {pads}; expected 4 numbers")
    above, left, below, right = pads
    return attributes.get("strides") or [1, 1], attributes.get("dilations") or [1, 1], [left, right, above, below]


def _max_pool(node: Node, _: Given, x: Tensor) -> Tensor:
    stride, dilation, padding = windows(node)
    return F.max_pool2d(F.pad(x, padding, value=-torch.inf), node.attributes["kernel_shape"], stride, 0, dilation)


def _average_pool(node: Node, given: Given) -> Value:
    stride, dilation, padding = windows(node)
    if dilation != [1, 1]:
        raise ValueError(f"its dilations are {dilation}; expected 1, 1")
    kernel, whole = node.attributes["kernel_shape"], bool(node.attributes.get("count_include_pad", 0))

    def sums(x: Tensor, value: float = 0.0) -> Tensor:
        return F.avg_pool2d(F.pad(x, padding, value=value), kernel, stride, divisor_override=1)

    return _average(_given(given, 0), sums, lambda like: sums(like, 1.0 if whole else 0.0))


def _global_average_pool(node: Node, given: Given) -> Value:
    return _average(_given(given, 0), _over_images, _over_images)


def _over_images(x: Tensor) -> Tensor:
    if x.dim() < 3:
        raise ValueError(f"its operand has shape {tuple(x.shape)}; expected images of channels")
    return x.sum(tuple(range(2, x.dim())), keepdim=True)


def _average(x: Value, sums: Callable[[Tensor], Tensor], counts: Callable[[Tensor], Tensor]) -> Tensor:
    """Divide sums by numbers of elements; those of a quantized tensor are exact."""
    if isinstance(x, Scaled) and x.by_tensor and x.fmt is not None:
        return Scaled(sums(x.numbers), x.scale.reshape(()), None).real / counts(torch.ones_like(x.numbers)).to(
            torch.float32
        )
    return sums(real(x)) / counts(torch.ones_like(real(x)))


def _add(node: Node, given: Given) -> Value:
    return real(_given(given, 0)) + real(_given(given, 1))


def _mul(node: Node, given: Given) -> Value:
    return real(_given(given, 0)) * real(_given(given, 1))


def _cast(node: Node, given: Given) -> Value:
    x = _given(given, 0)
    if node.attributes.get("to") != FLOAT:
        raise ValueError("it converts to another type than FLOAT, which is not supported")
    return x.numbers.to(torch.float32) if isinstance(x, Codes) else real(x).to(torch.float32)


def _integers(node: Node, given: Given) -> Value:
    """Return sums of products with the factor 1 as integers."""
    x = _given(given, 0)
    assert isinstance(x, Scaled)
    return Codes(x.numbers, INT32)


def _identity(node: Node, given: Given) -> Value:
    return _given(given, 0)


OPERATORS: dict[str, Operator] = {
    "QuantizeLinear": _quantize_linear,
    "DequantizeLinear": _dequantize_linear,
    "Quant": _quant,
    "Relu": _relu,
    "MaxPool": _kept(_max_pool),
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_average_pool,
    "Add": _add,
    "Flatten": _kept(_flatten),
    "Reshape": _kept(_reshape),
    "Transpose": _transpose,
    "Identity": _identity,
    "Mul": _mul,
    "Cast": _cast,
    "_Integers": _integers,
}
"""Operators without products."""

PRODUCTS = ("Conv", "Gemm", "MatMul", "ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul")
"""Operators with products, which layers compute."""


def product(node: Node, layer: nn.Module, scale: Tensor | None, given: Given) -> Value:
    """Compute a product by its layer: sums of numbers with a factor, or of real numbers without ``scale``."""
    x = _given(given, 0)
    if scale is None or not isinstance(x, Scaled):
        numbers, factor = real(x), None
    else:
        numbers, factor = x.numbers, x.scale * scale
    if "pads" in node.attributes:
        numbers = F.pad(numbers, windows(node)[2])
    if isinstance(layer, Bmm):
        other = _given(given, 1)
        sums: Tensor = layer(
            numbers, other.numbers if factor is not None and isinstance(other, Scaled) else real(other)
        )
    else:
        sums = layer(numbers)
    made: Value = sums if factor is None else Scaled(sums, aligned(factor, sums.dim()), None)
    if isinstance(layer, Bmm) or len(given) == 1:
        return made
    bias = real(_given(given, 1))
    return real(made) + (bias.reshape(-1, 1, 1) if node.kind == "Conv" else bias)
