"""Import of quantized graphs."""

import importlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from halfulp.golden.nn import layers
from halfulp.golden.nn.policy import FLOAT, prefixed
from halfulp.hdl.formats import Fixed, Format, parse

from .operators import INT32, OPERATORS, PRODUCTS, Given, Node, product, windows
from .values import FORMATS, Codes, Scaled, Value

EMPTY = torch.empty(0, dtype=torch.float64)
"""Numbers of values that are known in type only."""

DTYPES = {"int8": torch.int8, "uint8": torch.uint8, "int16": torch.int16, "int32": torch.int32}
"""Types of integers in results; others are in int64."""

LEAST_OPSET = 7
"""Oldest version of the operators, from which on Add and Mul broadcast."""

_KEEP = ("MaxPool", "Flatten", "Reshape", "Transpose", "Identity")
"""Operators whose results have the format and the factor of their operand."""


def package() -> Any:
    """Import the package onnx."""
    try:
        return importlib.import_module("onnx")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "ONNX needs the package onnx; run: pip install 'halfulp[onnx]'", name="onnx"
        ) from error


def import_onnx(model: Any) -> "OnnxModel":
    """Read a quantized network in ONNX, with pairs of QuantizeLinear and DequantizeLinear, or QONNX's Quant.

    Parameters
    ----------
    model : path or onnx.ModelProto
        Convolutions of images, products of matrices, Relu, pooling, Add, Mul, Flatten, Reshape, Transpose, Identity,
        QuantizeLinear, DequantizeLinear, Quant, QLinearConv, QLinearMatMul, ConvInteger and MatMulInteger, with
        constant scales and weights; other operators, such as BatchNormalization, must be folded into these.

    Returns
    -------
    OnnxModel
        Module with the inputs and outputs of the graph.

    Raises
    ------
    ModuleNotFoundError
        Without the package onnx.
    TypeError, ValueError
        If the model is not valid, or has another operator, or operands or attributes that are not supported.

    Notes
    -----
    A product of two quantized tensors is an exact sum in int32 of the differences from the zero points, with the bias.
    QuantizeLinear of such a sum multiplies it in float32 by one factor, ``scale_a * scale_b / scale_y``, as QLinearConv
    does, to which onnxruntime fuses these nodes. All other operators compute in float32 as ONNX defines them, and
    averages of integers have exact sums. Products of floats of 8 bits have sums in binary32 in ascending order.
    """
    onnx = package()
    if isinstance(model, (str, Path)):
        model = _loaded(onnx, model)
    if not isinstance(model, onnx.ModelProto):
        raise TypeError(f"model must be a path or an onnx.ModelProto, not {type(model).__name__}")
    opset = next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), LEAST_OPSET)
    if opset < LEAST_OPSET:
        raise ValueError(f"the model has opset {opset}; expected {LEAST_OPSET} or newer")
    try:
        onnx.shape_inference.infer_shapes(model, strict_mode=True)
    except onnx.shape_inference.InferenceError as error:
        raise ValueError(f"the model is not valid: {str(error).strip()}") from error
    return OnnxModel(model)


def _loaded(onnx: Any, path: str | Path) -> Any:
    try:
        return onnx.load(str(path))
    except importlib.import_module("google.protobuf.message").DecodeError as error:
        raise ValueError(f"{path} is not a file in ONNX") from error


class OnnxModel(nn.Module):
    """Network of a graph in ONNX, made by `import_onnx`.

    Attributes
    ----------
    layers : ModuleDict
        Layers `halfulp.golden.nn.Conv2d`, `Linear` and `Bmm` of the products by node name. Weights are integers, and
        the policy has their formats, such as ``int9*int8+int32.rn``; other policies compute on the same integers.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleDict()
        self.nodes: list[Node] = []
        self._constants: dict[str, Value] = {}
        self._scales: dict[str, Tensor | None] = {}
        self._types: dict[str, Codes | Scaled] = {}
        onnx, graph = package(), model.graph
        for tensor in graph.initializer:
            self._constants[tensor.name] = _constant(onnx, tensor)
        given = [one for one in graph.input if one.name not in self._constants]
        self.inputs = [one.name for one in given]
        self.outputs = [one.name for one in graph.output]
        self._formats = [_format_of(onnx, one.type.tensor_type.elem_type) for one in given]
        for name, fmt in zip(self.inputs, self._formats, strict=True):
            if fmt is not None:
                self._types[name] = Codes(EMPTY, fmt)
        for number, proto in enumerate(graph.node):
            name = proto.name or f"{proto.op_type}_{number}"
            attributes = {one.name: _text(onnx.helper.get_attribute_value(one)) for one in proto.attribute}
            if proto.op_type == "Constant":
                if "value" not in attributes:
                    raise ValueError(f"Constant {name} has no tensor as value, but {', '.join(attributes)}")
                self._constants[proto.output[0]] = _constant(onnx, attributes["value"])
                continue
            node = Node(proto.op_type, name, tuple(proto.input), tuple(proto.output), attributes)
            with prefixed(f"{node.kind} {name}"):
                for one in self._expanded(node):
                    self._add(one)

    def _expanded(self, node: Node) -> Iterator[Node]:
        """Yield the nodes that compute an operator: itself, or the steps of an operator on integers.

        These are DequantizeLinear of both operands, the product, and QuantizeLinear of its result or its integers.
        """
        if node.kind not in ("ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"):
            yield node
            return
        x, w, y = (f"{node.name}.{end}" for end in "xwy")
        kind, axis = ("Conv", 0) if "Conv" in node.kind else ("MatMul", -1)
        if node.kind.startswith("QLinear"):
            a, a_scale, a_zero, b, b_scale, b_zero, scale, zero, *bias = node.inputs
            last = Node("QuantizeLinear", node.name, (y, scale, zero), node.outputs)
        else:
            a, b, a_zero, b_zero = (*node.inputs, "", "")[:4]
            a_scale = b_scale = f"{node.name}.one"
            self._constants[a_scale], bias = torch.ones(()), []
            last = Node("_Integers", node.name, (y,), node.outputs)
        # Zero points of the first matrix may be those of its rows.
        yield Node("DequantizeLinear", node.name, (a, a_scale, a_zero), (x,), {"axis": -2 if kind == "MatMul" else 1})
        yield Node("DequantizeLinear", node.name, (b, b_scale, b_zero), (w,), {"axis": axis})
        yield Node(kind, node.name, (x, w, *bias), (y,), node.attributes)
        yield last

    def _add(self, node: Node) -> None:
        """Add a node to the graph; one whose operands are constants is a constant."""
        if node.kind not in OPERATORS and node.kind not in PRODUCTS:
            known = (*PRODUCTS, *(kind for kind in OPERATORS if kind[0] != "_"))
            raise ValueError(f"the operator is not supported; expected {', '.join(known)}")
        if len(node.outputs) != 1:
            raise ValueError(f"it has {len(node.outputs)} outputs; expected 1")
        if node.kind == "QuantizeLinear":
            node = replace(node, attributes=node.attributes | {"format": self._format(node)})
        if node.kind in ("QuantizeLinear", "DequantizeLinear", "Quant"):
            for name in filter(None, node.inputs[1:]):
                if name not in self._constants:
                    raise ValueError(f"its parameter {name} is computed in the graph; expected a constant")
            scale = self._constants[node.inputs[1]]
            if not isinstance(scale, Tensor) or not bool((scale > 0).all()):
                raise ValueError(f"its scale {node.inputs[1]} must be positive numbers in float32")
        given = [self._constants.get(name) if name else None for name in node.inputs]
        if node.kind in OPERATORS and all(name == "" or name in self._constants for name in node.inputs):
            self._constants[node.outputs[0]] = OPERATORS[node.kind](node, given)
            return
        if node.kind in PRODUCTS:
            node = self._with_layer(node)
        elif (kind := self._type(node, given)) is not None:
            self._types[node.outputs[0]] = kind
        self.nodes.append(node)

    def _format(self, node: Node) -> Format:
        """Return the format of a QuantizeLinear: that of its zero point, or its attribute."""
        zero = self._constants.get(node.inputs[2]) if len(node.inputs) > 2 else None
        if isinstance(zero, Codes):
            return zero.fmt
        fmt = _format_of(package(), node.attributes.get("output_dtype", 0) or 2)
        if fmt is None:
            raise ValueError(f"its output_dtype is {node.attributes['output_dtype']}, which is no quantized type")
        return fmt

    def _type(self, node: Node, known: Given) -> Codes | Scaled | None:
        """Return the type of the result of an operator: its format, and its factor if it has one for the tensor."""
        operand = self._types.get(node.inputs[0])
        if node.kind in _KEEP:
            return operand
        if node.kind == "Relu":
            return operand if isinstance(operand, Scaled) else None
        if node.kind == "QuantizeLinear":
            return Codes(EMPTY, node.attributes["format"])
        if node.kind == "Quant" or (node.kind == "DequantizeLinear" and isinstance(operand, Codes)):
            given, scale = EMPTY if node.kind == "Quant" else operand, known[1]
            if isinstance(scale, Tensor) and scale.numel() == 1:
                made = OPERATORS[node.kind](node, [given, scale, *map(_most, known[2:3]), *known[3:]])
                return made if isinstance(made, Scaled) else None
        return None

    def _type_of(self, name: str) -> Codes | Scaled | None:
        """Return the type of a value: of a constant with one factor, or of the result of a node."""
        value = self._constants.get(name)
        return value if isinstance(value, Scaled) and value.by_tensor else self._types.get(name)

    def _with_layer(self, node: Node) -> Node:
        """Make the layer of a product."""
        _check_gemm(node)
        x, weights, *rest = node.inputs
        bias = rest[0] if rest and rest[0] else None
        if bias is not None and bias not in self._constants:
            raise ValueError(f"its bias {bias} is computed in the graph; expected a constant")
        constant = self._constants.get(weights)
        if constant is not None and (node.kind != "MatMul" or _dims(constant) == 2):
            layer, scale, has_bias = _layer(
                node, self._type_of(x), constant, None if bias is None else self._constants[bias]
            )
            given = (x,) if bias is None or has_bias else (x, bias)
        elif node.kind == "MatMul":
            layer, scale = _of_two(self._type_of(x), self._type_of(weights))
            given = (x, weights)
        else:
            raise ValueError(f"its weights {weights} are computed in the graph; expected a constant")
        name = re.sub(r"[^\w]", "_", node.name)
        while hasattr(self.layers, name):
            # The name of another layer, or of a method of ModuleDict.
            name += "_"
        self.layers[name], self._scales[name] = layer, scale
        return replace(node, inputs=given, layer=name)

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Compute the outputs of the graph from its inputs.

        Quantized outputs are integers; those in int4, uint4 and other types that torch lacks are in int64, and floats
        of 8 bits in float32.
        """
        if len(inputs) != len(self.inputs):
            raise ValueError(f"the graph has the inputs {', '.join(self.inputs)}, not {len(inputs)}")
        for x in inputs:
            if not isinstance(x, Tensor):
                raise TypeError(f"inputs must be tensors, not {type(x).__name__}")
        values = dict(self._constants)
        for name, fmt, x in zip(self.inputs, self._formats, inputs, strict=True):
            values[name] = x.to(torch.float32) if fmt is None else Codes(x.to(torch.float64), fmt)
        for node in self.nodes:
            given = [values[name] if name else None for name in node.inputs]
            with prefixed(f"{node.kind} {node.name}"):
                values[node.outputs[0]] = self._computed(node, given)
        results = tuple(_result(values[name]) for name in self.outputs)
        return results[0] if len(results) == 1 else results

    def _computed(self, node: Node, given: Given) -> Value:
        if not node.layer:
            return OPERATORS[node.kind](node, given)
        return product(node, self.layers[node.layer], self._scales[node.layer], given)


def _constant(onnx: Any, tensor: Any) -> Value:
    array = onnx.numpy_helper.to_array(tensor)
    fmt = _format_of(onnx, tensor.data_type)
    if fmt is not None:
        return Codes(torch.tensor(array.astype("float64")), fmt)
    if tensor.data_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.INT64):
        raise ValueError(
            f"constant {tensor.name} is {onnx.TensorProto.DataType.Name(tensor.data_type)}; expected FLOAT"
        )
    return torch.tensor(array)


def _format_of(onnx: Any, kind: int) -> Format | None:
    name = FORMATS.get(onnx.TensorProto.DataType.Name(kind))
    return None if name is None else parse(name)


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _dims(value: Value) -> int:
    return value.dim() if isinstance(value, Tensor) else value.numbers.dim()


def _most(zero: Value | None) -> Value | None:
    """Return the largest magnitude of zero points, which is 0 if they have no effect."""
    if isinstance(zero, Codes):
        return Codes(zero.numbers.abs().amax(), zero.fmt)
    return zero.abs().amax() if isinstance(zero, Tensor) else zero


def _check_gemm(node: Node) -> None:
    """Raise ValueError for a Gemm with factors or a transposed first matrix."""
    for name, expected in (("alpha", 1.0), ("beta", 1.0), ("transA", 0)):
        if node.kind == "Gemm" and (value := node.attributes.get(name, expected)) != expected:
            raise ValueError(f"its {name} is {value}; expected {expected}")


def _policy(a: Format | None, b: Format | None) -> str:
    both = isinstance(a, Fixed) and isinstance(b, Fixed)
    return f"{a}*{b}+{'int32' if both else 'fp32'}.rn"


def _is_by_output(w: Scaled, transposed: bool) -> bool:
    """Return True if all weights of a sum have one factor."""
    shape = list(w.scale.shape)
    if not shape:
        return True
    del shape[-1 if transposed else 0]
    return all(size == 1 for size in shape)


def _integer_bias(bias: Value | None, x: Scaled, w: Scaled) -> Tensor | None:
    """Return a bias from which sums of integers start; None for one that is added to the real numbers."""
    if isinstance(bias, Codes):
        return bias.numbers
    if not isinstance(bias, Scaled) or bias.fmt != INT32 or not isinstance(w.fmt, Fixed):
        return None
    if bias.numbers.numel() != 1 and (bias.numbers.dim() == 0 or bias.numbers.shape[-1] != bias.numbers.numel()):
        return None
    scale, expected = bias.scale.flatten().double(), (x.scale.double() * w.scale.double()).flatten()
    if scale.numel() not in (1, expected.numel()) and expected.numel() != 1:
        return None
    # The scale is that of x times that of w in binary32. Writers that round it from scales which are not rounded yet
    # differ by three roundings: (1 + u) / (1 - u)^2 - 1 < 4u with u = 2^-24.
    return bias.numbers if bool(((scale - expected).abs() <= 2.0**-22 * expected).all()) else None


def _of_two(x: Codes | Scaled | None, y: Codes | Scaled | None) -> tuple[nn.Module, Tensor | None]:
    """Return the layer of a product of two computed tensors, and the factor of the second one."""
    if isinstance(x, Scaled) and isinstance(y, Scaled):
        return layers.Bmm(policy=_policy(x.fmt, y.fmt)), y.scale
    return layers.Bmm(policy=FLOAT), None


def _layer(node: Node, x: Codes | Scaled | None, w: Value, bias: Value | None) -> tuple[nn.Module, Tensor | None, bool]:
    """Return the layer of a product with weights, their factors for its result, and True if it has the bias.

    Sums are of integers if both operands are quantized and all weights of a sum have one factor.
    """
    transposed = node.kind == "MatMul" or (node.kind == "Gemm" and not node.attributes.get("transB", 0))
    if isinstance(x, Scaled) and isinstance(w, Scaled) and _is_by_output(w, transposed):
        scale = w.scale
        if scale.dim() > 1 and not transposed:
            scale = scale.reshape(1, -1, *[1] * (scale.dim() - 2))
        integers = _integer_bias(bias, x, w)
        layer = _with_weights(node, w.numbers.mT if transposed else w.numbers, integers, _policy(x.fmt, w.fmt))
        return layer, scale, integers is not None
    if isinstance(w, Codes):
        raise ValueError("its weights have no DequantizeLinear")
    weights = w.real if isinstance(w, Scaled) else w
    return _with_weights(node, weights.mT if transposed else weights, None, FLOAT), None, False


def _with_weights(node: Node, weight: Tensor, bias: Tensor | None, policy: str) -> nn.Module:
    """Make a layer with its weights, whose type decides that of the sums."""
    dims = 4 if node.kind == "Conv" else 2
    if weight.dim() != dims:
        raise ValueError(f"its weights have {weight.dim()} dimensions; expected {dims}")
    if node.kind == "Conv":
        stride, dilation, _ = windows(node)
        groups, kernel = node.attributes.get("group", 1), tuple(weight.shape[2:])
        sizes = (weight.shape[1] * groups, weight.shape[0], kernel, tuple(stride), 0, tuple(dilation), groups)
        made: layers.Conv2d | layers.Linear = layers.Conv2d(*sizes, bias=bias is not None, policy=policy)
    else:
        made = layers.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, policy=policy)
    made.weight = nn.Parameter(weight.clone(), requires_grad=False)
    if bias is not None:
        if bias.numel() not in (1, weight.shape[0]):
            raise ValueError(f"its bias has {bias.numel()} numbers; expected {weight.shape[0]}")
        made.bias = nn.Parameter(bias.to(weight.dtype).flatten().expand(weight.shape[0]), requires_grad=False)
    return made


def _result(value: Value) -> Tensor:
    if isinstance(value, Codes):
        dtype = DTYPES.get(str(value.fmt), torch.int64) if isinstance(value.fmt, Fixed) else torch.float32
        return value.numbers.to(dtype)
    return value.real if isinstance(value, Scaled) else value
