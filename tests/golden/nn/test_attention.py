"""Attention and encoder layers in described arithmetic."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn as tnn

from halfulp.golden import nn
from tests.layers_by_hand import E5M2, SR, Expected, normal, same


def encoder_by_hand(layer, x, mask=None):
    """Compute a `TransformerEncoderLayer` with e5m2 products step by step."""
    hand = Expected(E5M2)
    attention, heads = layer.self_attn, layer.self_attn.num_heads
    (n, length, width), part = x.shape, layer.self_attn.head_dim

    def projected(x, weight, bias):
        return hand.forward(x.reshape(-1, x.shape[-1]), weight, bias).reshape(*x.shape[:-1], -1)

    def attended(x):
        w, b = attention.in_proj_weight, attention.in_proj_bias
        cut = [slice(i * width, (i + 1) * width) for i in range(3)]
        q, k, v = (projected(x, w[i], b[i]).reshape(n, length, heads, part).transpose(1, 2) for i in cut)
        scores = hand.forward(q * math.sqrt(1 / part), k)
        if mask is not None:
            scores = scores + mask
        sums = hand.forward(torch.softmax(scores, -1), v.mT).transpose(1, 2).reshape(n, length, width)
        return projected(sums, attention.out_proj.weight, attention.out_proj.bias)

    def fed(x):
        return projected(
            F.relu(projected(x, layer.linear1.weight, layer.linear1.bias)), layer.linear2.weight, layer.linear2.bias
        )

    if layer.norm_first:
        x = x + attended(layer.norm1(x))
        return x + fed(layer.norm2(x))
    x = layer.norm1(x + attended(x))
    return layer.norm2(x + fed(x))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("mode", ["train", "eval", "no_grad"])
def test_encoder_layer_converts_and_matches(norm_first, mode):
    own = tnn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True, norm_first=norm_first)
    for parameter in own.parameters():
        tnn.init.normal_(parameter)
    layer = nn.convert(own, E5M2).model.train(mode == "train")
    x = normal(3, 5, 8)
    later = torch.ones(5, 5, dtype=torch.bool).triu(1)
    with torch.set_grad_enabled(mode != "no_grad"):
        found, masked = layer(x).detach(), layer(x, src_mask=later).detach()
    with torch.no_grad():
        assert same(found, encoder_by_hand(own, x))
        assert same(masked, encoder_by_hand(own, x, torch.zeros(5, 5).masked_fill(later, -math.inf)))
        assert not same(found, masked)
        assert not same(found, own.eval()(x))


def test_encoder_layer_trains():
    layer = nn.convert(tnn.TransformerEncoderLayer(8, 2, 12, batch_first=True), f"{SR}, update=e5m7.sr8").model
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.01)
    nn.WeightUpdate(optimizer, "e5m7.sr8")
    scaler = nn.LossScaler()
    x, before = normal(3, 5, 8), copy.deepcopy(layer.state_dict())
    scaler.scale((layer(x) ** 2).mean()).backward()
    assert all(parameter.grad.abs().sum() > 0 for name, parameter in layer.named_parameters() if "norm" not in name)
    scaler.step(optimizer)
    assert not scaler.skipped
    assert all(not torch.equal(value, before[name]) for name, value in layer.state_dict().items())


def test_encoder_stack_uses_converted_layers_in_eval():
    own = tnn.TransformerEncoder(tnn.TransformerEncoderLayer(8, 2, 12, batch_first=True), 2).eval()
    stack = nn.convert(own, {"layers.1.linear2": E5M2}).model
    x, padding = normal(3, 5, 8), torch.arange(5).expand(3, 5) >= torch.tensor([[5], [3], [2]])
    seen = []
    with torch.no_grad():
        found = stack(x, src_key_padding_mask=padding)
        # A hook disables torch's fast path; the bits must be the same without one.
        handle = stack.layers[1].linear2.register_forward_hook(lambda layer, given, sums: seen.append((given[0], sums)))
        assert same(found, stack(x, src_key_padding_mask=padding))
        handle.remove()
        [(given, sums)] = seen
        last = stack.layers[1].linear2
        assert same(sums.reshape(-1, 8), Expected(E5M2).forward(given.reshape(-1, 12), last.weight, last.bias))
    assert not torch.equal(found[~padding], own(x, src_key_padding_mask=padding)[~padding])


ROUNDED = 64 * 2.0**-53 * 16
"""Error bound of attention in float64: fewer than 64 roundings per result, of numbers below 16."""

ATTENTIONS = [
    {},
    {"bias": False},
    {"add_bias_kv": True},
    {"add_zero_attn": True},
    {"kdim": 5, "vdim": 7},
    {"batch_first": True, "add_bias_kv": True, "add_zero_attn": True},
]


@pytest.mark.parametrize("options", ATTENTIONS, ids=str)
@pytest.mark.parametrize("batched", [True, False])
def test_attention_matches_torch_without_rounding(options, batched):
    """In float64, only the order of rounding differs."""
    own = tnn.MultiheadAttention(8, 2, dtype=torch.float64, **options)
    # A format that holds the weights selects our layer, with torch's arithmetic.
    layer = nn.convert(own, "fp32, weights=fp64.rn").model
    sizes = [(4, 3, 8), (5, 3, options.get("kdim", 8)), (5, 3, options.get("vdim", 8))]
    q, k, v = (normal(*size, seed=seed).double() for seed, size in enumerate(sizes))
    if options.get("batch_first"):
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    if not batched:
        q, k, v = (x.select(0 if options.get("batch_first") else 1, 1) for x in (q, k, v))
    padding = torch.tensor([[False] * 5, [False] * 4 + [True], [True] + [False] * 4])
    masks = [
        {},
        {"attn_mask": torch.ones(4, 5, dtype=torch.bool).triu(2)},
        {"attn_mask": normal(6 if batched else 2, 4, 5).double(), "average_attn_weights": False},
        {"key_padding_mask": padding if batched else padding[1]},
        {"need_weights": False, "attn_mask": normal(4, 5).double()},
    ]
    for given in masks:
        (x, x_weights), (y, y_weights) = own(q, k, v, **given), layer(q, k, v, **given)
        assert x.shape == y.shape
        assert (x - y).abs().max() < ROUNDED
        assert (x_weights is None) == (y_weights is None)
        if x_weights is not None:
            assert x_weights.shape == y_weights.shape
            assert (x_weights - y_weights).abs().max() < ROUNDED
