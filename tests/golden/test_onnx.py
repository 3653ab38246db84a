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

    def quantized(self, x, scale, zero, kind="uint8"):
        """Quantize a value and return it with factor and zero point."""
        parts = self.parameters(scale, zero, TYPES[kind])
        y = self.node("QuantizeLinear", x, *parts)
        self.outputs.append((y, TYPES[kind]))
        return self.node("DequantizeLinear", y, *parts)

    def weights(self, shape, kind="int8", axis=None, limit=63, zero=None):
        """Return random weights behind a DequantizeLinear, and their factors.

        Weights in int8 have 7 bits: without VNNI, onnxruntime saturates sums of two products of uint8 and int8.
        """
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
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_ENABLE_BASIC
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


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("weights", "axis", "zero"),
    [("uint8", None, (120, 136)), ("uint8", 0, (120, 136)), ("int8", None, None), ("int4", 0, None), ("int8", 0, None)],
)
def test_integers_of_a_network(weights, axis, zero):
    torch.manual_seed(0)
    x = torch.randn(IMAGES, 3, 8, 8)
    assert differing(cnn(weights, axis, zero), x) == [0] * 8


def test_fused_operators_and_gemm():
    graph = Graph(5)
    x, zero = "x", graph.constant(131, TYPES["uint8"])
    rng, scale = graph.rng, graph.constant(np.float32(0.0217))
    w, w_zero = graph.constant(rng.integers(0, 256, (4, 3, 3, 3)), TYPES["uint8"]), graph.constant(122, TYPES["uint8"])
    bias = graph.constant(rng.integers(-999, 999, 4), onnx.TensorProto.INT32)
    by_channel = graph.constant(rng.uniform(0.001, 0.01, 4).astype(np.float32))
    zeros = graph.constant(np.full(4, 122), TYPES["uint8"])
    y = graph.node(
        "QLinearConv", x, scale, zero, w, by_channel, zeros, scale, zero, bias, strides=[2, 2], pads=[0, 1, 1, 0]
    )
    graph.outputs.append((y, TYPES["uint8"]))
    flat = graph.node("Reshape", y, graph.constant([0, -1], onnx.TensorProto.INT64))
    v = graph.constant(rng.integers(0, 256, (64, 5)), TYPES["uint8"])
    y = graph.node("QLinearMatMul", flat, scale, zero, v, graph.constant(np.float32(0.0071)), w_zero, scale, zero)
    graph.outputs.append((y, TYPES["uint8"]))
    sums = graph.node("MatMulInteger", y, graph.constant(rng.integers(0, 256, (5, 7)), TYPES["uint8"]), zero, w_zero)
    graph.outputs.append((sums, onnx.TensorProto.INT32))
    places = graph.node("ConvInteger", x, w, zero, w_zero)
    graph.outputs.append((places, onnx.TensorProto.INT32))
    dequantized = graph.node("DequantizeLinear", y, scale, zero)
    u, by = graph.weights((6, 5), "uint8", zero=(110, 140))
    gemm = graph.node("Gemm", dequantized, u, graph.bias(np.float32(0.0217) * by, 6), transB=1)
    graph.quantized(gemm, 0.01931, 125)
    x = torch.randint(256, (IMAGES, 3, 8, 8), dtype=torch.uint8)
    model = graph.model(["n", 3, 8, 8], kind=TYPES["uint8"])
    assert differing(model, x) == [0] * 5
    assert [one.dtype for one in golden.import_onnx(model)(x)] == [torch.uint8] * 2 + [torch.int32] * 2 + [torch.uint8]


SHAPES = [
    # Factors by column stay with the last dimension.
    ("MatMul", (8, 5), 1, (2, 3, 8), {"then": [0, 2, 1]}),
    ("MatMul", (2, 8, 5), None, (2, 3, 8), {}),
    ("MatMul", (5, 8), 0, (2, 8, 6), {"first": True}),
    ("MatMul", (5, 8), None, (2, 8, 6), {"first": True}),
    ("Gemm", (8, 4), None, (4, 8), {"bias": (4, 1)}),
    ("Gemm", (8, 4), None, (4, 8), {"bias": (4, 4)}),
    ("Gemm", (8, 4), None, (4, 8), {"bias": (1, 4)}),
]


@pytest.mark.parametrize(("kind", "weights", "axis", "shape", "more"), SHAPES)
def test_products_of_other_shapes(kind, weights, axis, shape, more):
    graph = Graph(3)
    x = graph.quantized("x", 0.02, 120)
    w, scale = graph.weights(weights, axis=axis)
    operands = [w, x] if more.get("first") else [x, w]
    if "bias" in more:
        values = graph.constant(graph.rng.integers(-2000, 2000, more["bias"]), onnx.TensorProto.INT32)
        operands.append(graph.node("DequantizeLinear", values, graph.constant(np.float32(0.02) * scale)))
    y = graph.node(kind, *operands)
    graph.quantized(graph.node("Transpose", y, perm=more["then"]) if "then" in more else y, 0.03, 128)
    assert differing(graph.model([None, *shape[1:]]), torch.randn(shape)) == [0, 0]


def test_sums_of_a_constant_and_a_quantized_tensor_are_integers():
    graph = Graph(3)
    x, (w, _) = graph.quantized("x", 0.02, 120), graph.weights((5, 8))
    graph.quantized(graph.node("MatMul", w, x), 0.03, 128)
    (layer,) = golden.import_onnx(graph.model([2, 8, 6])).layers.values()
    assert str(layer.policy) == "int8*int9+int32.rn"


@pytest.mark.parametrize("shape", [(2, 3, 8), (2, 3, 4, 3, 2)])
def test_averages_of_other_dimensions(shape):
    graph = Graph()
    graph.quantized(graph.node("GlobalAveragePool", graph.quantized("x", 0.02, 120)), 0.0051, 123)
    x = torch.randn(IMAGES, *shape[1:])
    assert differing(graph.model(["n", *shape[1:]]), x) == [0, 0]


def test_zero_points_of_rows_and_columns():
    graph = Graph(1)
    values = graph.rng.integers(0, 256, (4, 5))
    w, rows, columns = (graph.constant(one, TYPES["uint8"]) for one in (values, [1, 2, 3, 250], [9, 8, 7, 6, 5]))
    graph.outputs.append((graph.node("MatMulInteger", "x", w, rows, columns), onnx.TensorProto.INT32))
    x = torch.randint(256, (4, 4), dtype=torch.uint8)
    found = golden.import_onnx(graph.model([4, 4], kind=TYPES["uint8"]))(x)
    left, right = x.int() - torch.tensor([[1], [2], [3], [250]]), torch.tensor(values) - torch.tensor([9, 8, 7, 6, 5])
    assert found.equal((left.long() @ right).int())


@pytest.mark.parametrize(("factor", "places"), [(1, 4), (1 + 2**-22, 4), (1 + 2**-20, 5)])
def test_scale_of_a_bias_differs_by_roundings_only(factor, places):
    graph = Graph()
    x, one = graph.quantized("x", 1, 0), graph.constant(np.float32(1))
    w = graph.node("DequantizeLinear", graph.constant(np.zeros((1, 3, 1, 1)), TYPES["int8"]), one)
    values, scale = graph.constant([9], onnx.TensorProto.INT32), graph.constant(np.float32(factor))
    # The quotient of the sum and 2 is a tie, and above it with another bias.
    graph.quantized(graph.node("Conv", x, w, graph.node("DequantizeLinear", values, scale)), 2, 0)
    found = golden.import_onnx(graph.model([1, 3, 2, 2]))(torch.zeros(1, 3, 2, 2))[1]
    assert found.unique().tolist() == [places]


def test_names_of_nodes_are_free():
    graph, y, made = Graph(), "x", torch.randint(-3, 4, (4, 2, 2)).float()
    for name, matrix in zip(("keys", "a", "a_2", "a"), made, strict=True):
        y = graph.node("MatMul", y, graph.constant(matrix))
        graph.nodes[-1].name = name
    x = torch.randint(-3, 4, (3, 2)).float()
    model = golden.import_onnx(graph.model([3, 2], final=y))
    assert len(model.layers) == 4
    assert model(x).equal(x @ made[0] @ made[1] @ made[2] @ made[3])


def qonnx(as_pairs, bits, signed, narrow):
    """Make a network of QONNX's Quant, or of pairs with the same numbers."""
    graph = Graph(bits)

    def rounded(x, scale, zero, kind):
        if as_pairs:
            parts = graph.parameters(scale, zero, TYPES[kind])
            return graph.node("DequantizeLinear", graph.node("QuantizeLinear", x, *parts), *parts)
        given = [graph.constant(np.float32(one)) for one in (scale, zero, 4 if kind == "int4" else 8)]
        more = {"signed": int(kind != "uint8"), "narrow": narrow, "rounding_mode": "ROUND"}
        return graph.node("Quant", x, *given, domain="qonnx.custom_op.general", **more)

    weights = graph.constant(graph.rng.uniform(-1, 1, (5, 3, 3, 3)).astype(np.float32))
    w = rounded(weights, 0.1371, 0, "int4" if bits == 4 else "int8")
    y = graph.node("Relu", graph.node("Conv", rounded("x", 0.0213, 0, "int8"), w))
    y = rounded(y, 0.0317, 0, "uint8") if not narrow else rounded(y, 0.0317, 0, "int8")
    return graph.model(["n", 3, 8, 8], final=y, custom=not as_pairs)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("bits", [4, 8])
def test_quant_of_qonnx(bits):
    x = torch.randn(IMAGES, 3, 8, 8).clamp(-2.5, 2.5)
    (expected,) = of_runtime(qonnx(True, bits, True, 0), x)
    assert (golden.import_onnx(qonnx(False, bits, True, 0))(x).numpy() != expected).sum() == 0
    narrow = golden.import_onnx(qonnx(False, bits, True, 1))
    assert narrow.layers[next(iter(narrow.layers))].weight.min() >= -(2 ** (bits - 1) - 1)


def test_scales_of_the_inputs_of_quant_are_in_the_sums():
    model, x = of_quant(scale=np.linspace(0.01, 0.03, 8)), torch.randn(3, 8)
    w = torch.from_numpy(numpy_helper.to_array(model.graph.initializer[0]).copy())
    scale = torch.linspace(0.01, 0.03, 8, dtype=torch.float64).float()
    expected = (x / 0.02).round().clamp(-128, 127) * 0.02 @ ((w / scale).round().clamp(-128, 127) * scale).T
    torch.testing.assert_close(golden.import_onnx(model)(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_layers_have_policies_and_integers():
    model = golden.import_onnx(cnn("int8", 0))
    policies = [str(layer.policy) for layer in model.layers.values()]
    assert policies == ["int9*int8+int32.rn", "uint8*int8+int32.rn", "int9*int8+int32.rn"]
    x = torch.randn(2, 3, 8, 8)
    before = model(x)
    narrow = golden.nn.convert(model, "int9*int8+int14.rn").model(x)
    assert any(not one.equal(other) for one, other in zip(before, narrow, strict=True))
    assert all(one.equal(other) for one, other in zip(before, model(x), strict=True))


EXPORTED = [
    "int8*int8+exact=fp32.rn, activations=rn scale=tensor.pow2.delayed4, weights=rn scale=channel.pow2",
    "int8*uint4+exact=fp32.rn, activations=rn scale=tensor.pow2.delayed4, weights=rn scale=channel.pow2.affine",
    "e4m3fn*e4m3fn+exact=fp32.rn, activations=rn.satfinite scale=tensor.pow2.delayed4, weights=rn scale=tensor.pow2",
    "e5m2*e5m2+exact=fp32.rn, activations=rn, weights=rn scale=channel.pow2",
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("policy", EXPORTED)
def test_exported_network_has_the_same_bits(policy, tmp_path):
    torch.manual_seed(4)
    modules = torch.nn
    network = modules.Sequential(
        modules.Conv2d(3, 6, 3, padding=1),
        modules.Sequential(modules.ReLU(), modules.MaxPool2d(2)),
        modules.Conv2d(6, 8, 3, groups=2, bias=False),
        modules.ReLU(),
        modules.AvgPool2d(2),
        modules.Flatten(),
        modules.Linear(8, 5),
    ).requires_grad_(False)
    x = torch.randn(IMAGES, 3, 8, 8)
    converted = golden.nn.convert(network, policy).model
    converted.train()(x)
    expected = converted.eval()(x)
    golden.export_onnx(converted, x.shape, tmp_path / "network.onnx")
    model = onnx.load(str(tmp_path / "network.onnx"))
    assert torch.from_numpy(of_runtime(model, x, optimized=False)[0]).equal(expected)
    assert golden.import_onnx(tmp_path / "network.onnx")(x).equal(expected)


@pytest.mark.parametrize("scale", ["group16.pow2", "group16.real.affine"])
def test_exported_groups(scale):
    torch.manual_seed(5)
    layer, x = torch.nn.Linear(64, 8, bias=False).requires_grad_(False), torch.randint(-9, 10, (5, 64)).float()
    converted = golden.nn.convert(layer, f"fp32*fp32+fp32.rn, weights=uint4.rn scale={scale}").model
    model = golden.export_onnx(converted, x.shape)
    (found,) = of_runtime(model, x, optimized=False)
    torch.testing.assert_close(torch.from_numpy(found), converted(x), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(golden.import_onnx(model)(x), converted(x), rtol=1e-5, atol=1e-6)


def single(kind, shape=(1, 3, 8, 8), inputs=("x",), shape_of=None, **attributes):
    graph = Graph()
    if shape_of is not None:
        inputs = ("x", graph.constant(shape_of, onnx.TensorProto.INT64))
    return graph.model(list(shape), final=graph.node(kind, *inputs, **attributes))


def with_weights(values, shape=(1, 3, 8, 8), **attributes):
    graph = Graph()
    w = graph.constant(values)
    return graph.model(list(shape), final=graph.node("Conv", "x", w, **attributes))


def by_channel(axis, count=3):
    graph = Graph()
    parts = graph.constant(np.linspace(0.1, 0.2, count).astype(np.float32)), graph.constant([1] * count, TYPES["uint8"])
    graph.outputs.append((graph.node("QuantizeLinear", "x", *parts, axis=axis), TYPES["uint8"]))
    return graph.model([1, 3, 8, 8])


def of_quant(scale=0.1, zero=0.0, bits=8):
    graph = Graph()
    w = graph.constant(graph.rng.uniform(-1, 1, (5, 8)).astype(np.float32))
    parts = [graph.constant(np.float32(one)) for one in (scale, zero, bits)]
    w = graph.node("Quant", w, *parts, domain="qonnx.custom_op.general", signed=1, narrow=0)
    x = graph.node(
        "Quant", "x", *(graph.constant(np.float32(one)) for one in (0.02, 0, 8)), domain="qonnx.custom_op.general"
    )
    return graph.model(["n", 8], final=graph.node("Gemm", x, w, transB=1), custom=True)


def with_scale_of_the_graph():
    graph = Graph()
    zero, scale = graph.constant(0, TYPES["uint8"]), graph.node("Relu", "x")
    graph.outputs.append((graph.node("QuantizeLinear", "x", scale, zero), TYPES["uint8"]))
    return graph.model([1, 3, 8, 8])


def with_scale(scale):
    graph = Graph()
    graph.quantized("x", scale, 0)
    return graph.model([1, 3, 8, 8])


REFUSED = [
    (lambda: with_scale(-0.5), "its scale c0 must be positive numbers in float32"),
    (
        lambda: single("Constant", inputs=(), value_float=1.0),
        "Constant Constant_v0 has no tensor as value, but value_float",
    ),
    (lambda: single("Softmax"), "Softmax Softmax_v0: the operator is not supported; expected Conv, Gemm"),
    (lambda: single("Conv", inputs=("x", "x")), "its weights x are computed in the graph; expected a constant"),
    (lambda: with_weights(np.ones((2, 3, 1)), (1, 3, 8)), "its weights have 3 dimensions; expected 4"),
    (lambda: with_weights(np.ones((2, 3, 1, 1)), pads=[1, 1]), "the model is not valid: .*pads has incorrect size"),
    (lambda: single("MaxPool"), "the model is not valid: .*kernel_shape"),
    (lambda: single("Relu", inputs=("nothing",)), "the model is not valid: .*Relu_v0"),
    (lambda: of_quant(scale=np.ones(5)), r"its scale has shape \(5,\), which does not broadcast to \(5, 8\)"),
    (lambda: of_quant(zero=0.5), "its zero point is not an integer"),
    (lambda: of_quant(bits=[8, 8]), r"its bitwidth is \[8.0, 8.0\]; expected an integer, 1 to 32"),
    (lambda: of_quant(bits=2.5), r"its bitwidth is 2.5; expected an integer, 1 to 32"),
    (lambda: Graph().model([1], final="x", opset=6), "the model has opset 6; expected 7 or newer"),
    (lambda: __file__, r"test_onnx.py is not a file in ONNX"),
    (lambda: with_weights(np.ones((2, 3, 1, 1)), auto_pad="SAME_UPPER"), "its auto_pad is SAME_UPPER; expected NOTSET"),
    (with_scale_of_the_graph, "its parameter v0 is computed in the graph; expected a constant"),
    (lambda: 3, "model must be a path or an onnx.ModelProto, not int"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_graphs_that_are_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        golden.import_onnx(make())


UNFIT = [
    (lambda: by_channel(5), "QuantizeLinear_v0: its axis is 5, but its operand has 4 dimensions"),
    (lambda: by_channel(-1), r"its scale or zero point has shape \(3,\); expected \(8,\)"),
    (
        lambda: single("Reshape", ("n", 3, 8, 8), shape_of=[7, -1]),
        r"its operand has shape \(1, 3, 8, 8\), which has no form \(7, -1\)",
    ),
]


@pytest.mark.parametrize(("make", "message"), UNFIT)
def test_operands_that_are_refused(make, message):
    model = golden.import_onnx(make())
    with pytest.raises(ValueError, match=message):
        model(torch.ones(1, 3, 8, 8))


def test_flatten_of_an_empty_tensor():
    assert golden.import_onnx(single("Flatten", ("n", 3, 8, 8)))(torch.ones(0, 3, 8, 8)).shape == (0, 192)


POLICIES = [
    ("int8*int8+exact=fp32, activations=rn scale=tensor.pow2", "activations have the scale tensor.pow2.current, which"),
    ("e6m2*e6m2+fp32", "ONNX has no operands in e6m2; expected int4, "),
    ("int8*int8+int16", r"ONNX has no sums of mac int8\*int8\+int16.rn; expected sums in fp32.rn or int32.rn"),
    ("int8*int8+fp32, activations=sr4", "activations are rounded as sr4, which ONNX does not express; use rn"),
    ("int8*bf16+fp32, weights=int8.rn", "operands are rounded to int8 and then to bf16; ONNX expresses one rounding"),
    ("mxfp8_e4m3*mxfp8_e4m3+fp32", "ONNX has no sums of blockmac"),
]


@pytest.mark.parametrize(("policy", "message"), POLICIES)
def test_policies_that_onnx_lacks(policy, message):
    layer = golden.nn.convert(torch.nn.Linear(4, 2), policy).model
    with pytest.raises(ValueError, match=message):
        golden.export_onnx(layer, (1, 4))


def test_modules_that_onnx_lacks():
    with pytest.raises(ValueError, match="Softmax 1: the module has no form in ONNX; expected Sequential of Linear"):
        golden.export_onnx(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Softmax()), (1, 4))


def test_inputs_are_tensors_of_the_graph():
    model = golden.import_onnx(single("Relu"))
    with pytest.raises(ValueError, match="the graph has the inputs x, not 2"):
        model(torch.ones(1), torch.ones(1))
    with pytest.raises(TypeError, match="inputs must be tensors, not ndarray"):
        model(np.ones(1))


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_quantize_linear_rounds_ties_to_even_and_saturates(kind):
    # With the scale 0.1, quotients are ties only after the division in float32.
    for scale, x in ((0.5, torch.arange(-800.0, 800) / 4), (0.1, torch.arange(-800.0, 800) / 20)):
        graph = Graph()
        graph.quantized("x", scale, 3, kind)
        model = graph.model(["n"])
        assert (golden.import_onnx(model)(x).numpy() == of_runtime(model, x)[0]).all()
