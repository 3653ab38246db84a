"""Converted layers with FP32 products against those of torch: masks, empty tensors, infinities and NaN.

Operands are multiples of 1/8 up to 1/2, so that sums of products in FP32 are exact in any order. Softmax rounds; see
`BOUND`.
"""

import math

import pytest
import torch
from torch import nn as tnn

from halfulp.golden import nn

POLICY = "fp32*fp32+fp32.rn"

BOUND = 2.0**-24 * 64 * 32
"""Largest difference of results with a softmax: fewer than 64 roundings follow each other from an operand to a result
or gradient, each of at most 2^-24 of the sum of the magnitudes of its terms, which is below 32 here."""


def _numbers(*shape, seed=0):
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(seed)) / 8


def _with(x, *values):
    """Replace the first elements."""
    x = x.clone()
    x.view(-1)[: len(values)] = torch.tensor(values)
    return x


def _weights(layer, *values):
    """Set parameters to multiples of 1/8, and the first elements of the first one to values."""
    with torch.no_grad():
        for place, one in enumerate(layer.parameters()):
            one.copy_(_with(_numbers(*one.shape, seed=place + 1), *(values if not place else ())))
    return layer


INF, NAN = math.inf, math.nan

LINEAR = {
    "rows": ((5, 4), (2, 5)),
    "one row": ((5, 4), (5,)),
    "many dimensions": ((5, 4), (2, 1, 3, 5)),
    "no rows": ((5, 4), (0, 5)),
    "no rows in a batch": ((5, 4), (2, 0, 5)),
    "no inputs": ((0, 4), (3, 0)),
    "no outputs": ((5, 0), (3, 5)),
    "nothing": ((0, 0), (0, 0)),
}

CONV = {
    "plain": ({}, (2, 2, 5, 4)),
    "one image": ({}, (2, 5, 4)),
    "no images": ({}, (0, 2, 5, 4)),
    "groups": ({"groups": 2}, (2, 2, 5, 4)),
    "stride and dilation": ({"stride": (2, 1), "dilation": (1, 2)}, (1, 2, 6, 7)),
    "rest of a stride": ({"stride": 3}, (1, 2, 7, 6)),
    "padding": ({"padding": (1, 2)}, (1, 2, 5, 4)),
    "same": ({"padding": "same", "dilation": 2}, (1, 2, 5, 4)),
    "valid": ({"padding": "valid"}, (1, 2, 5, 4)),
    "reflect": ({"padding": 1, "padding_mode": "reflect"}, (1, 2, 5, 4)),
    "replicate": ({"padding": 2, "padding_mode": "replicate"}, (1, 2, 5, 4)),
    "circular": ({"padding": 1, "padding_mode": "circular"}, (1, 2, 5, 4)),
    "no images with padding": ({"padding": 1, "padding_mode": "circular"}, (0, 2, 5, 4)),
    "kernel as large as the image": ({}, (1, 2, 2, 3)),
}

VALUES = {"numbers": (), "infinity": (INF,), "infinities": (INF, -INF, INF), "nan": (NAN,), "zeros": (-0.0, 0.0)}


def _products():
    """Return layers without rounding: function that makes a layer and its input, by name."""
    for bias in (True, False):
        for name, ((inputs, outputs), shape) in LINEAR.items():
            yield f"linear, {name}, bias {bias}", lambda i=inputs, o=outputs, b=bias: tnn.Linear(i, o, b), shape
        for name, (options, shape) in CONV.items():
            yield f"conv, {name}, bias {bias}", lambda k=options, b=bias: tnn.Conv2d(2, 4, (2, 3), bias=b, **k), shape


PRODUCTS = {name: (make, shape) for name, make, shape in _products()}


def _results(layer, inputs, run=None, gradient_values=()):
    """Return results, gradients of the inputs and of the parameters; in evaluation only results."""
    layer.zero_grad()
    inputs = [one.clone().requires_grad_(layer.training) for one in inputs]
    with torch.set_grad_enabled(layer.training):
        found = (run or (lambda layer, x: layer(x)))(layer, *inputs)
    found = [one for one in (found if isinstance(found, tuple) else (found,)) if one is not None]
    if layer.training:
        grads = [_with(_numbers(*one.shape, seed=9), *gradient_values[: one.numel()]) for one in found]
        torch.autograd.backward(found, grads)
    return [one.detach() for one in found], [one.grad for one in (*inputs, *layer.parameters())]


def _compare(layer, inputs, run=None, gradient_values=(), atol=0.0, more_nan=False):
    """Compare a layer with its conversion, in training and evaluation; NaN only there with ``more_nan``."""
    other = nn.convert(layer, POLICY).model
    assert type(other) is not type(layer) or any(isinstance(one, nn.Computed) for one in other.modules())
    for training in (True, False):
        both = [_results(one.train(training), inputs, run, gradient_values) for one in (layer, other)]
        for wanted, found in zip(*([*one[0], *one[1]] for one in both), strict=True):
            assert (wanted is None) == (found is None)
            if wanted is not None:
                wanted = torch.where(found.isnan(), NAN, wanted) if more_nan else wanted
                torch.testing.assert_close(found, wanted, rtol=0, atol=atol, equal_nan=True)


@pytest.mark.sampled(14, 2)
@pytest.mark.parametrize("where", ["x", "w", "gradient"])
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("name", PRODUCTS)
def test_product_layer_equals_torch(name, values, where):
    make, shape = PRODUCTS[name]
    given = VALUES[values]
    x = _numbers(*shape)
    layer = _weights(make(), *(given[: next(make().parameters()).numel()] if where == "w" else ()))
    x = _with(x, *given[: x.numel()]) if where == "x" else x
    # Kernels are multiplied by zeros beyond the edges of images and gradients, where torch computes no product.
    _compare(
        layer,
        [x],
        gradient_values=given if where == "gradient" else (),
        more_nan=isinstance(layer, tnn.Conv2d) and where == "w" and values in ("infinity", "infinities", "nan"),
    )


def _changed_padding():
    layer = tnn.Conv2d(2, 4, (2, 3))
    layer.padding = (1, 2)
    return layer


def test_convolution_takes_a_changed_padding():
    _compare(_weights(_changed_padding()), [_numbers(1, 2, 5, 4)])


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 3, 4), (2, 4, 5)),
        ((3, 4), (2, 4, 5)),
        ((0, 3, 4), (4, 5)),
        ((2, 0, 4), (4, 5)),
        ((3, 0), (0, 5)),
        ((0, 0),) * 2,
    ],
)
def test_product_of_activations_equals_torch(shapes, values):
    a, b = (_numbers(*shape, seed=place) for place, shape in enumerate(shapes))
    a = _with(a, *VALUES[values][: a.numel()])
    found, wanted = (
        _results(layer, [a, b], lambda layer, a, b: layer(a, b)) for layer in (nn.Bmm(policy=POLICY), _At())
    )
    for one, other in zip([*found[0], *found[1]], [*wanted[0], *wanted[1]], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


class _At(tnn.Module):
    """Matrix product of torch."""

    def forward(self, a, b):
        return a @ b


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (4,)])
def test_quantize_takes_empty_and_0_dimensional_tensors(shape):
    x = _numbers(*shape)
    x = _with(x, *(NAN, INF, -INF)[: max(x.numel() - 1, 0)])
    found, gradients = _results(nn.Quantize("fp32.rn", "fp32.rn"), [x])
    torch.testing.assert_close(found[0], x, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(gradients[0], _numbers(*shape, seed=9))


# Attention -----------------------------------------------------------------------------------------------------------

LENGTH, HEADS, WIDTH = 4, 2, 4


@pytest.fixture(autouse=True)
def _no_fast_path():
    """Compute evaluation as training: torch's fast path gives NaN where its other paths give zeros."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(before)


def _real(mask):
    return torch.zeros(mask.shape).masked_fill(mask, -INF)


_ALL_OF_ONE = torch.tensor([[False, False, False, True], [True, True, True, True]])
"""Padding of all keys of the second sample."""

_ALL_OF_QUERY = torch.zeros(LENGTH, LENGTH, dtype=torch.bool).index_fill(0, torch.tensor([0]), True)
_CAUSAL = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)

MASKS = {
    "none": {},
    "padding": {"key_padding_mask": _ALL_OF_ONE},
    "real padding": {"key_padding_mask": _real(_ALL_OF_ONE)},
    "finite padding": {"key_padding_mask": _ALL_OF_ONE * -2.0},
    "mask": {"attn_mask": _ALL_OF_QUERY},
    "real mask": {"attn_mask": _real(_ALL_OF_QUERY)},
    "mask of heads": {"attn_mask": _real(_ALL_OF_QUERY.expand(2 * HEADS, -1, -1).tril())},
    "both": {"key_padding_mask": _ALL_OF_ONE, "attn_mask": _ALL_OF_QUERY},
    "both real": {"key_padding_mask": _real(_ALL_OF_ONE), "attn_mask": _real(_ALL_OF_QUERY)},
    "nan": {"attn_mask": torch.zeros(LENGTH, LENGTH).index_fill(0, torch.tensor([1]), NAN)},
    "infinity": {"attn_mask": torch.zeros(LENGTH, LENGTH).index_fill(0, torch.tensor([1]), INF)},
    "causal": {"attn_mask": _CAUSAL, "is_causal": True},
    "causal padding": {"attn_mask": _CAUSAL, "key_padding_mask": _ALL_OF_ONE, "is_causal": True},
    "causal hint about another mask": {"attn_mask": _ALL_OF_QUERY, "is_causal": True},
}

ATTENTION = {
    "self": {"batch_first": True},
    "length first": {},
    "no bias": {"bias": False},
    "bias of keys": {"add_bias_kv": True},
    "zero": {"add_zero_attn": True},
    "widths": {"kdim": WIDTH - 1, "vdim": WIDTH + 1},
}


def _attend(need_weights, **masks):
    return lambda layer, *x: layer(*(x if len(x) == 3 else x * 3), need_weights=need_weights, **masks)


@pytest.mark.sampled(15)
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("name", ATTENTION)
def test_attention_equals_torch_with_masks(name, masks, need_weights):
    options = ATTENTION[name]
    layer = tnn.MultiheadAttention(WIDTH, HEADS, **options)
    shape = (2, LENGTH) if options.get("batch_first") else (LENGTH, 2)
    sizes = (WIDTH, options["kdim"], options["vdim"]) if "kdim" in options else (WIDTH,)
    inputs = [_numbers(*shape, size, seed=place) for place, size in enumerate(sizes)]
    _compare(_weights(layer), inputs, _attend(need_weights, **MASKS[masks]), atol=BOUND)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize(
    "shapes", [((0, 4), (0, 4)), ((3, 0), (3, 4)), ((3, 4), (3, 0)), ((0, 0), (0, 0)), ((1, 1), (1, 1)), ((3,), (4,))]
)
def test_attention_equals_torch_with_empty_tensors(shapes, need_weights):
    query, key = (_numbers(*shape, WIDTH, seed=place) for place, shape in enumerate(shapes))
    layer = _weights(tnn.MultiheadAttention(WIDTH, HEADS, batch_first=True))
    _compare(layer, [query, key, key], _attend(need_weights), atol=BOUND)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("values", [*VALUES, "large"])
def test_attention_equals_torch_with_special_values(values, need_weights):
    x = _with(_numbers(2, LENGTH, WIDTH), *VALUES.get(values, (2.0**100, -(2.0**100), 2.0**100)))
    layer = _weights(tnn.MultiheadAttention(WIDTH, HEADS, batch_first=True))
    _compare(layer, [x], _attend(need_weights), atol=BOUND)


@pytest.mark.parametrize("masks", ["padding", "real mask", "causal", "causal padding"])
def test_encoder_and_decoder_layers_equal_torch_with_masks(masks):
    given = MASKS[masks]
    encoder = _weights(tnn.TransformerEncoderLayer(WIDTH, HEADS, 8, 0.0, batch_first=True))
    named = {
        "src_mask": given.get("attn_mask"),
        "src_key_padding_mask": given.get("key_padding_mask"),
        "is_causal": given.get("is_causal", False),
    }
    x = _numbers(2, LENGTH, WIDTH)
    # The normalisations multiply errors by up to 1 / sqrt(eps) < 2^9.
    _compare(encoder, [x], lambda layer, x: layer(x, **named), atol=BOUND * 2**9)
    decoder = _weights(tnn.TransformerDecoderLayer(WIDTH, HEADS, 8, 0.0, batch_first=True))
    kinds = {"attn_mask": "mask", "key_padding_mask": "key_padding_mask", "is_causal": "is_causal"}
    named = {f"{part}_{kinds[name]}": one for part in ("tgt", "memory") for name, one in given.items()}
    inputs = [x, _numbers(2, LENGTH, WIDTH, seed=3)]
    _compare(decoder, inputs, lambda layer, x, memory: layer(x, memory, **named), atol=BOUND * 2**9)


def test_sample_without_keys_leaves_other_gradients_finite():
    layer = tnn.TransformerEncoderLayer(WIDTH, HEADS, 8, 0.0, batch_first=True)
    layer = nn.convert(layer, "e5m2*e5m2+e6m5.rn").model
    found = layer(torch.randn(2, LENGTH, WIDTH), src_key_padding_mask=_ALL_OF_ONE)
    found.sum().backward()
    assert found.isfinite().all()
    assert all(one.grad.isfinite().all() for one in layer.parameters())


def test_attention_refuses_what_torch_refuses():
    layer = tnn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    other = nn.convert(layer, POLICY).model
    x, short = _numbers(2, LENGTH, WIDTH), _numbers(2, LENGTH - 1, WIDTH)
    wrong = [
        ((x, x[:1], x[:1]), {}, "batch size"),
        ((x[:1], x, x), {}, "batch size"),
        ((x, x, short), {}, "one length"),
        ((x, x, x), {"key_padding_mask": _ALL_OF_ONE.long()}, "dtype"),
        ((x, x, x), {"attn_mask": _CAUSAL.to(torch.uint8)}, "dtype"),
        ((x, x, x), {"attn_mask": _CAUSAL[:2]}, "shape"),
        ((x, x, x), {"is_causal": True}, "attn_mask"),
    ]
    for inputs, masks, keyword in wrong:
        with pytest.raises((RuntimeError, AssertionError)):
            layer(*inputs, **masks)
        with pytest.raises((TypeError, ValueError), match=keyword):
            other(*inputs, **masks)


def test_changed_parameters_of_layers_take_effect_or_are_refused():
    layer, x = _weights(nn.Linear(5, 4, policy="e5m2*e5m2+e6m5.rn")), _numbers(3, 5) * 0.75
    wanted = tnn.functional.linear(x, layer.weight, layer.bias)
    assert not torch.equal(layer(x), wanted)
    layer.policy = POLICY
    assert torch.equal(layer(x), wanted)
    with pytest.raises(AttributeError, match="read-only"):
        nn.Quantize("e5m2.rn").forward_cast = nn.Cast.parse("fp32.rn")
