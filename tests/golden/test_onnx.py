"""Networks in ONNX: the integers of onnxruntime."""

import numpy as np
import pytest
import torch

from halfulp import golden

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
TYPES = {"int8": onnx.TensorProto.INT8, "uint8": onnx.TensorProto.UINT8, "int4": onnx.TensorProto.INT4}
IMAGES = 64


class Graph:
    """Builder of a graph."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.constants, self.outputs = [], [], []

    def constant(self, values, kind=onnx.TensorProto.FLOAT):
        values = np.asarray(values)
        name = f"c{len(self.constants)}"
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        self.constants.append(numpy_helper.from_array(values.astype(dtype), name))
        return name

    def node(self, kind, *inputs, domain=None, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=f"{kind}_{name}", domain=domain, **attributes))
        return name

    def parameters(self, scale, zero, kind):
        return self.constant(np.float32(scale)), self.constant(zero, kind)

    def quantized(self, x, scale, zero, kind="uint8", axis=None):
        """Quantize a value and return it with factor and zero point."""
        parts = self.parameters(scale, zero, TYPES[kind])
        y = self.node("QuantizeLinear", x, *parts)
        self.outputs.append((y, TYPES[kind]))
        return self.node("DequantizeLinear", y, *parts)

    def weights(self, shape, kind="int8", axis=None, limit=63, zero=None):
        """Return random weights behind a DequantizeLinear, and their factors."""
        count = 1 if axis is None else shape[axis]
        scale = self.rng.uniform(0.004, 0.02, count).astype(np.float32)
        zeros = np.zeros(count, int) if zero is None else self.rng.integers(*zero, count)
        low, high = {"int8": (-limit, limit + 1), "uint8": (0, 256), "int4": (-8, 8)}[kind]
        values = self.constant(self.rng.integers(low, high, shape), TYPES[kind])
        if axis is None:
            scale, zeros = scale[0], zeros[0]
        return self.node(
            "DequantizeLinear", values, self.constant(scale), self.constant(zeros, TYPES[kind]), axis=axis or 0
        ), scale

    def bias(self, scale, count):
        values = self.constant(self.rng.integers(-2000, 2000, count), onnx.TensorProto.INT32)
        scale = np.broadcast_to(np.float32(scale), count)
        return self.node("DequantizeLinear", values, self.constant(scale), axis=0)

    def model(self, shape, final=None, opset=21, kind=onnx.TensorProto.FLOAT, custom=False):
        outputs = self.outputs + ([(final, onnx.TensorProto.FLOAT)] if final else [])
        graph = helper.make_graph(
            self.nodes,
            "network",
            [helper.make_tensor_value_info("x", kind, shape)],
            [helper.make_tensor_value_info(name, one, None) for name, one in outputs],
            self.constants,
        )
        opsets = [helper.make_opsetid("", opset)] + [helper.make_opsetid("qonnx.custom_op.general", 1)] * custom
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def of_runtime(model, x, optimized=True):
    options = ort.SessionOptions()
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(
        None, {"x": x.numpy()}
    )


def cnn(weights, axis, zero=None):
    """Make a small network: two convolutions, a skip, poolings and a linear layer."""
    graph = Graph(len(weights))
    x = graph.quantized("x", 0.02137, 117)
    w, scale = graph.weights((6, 3, 3, 3), weights, None if axis is None else 0, zero=zero)
    y = graph.node("Conv", x, w, graph.bias(0.02137 * scale, 6), pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    y = graph.quantized(graph.node("Relu", y), 0.04113, 0)
    y = graph.quantized(graph.node("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2]), 0.04113, 0)
    w, scale = graph.weights((6, 3, 3, 3), weights, None if axis is None else 0, zero=zero)
    skip = y
    y = graph.node("Conv", y, w, graph.bias(0.04113 * scale, 6), pads=[1, 1, 1, 1], kernel_shape=[3, 3], group=2)
    y = graph.quantized(y, 0.05171, 131)
    y = graph.quantized(graph.node("Add", y, skip), 0.06291, 120)
    y = graph.quantized(graph.node("AveragePool", y, kernel_shape=[2, 2], strides=[2, 2]), 0.05171, 121)
    flat = graph.node("Flatten", graph.node("GlobalAveragePool", y))
    flat = graph.quantized(flat, 0.02271, 125)
    w, _ = graph.weights((6, 10), weights, None if axis is None else 1, zero=zero)
    graph.quantized(graph.node("MatMul", flat, w), 0.01093, 128)
    return graph.model(["n", 3, 8, 8])


def differing(model, x, optimized=True):
    expected, found = of_runtime(model, x, optimized), golden.import_onnx(model)(x)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert len(np.unique(other)) > 10
    return [int((one.numpy() != other).sum()) for one, other in zip(found, expected, strict=True)]


@pytest.mark.parametrize(
    ("weights", "axis", "zero"),
    [("uint8", None, (120, 136)), ("uint8", 0, (120, 136)), ("int8", None, None), ("int8", 0, None), ("int4", 0, None)],
)
def test_integers_of_a_network(weights, axis, zero):
    torch.manual_seed(0)
    x = torch.randn(IMAGES, 3, 8, 8)
    assert differing(cnn(weights, axis, zero), x) == [0] * 8
