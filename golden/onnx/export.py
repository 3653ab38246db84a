"""Export of converted layers as pairs of QuantizeLinear and DequantizeLinear."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from halfulp.golden.nn.cast import Cast, real
from halfulp.golden.nn.layers import HISTORY, Computed
from halfulp.golden.nn.policy import prefixed
from halfulp.golden.nn.scaling import divided
from halfulp.golden.torch_internals import buffers_of
from halfulp.golden.values import decoded, encode
from halfulp.golden.zeros import difference_format
from halfulp.hdl.formats import FP32, RN, Fixed, Format
from halfulp.hdl.specs import MacSpec

from .graph import package
from .values import FORMATS

OPSET, IR = 23, 11
"""Versions of operators and files, which onnxruntime 1.23 and newer read."""

X, W = 0, 1
"""Places of activations and weights in histories."""


def export_onnx(model: nn.Module, shape: Sequence[int], path: Path | str | None = None) -> Any:
    """Write a converted network in ONNX, with pairs of QuantizeLinear and DequantizeLinear before products.

    Parameters
    ----------
    model : Module
        `torch.nn.Sequential`, also nested, of `Linear` and `Conv2d` in torch's own arithmetic or in that of a policy,
        and of ReLU, MaxPool2d, AvgPool2d, AdaptiveAvgPool2d(1), Flatten, Identity and Dropout; or one layer.
    shape : sequence of int
        Shape of the input; the first dimension, that of the batch, may differ later.
    path : path, optional
        File to write.

    Returns
    -------
    onnx.ModelProto

    Raises
    ------
    ModuleNotFoundError
        Without the package onnx.
    TypeError, ValueError
        If ONNX cannot express a module or the policy of a layer.

    Notes
    -----
    Operands are in int4, int8, int16, their unsigned forms, or floats of 8 bits, rounded to nearest; others are in
    fp32. Sums are in fp32 or exact, or in int32. Weights have scales of tensors, channels or groups, with or without
    zero points. Activations have no scale, or a delayed one, whose factor is that of the history: a current scale would
    be computed in the graph. With powers of two as scales, codes are the same bits in onnxruntime, and results are if
    sums and bias need no more than 24 bits. Other scales are rounded differently: ONNX rounds the quotient of an
    element and its scale, and numbers times their scales, to binary32. With ``.sat``, infinite elements saturate in
    ONNX too.
    """
    graph = _Writer(package())
    name = graph.module(model, "x", "")
    made = graph.finished(shape, name)
    if path is not None:
        graph.onnx.save(made, str(path))
    return made


class _Writer:
    """Graph that is being written."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def finished(self, shape: Sequence[int], result: str) -> Any:
        helper, kind = self.onnx.helper, self.onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            self.nodes,
            "halfulp",
            [helper.make_tensor_value_info("x", kind, ["batch", *shape[1:]])],
            [helper.make_tensor_value_info(result, kind, None)],
            self.constants,
        )
        made = helper.make_model(
            graph, producer_name="halfulp", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR
        )
        made = self.onnx.shape_inference.infer_shapes(made, strict_mode=True)
        self.onnx.checker.check_model(made)
        return made

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def constant(self, values: Tensor, fmt: Format | None = None) -> str:
        """Add a constant in float32, or in the type of a format."""
        name, kind = f"constant_{len(self.constants)}", self.onnx.TensorProto.FLOAT if fmt is None else self.kind(fmt)
        dtype = self.onnx.helper.tensor_dtype_to_np_dtype(kind)
        array = values.detach().cpu().to(torch.float32 if fmt is None else torch.float64).numpy()
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(array).astype(dtype), name))
        return name

    def kind(self, fmt: Format) -> int:
        """Return the type of a format; ValueError if ONNX has none."""
        names = {text: name for name, text in FORMATS.items() if not text.endswith("32")}
        name = names.get(str(fmt))
        if name is None:
            raise ValueError(f"ONNX has no operands in {fmt}; expected {', '.join(names)} or fp32")
        return int(self.onnx.TensorProto.DataType.Value(name))

    def module(self, module: nn.Module, x: str, name: str) -> str:
        """Add a module behind a value, and return the name of its result."""
        if isinstance(module, nn.Sequential):
            for key, part in module.named_children():
                x = self.module(part, x, f"{name}.{key}" if name else key)
            return x
        with prefixed(f"{type(module).__name__} {name}".strip()):
            write = next((write for kind, write in _MODULES.items() if isinstance(module, kind)), None)
            if write is None:
                known = ", ".join(kind.__name__ for kind in _MODULES)
                raise ValueError(f"the module has no form in ONNX; expected Sequential of {known}")
            return write(self, module, x)

    def layer(self, layer: nn.Linear | nn.Conv2d, x: str) -> str:
        """Add a product with weights, and its bias."""
        convolution = isinstance(layer, nn.Conv2d)
        mac = layer.policy.forward if isinstance(layer, Computed) else None
        cast = layer.policy.weights if isinstance(layer, Computed) else Cast()
        if isinstance(layer, Computed):
            _check(layer)
            x = self.activations(layer, x)
        w = self.weights(layer, cast, mac, convolution)
        y = self.node("Conv", x, w, **_geometry(layer)) if isinstance(layer, nn.Conv2d) else self.node("MatMul", x, w)
        if layer.bias is None:
            return y
        rounded: Cast = layer.policy.bias if isinstance(layer, Computed) else Cast()
        bias = rounded.real(layer.bias.detach(), 0)
        if mac is not None:
            rounding = rounded.rounding if rounded.fmt is None else RN
            bias = decoded(encode(bias, mac.o, rounding), mac.o, torch.float32)
        return self.node("Add", y, self.constant(bias.reshape(-1, 1, 1) if convolution else bias))

    def activations(self, layer: Computed, x: str) -> str:
        cast: Cast = layer.policy.activations
        mac: Any = layer.policy.forward
        fmt = _operand(cast, None if mac is None else mac.a)
        if fmt is None:
            return x
        factor = torch.ones(())
        if cast.scale is not None:
            if not cast.scale.history:
                raise ValueError(f"activations have the scale {cast.scale}, which depends on them; use a delayed one")
            factor = cast.scale.factor(torch.zeros(()), [fmt], (), _amax(layer, X, cast.scale.history)).float()
        parts = self.constant(factor), self.constant(torch.zeros(()), fmt)
        more = {} if isinstance(fmt, Fixed) else {"saturate": int(bool(cast.saturate))}
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *parts, **more), *parts)

    def weights(self, layer: Any, cast: Cast, mac: Any, convolution: bool) -> str:
        """Add weights, those of a linear layer as the second matrix of a product."""
        w, turn = layer.weight.detach(), (lambda x: x) if convolution else (lambda x: x.mT)
        fmt = _operand(cast, None if mac is None else mac.b)
        if fmt is None:
            return self.constant(turn(w))
        numbers, factor, zero = _quantized(layer, w, cast, fmt, convolution)
        axis, more = (0 if convolution else 1), {}
        if cast.scale is not None and cast.scale.group:
            if convolution or w.shape[1] % cast.scale.group:
                raise ValueError(f"ONNX has groups of {cast.scale.group} weights in linear layers of whole groups only")
            factor, zero = (part[:, :: cast.scale.group].mT for part in (factor, zero))
            axis, more = 0, {"block_size": cast.scale.group}
        elif factor.numel() == 1:
            factor, zero = factor.reshape(()), zero.reshape(())
        else:
            factor, zero = factor.flatten(), zero.flatten()
        parts = self.constant(factor), self.constant(zero, fmt)
        return self.node("DequantizeLinear", self.constant(turn(numbers), fmt), *parts, axis=axis, **more)


def _check(layer: Computed) -> None:
    """Raise ValueError if ONNX cannot express the policy of a layer."""
    policy, mac = layer.policy, layer.policy.forward
    if mac is not None:
        plain = isinstance(mac, MacSpec) and mac.product is None and mac.rounding == RN and not mac.saturate
        if not plain or (mac.o != FP32 and str(mac.o) != "int32"):
            raise ValueError(f"ONNX has no sums of {mac}; expected sums in fp32.rn or int32.rn")
    if policy.hadamard is not None or policy.multiplier is not None or policy.adder is not None:
        raise ValueError("ONNX has no rotations, multipliers and adders of a policy; omit them")
    if policy.bias.rounding.bits:
        raise ValueError(f"the bias is rounded as {policy.bias}, and ONNX has no stochastic rounding; use rn")
    for name, cast in (("weights", policy.weights), ("activations", policy.activations)):
        if cast.sparsity is not None or cast.before is not None or cast.rounding != RN:
            raise ValueError(f"{name} are rounded as {cast}, which ONNX does not express; use rn")


def _operand(cast: Cast, fmt: Format | None) -> Format | None:
    """Return the format of an operand; None for float32."""
    target = fmt if cast.fmt is None else cast.fmt
    if fmt not in (None, FP32, target):
        raise ValueError(f"operands are rounded to {target} and then to {fmt}; ONNX expresses one rounding")
    return None if target in (None, FP32) else target


def _amax(layer: Computed, role: int, length: int) -> Tensor:
    history: Tensor = buffers_of(layer)[HISTORY][0, role, :length]
    return history.view(torch.float64).amax()


def _quantized(layer: Any, w: Tensor, cast: Cast, fmt: Format, convolution: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return numbers of weights, their factors and their zero points; factors of groups for each element."""
    scale, none = cast.scale, torch.zeros((), dtype=torch.float64)
    summed = (1, 2, 3) if convolution else (-1,)
    if scale is None:
        values, factor, ends = w, none + 1, None
    elif scale.affine or scale.group:
        values, factor, ends = scale.quotients(w, fmt, summed, (summed[:1], 1))
    else:
        amax = _amax(layer, W, scale.history) if scale.history else None
        factor, ends = scale.factor(w, [fmt], summed, amax), None
        values = divided(w, factor)
    held = fmt if ends is None else difference_format(fmt)
    numbers = real(cast.codes(values, held, 0), held, torch.float64)
    if ends is None:
        return numbers, factor, torch.zeros_like(factor)
    assert isinstance(fmt, Fixed)
    zero = fmt.least_integer - ends[0]
    return numbers.clamp(*ends) + zero, factor, zero


def _geometry(layer: nn.Conv2d) -> dict[str, Any]:
    if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        raise ValueError(f"its padding is {layer.padding} of {layer.padding_mode}; expected numbers and zeros")
    return {
        "strides": list(layer.stride),
        "dilations": list(layer.dilation),
        "pads": [*layer.padding, *layer.padding],
        "group": layer.groups,
    }


def _pair(value: Any) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)


def _pool(graph: _Writer, kind: str, module: Any, x: str, **more: Any) -> str:
    if module.ceil_mode:
        raise ValueError("its ceil_mode is true; expected false")
    pads = _pair(module.padding)
    sizes = {"kernel_shape": _pair(module.kernel_size), "strides": _pair(module.stride), "pads": [*pads, *pads]}
    return graph.node(kind, x, **sizes, **more)


def _average(graph: _Writer, module: nn.AvgPool2d, x: str) -> str:
    if module.divisor_override is not None:
        raise ValueError("its divisor_override has no form in ONNX; omit it")
    return _pool(graph, "AveragePool", module, x, count_include_pad=int(module.count_include_pad))


def _global(graph: _Writer, module: nn.AdaptiveAvgPool2d, x: str) -> str:
    if module.output_size not in (1, (1, 1)):
        raise ValueError(f"its output_size is {module.output_size}; expected 1")
    return graph.node("GlobalAveragePool", x)


def _flatten(graph: _Writer, module: nn.Flatten, x: str) -> str:
    if (module.start_dim, module.end_dim) != (1, -1):
        raise ValueError(f"it flattens the dimensions {module.start_dim} to {module.end_dim}; expected 1 to -1")
    return graph.node("Flatten", x)


_MODULES: dict[type[nn.Module], Callable[[_Writer, Any, str], str]] = {
    nn.Linear: _Writer.layer,
    nn.Conv2d: _Writer.layer,
    nn.ReLU: lambda graph, _, x: graph.node("Relu", x),
    nn.MaxPool2d: lambda graph, module, x: _pool(graph, "MaxPool", module, x, dilations=_pair(module.dilation)),
    nn.AvgPool2d: _average,
    nn.AdaptiveAvgPool2d: _global,
    nn.Flatten: _flatten,
    nn.Identity: lambda graph, _, x: graph.node("Identity", x),
    nn.Dropout: lambda graph, _, x: graph.node("Identity", x),
}
"""Writers of modules by their class; subclasses with the same forward function have the same."""
