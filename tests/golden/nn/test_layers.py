"""Layers in described arithmetic: forward and backward bits against products written out by hand."""

import copy
import io
import itertools
import math
import pickle
import subprocess
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn as tnn
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint_sequential

from halfulp import golden
from halfulp.golden import nn
from halfulp.golden.nn import convolution, matmul, operands
from halfulp.golden.nn.draw import mix, states, words
from halfulp.hdl.formats.rounding import MODES
from halfulp.hdl.specs import MacSpec

E5M2 = "e5m2*e5m2+e6m5.rn"
SR = "e5m2*e5m2+e6m5.sr10"
MIXED = (
    "forward=e4m3fn*e4m3fn+fp16.rz, input_gradient=e5m2*e4m3fn+e6m5.ro, weight_gradient=e5m2*fxp4.4+bf16.sr4, "
    "weights=e4m3fn.sr3, activations=rz, gradients=sr5.sat, bias=e5m2.ra"
)
POLICIES = [
    E5M2,
    SR,
    f"{SR}@lfsr16",
    "e4m3*e4m3=e5m2.sr3+e6m5.sr10.sat@plateau3",
    "fxp4.4*fxp4.4=fxp4.4.rn+fxp8.8.rn",
    "posit8*posit8+exact=posit16.rn",
    MIXED,
    "forward=fp32, input_gradient=e5m2*e5m2+e6m5.rn, weight_gradient=fp32, weights=e5m2.rn",
]
ROLES = ("x", "w", "bias", "gradient", "forward", "input_gradient", "weight_gradient", "bias_gradient")
SEED = 7


def rounded(values, cast, fmt, key):
    """Return the codes of values as a cast makes them, or the values if there is no format."""
    cast = nn.Cast.parse(cast)

    def once(values, fmt, cast):
        random = words(key, cast.rounding.bits, tuple(values.shape), values.device) if cast.rounding.bits else None
        return golden.encode(values, fmt, cast.rounding, random, cast.saturate)

    if cast.fmt is not None:
        codes = once(values, cast.fmt, cast)
        values, cast = golden.decode(codes, cast.fmt).float(), nn.Cast(saturate=cast.saturate)
    return values if fmt is None else once(values, fmt, cast)


def multiplied(mac, a, b, key, start=None):
    """Multiply operands, which are decoded first if they are codes."""
    if mac is None:
        return a @ b if start is None else a @ b + start
    given = {}
    if mac.random is not None:
        given["seed"] = states(key, mac.random, (*a.shape[:-1], b.shape[-1]), a.device)
    elif mac.words:
        given = {"source": "philox", "seed": key}
    return golden.decode(golden.gemm(a, b, mac, start=start, **given), mac.o).float()


class Expected:
    """Reference results of a layer with a policy, a seed and a number of uses, for matrices."""

    def __init__(self, policy, used=0, seed=SEED, activations=False):
        self.policy = nn.Policy.parse(policy)
        key = mix(seed, used) if self.policy.stochastic else 0
        self.key = {role: mix(key, place) for place, role in enumerate(ROLES)}
        self.second = self.policy.activations if activations else self.policy.weights

    def operand(self, role, side, values):
        casts = {"x": self.policy.activations, "w": self.second, "gradient": self.policy.gradients}
        mac = getattr(self.policy, side[0])
        fmt = None if mac is None else getattr(mac, side[1])
        return rounded(values, casts[role], fmt, self.key[role])

    def start(self, bias):
        mac = self.policy.forward
        return None if bias is None else rounded(bias, self.policy.bias, mac and mac.o, self.key["bias"])

    def forward(self, x, w, bias=None):
        a, b = self.operand("x", ("forward", "a"), x), self.operand("w", ("forward", "b"), w)
        return multiplied(self.policy.forward, a, b.mT, self.key["forward"], self.start(bias))

    def input_gradient(self, g, w):
        a, b = self.operand("gradient", ("input_gradient", "a"), g), self.operand("w", ("input_gradient", "b"), w)
        return multiplied(self.policy.input_gradient, a, b, self.key["input_gradient"])

    def weight_gradient(self, g, x):
        a, b = self.operand("gradient", ("weight_gradient", "a"), g), self.operand("x", ("weight_gradient", "b"), x)
        return multiplied(self.policy.weight_gradient, a.mT, b, self.key["weight_gradient"])

    def bias_gradient(self, g):
        mac = self.policy.weight_gradient
        a = self.operand("gradient", ("weight_gradient", "a"), g)
        one = torch.ones(len(g), 1) if mac is None else torch.full((len(g), 1), mac.b.encode(1))
        return multiplied(mac, a.mT, one, self.key["bias_gradient"]).squeeze(-1)


def same(x, y):
    """Return True if two tensors have the same bits, counting NaN as equal."""
    assert (x.shape, x.dtype) == (y.shape, y.dtype)
    nan = x.isnan() & y.isnan()
    return bool((nan | (x.view(torch.int32) == y.view(torch.int32))).all())


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# Layers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_linear_matches_gemm_by_hand(policy):
    layer = nn.Linear(9, 4, policy=policy, seed=SEED)
    x, g = normal(5, 9), normal(5, 4, seed=1)
    for used in range(2):
        hand = Expected(policy, used)
        given = x.clone().requires_grad_()
        layer.zero_grad()
        y = layer(given)
        y.backward(g)
        weight, bias = layer.weight.detach(), layer.bias.detach()
        assert same(y.detach(), hand.forward(x, weight, bias))
        assert same(given.grad, hand.input_gradient(g, weight))
        assert same(layer.weight.grad, hand.weight_gradient(g, x))
        assert same(layer.bias.grad, hand.bias_gradient(g))


def test_random_words_differ_by_use_and_tensor():
    layer = nn.Linear(64, 64, bias=False, policy=f"{SR}, weights=sr4, activations=sr4", seed=SEED)
    x = normal(64, 64)
    assert not same(layer(x).detach(), layer(x).detach())
    keys = [mix(mix(SEED, used), place) for used in range(50) for place in range(len(ROLES))]
    assert len({key & 0xFFFFFFFF for key in keys}) == len(keys)


@pytest.mark.parametrize("shape", [(9,), (2, 3, 9), (0, 9), (2, 0, 9)])
def test_linear_accepts_shapes_of_torch(shape):
    layer, own = nn.Linear(9, 4, policy=E5M2), tnn.Linear(9, 4)
    y = layer(x := torch.ones(shape, requires_grad=True))
    assert y.shape == own(x).shape
    y.sum().backward()
    assert x.grad.shape == shape
    assert layer.weight.grad.shape == (4, 9)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_linear_of_no_inputs_gives_bias():
    layer = nn.Linear(0, 3, policy=E5M2)
    with torch.no_grad():
        layer.bias.copy_(torch.tensor([0.5, 1.03, -3.0]))
    y = layer(x := torch.ones(2, 0, requires_grad=True))
    assert y.tolist() == [[0.5, 1.03125, -3.0]] * 2
    y.sum().backward()
    assert (x.grad.shape, layer.bias.grad.tolist()) == ((2, 0), [2.0] * 3)
    none = nn.Linear(3, 2, policy=E5M2)
    none(torch.ones(0, 3)).sum().backward()
    assert torch.equal(none.weight.grad, torch.zeros(2, 3))


def test_linear_handles_strides_and_special_numbers():
    layer = nn.Linear(6, 4, policy=E5M2, seed=SEED)
    hand, weight, bias = Expected(E5M2), layer.weight.detach(), layer.bias.detach()
    x = normal(6, 10).mT[::2]
    assert not x.is_contiguous()
    assert same(layer(x).detach(), hand.forward(x.contiguous(), weight, bias))
    x = normal(1, 6).expand(3, 6)
    assert same(layer(x).detach(), hand.forward(x.contiguous(), weight, bias))
    x = normal(5, 6)
    x[0, 0], x[1, 1], x[2, 2], x[3, 3] = math.nan, math.inf, -math.inf, 1e30
    y = layer(given := x.clone().requires_grad_())
    g = torch.full((5, 4), 1.0)
    g[4, 0], g[3, 1] = math.nan, math.inf
    y.backward(g)
    assert same(y.detach(), hand.forward(x, weight, bias))
    assert y[0].isnan().all()
    assert y[1:4].isinf().all()
    assert same(given.grad, hand.input_gradient(g, weight))
    assert same(layer.weight.grad, hand.weight_gradient(g, x))
    assert layer.weight.grad[0].isnan().all()
    # Fixed point has neither infinity nor NaN.
    fixed = nn.Linear(6, 4, policy="fxp4.4*fxp4.4+fxp8.8.rn")
    assert fixed(x).isfinite().all()


CONVOLUTIONS = [
    {},
    {"stride": 2, "padding": 1},
    {"stride": (2, 3), "dilation": (1, 2), "padding": (2, 1)},
    {"padding": "same", "padding_mode": "circular", "dilation": 2},
    {"groups": 2, "padding": "valid", "bias": False},
    {"groups": 4, "stride": 3, "padding": 3, "padding_mode": "replicate"},
]


def conv_by_hand(hand, layer, x, g):
    """Compute the result and gradients of a convolution of padded images, sum by sum."""
    (sh, sw), (dh, dw), groups = layer.stride, layer.dilation, layer.groups
    weight, bias = layer.weight.detach(), layer.bias
    m, per, kh, kw = weight.shape
    n, c, h, wide = x.shape
    codes = {
        (role, mac): hand.operand(role, (mac, side), values).numpy()
        for role, mac, side, values in (
            ("x", "forward", "a", x),
            ("w", "forward", "b", weight),
            ("gradient", "input_gradient", "a", g),
            ("w", "input_gradient", "b", weight),
            ("gradient", "weight_gradient", "a", g),
            ("x", "weight_gradient", "b", x),
        )
    }
    places = list(itertools.product(range(g.shape[2]), range(g.shape[3])))
    kernel = list(itertools.product(range(per), range(kh), range(kw)))
    start = hand.start(bias.detach()) if bias is not None else None
    sums = {"y": [], "for_w": [], "for_b": [], "for_x": []}

    def all_of(name, mac, shape, start=None):
        """Sum each list of pairs; short lists are padded with zeros."""
        longest = max(map(len, sums[name]))
        pairs = torch.tensor([pairs + [(0, 0)] * (longest - len(pairs)) for pairs in sums[name]]).reshape(
            -1, longest, 2
        )
        a, b = pairs.unbind(-1)
        starts = None if start is None else start[:, None, None]
        return multiplied(getattr(hand.policy, mac), a[:, None], b[..., None], 0, starts).reshape(shape)

    for k in range(m):
        first = k // (m // groups) * per
        a, b = codes["x", "forward"], codes["w", "forward"]
        for i, (p, q) in itertools.product(range(n), places):
            pairs = [(a[i, first + r, p * sh + s * dh, q * sw + t * dw], b[k, r, s, t]) for r, s, t in kernel]
            sums["y"].append(pairs)
        a, b = codes["gradient", "weight_gradient"], codes["x", "weight_gradient"]
        for r, s, t in kernel:
            pairs = [
                (a[i, k, p, q], b[i, first + r, p * sh + s * dh, q * sw + t * dw])
                for i, (p, q) in itertools.product(range(n), places)
            ]
            sums["for_w"].append(pairs)
        one = hand.policy.weight_gradient.b.encode(1)
        pairs = [(a[i, k, p, q], one) for i, (p, q) in itertools.product(range(n), places)]
        sums["for_b"].append(pairs)
    a, b = codes["gradient", "input_gradient"], codes["w", "input_gradient"]
    for i, channel, u, v in itertools.product(range(n), range(c), range(h), range(wide)):
        group, r = divmod(channel, per)
        pairs = []
        # The transposed convolution uses reversed kernels.
        for k, s, t in itertools.product(range(group * m // groups, (group + 1) * m // groups), range(kh), range(kw)):
            (p, off), (q, side) = divmod(u - (kh - 1 - s) * dh, sh), divmod(v - (kw - 1 - t) * dw, sw)
            if (off, side) == (0, 0) and (p, q) in places:
                pairs.append((a[i, k, p, q], b[k, r, kh - 1 - s, kw - 1 - t]))
        sums["for_x"].append(pairs)
    starts = None if start is None else start.repeat_interleave(n * len(places))
    return (
        all_of("y", "forward", (m, n, *g.shape[2:]), starts).transpose(0, 1),
        all_of("for_x", "input_gradient", x.shape),
        all_of("for_w", "weight_gradient", weight.shape),
        all_of("for_b", "weight_gradient", (m,)),
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
def test_conv2d_matches_sums_by_hand(options):
    policy = "forward=e5m2*e4m3+e6m5.rz, input_gradient=e5m2*e4m3+e5m4.rn, weight_gradient=e5m2*e5m2+e6m5.ro"
    layer = nn.Conv2d(4, 4, (2, 3), policy=policy, **options)
    own = tnn.Conv2d(4, 4, (2, 3), **options)
    x = normal(2, 4, 5, 7)
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    big = F.pad(x, tuple(layer._reversed_padding_repeated_twice), mode=mode)
    y = layer(x)
    assert y.shape == own(x).shape
    assert y.shape[2:] != (1, 1)
    g = normal(*y.shape, seed=2)
    # On padded images, because torch computes the gradient of the padding.
    bare = copy.copy(layer)
    bare.padding, bare._reversed_padding_repeated_twice = (0, 0), [0] * 4
    bare(given := big.clone().requires_grad_()).backward(g)
    expected = conv_by_hand(Expected(policy), layer, big, g)
    assert same(y.detach(), expected[0].contiguous())
    assert same(given.grad, expected[1])
    assert same(layer.weight.grad, expected[2])
    if layer.bias is not None:
        assert same(layer.bias.grad, expected[3])


# torch sums its own convolution products in an unspecified order.
@pytest.mark.parametrize("policy", POLICIES[:-1])
def test_conv2d_of_one_position_matches_gemm(policy):
    layer = nn.Conv2d(3, 4, 2, policy=policy, seed=SEED)
    x, g = normal(5, 3, 2, 2), normal(5, 4, seed=1)
    y = layer(x)
    y.backward(g[:, :, None, None])
    hand, weight = Expected(policy), layer.weight.detach()
    # Words are drawn in the order of the elements of a tensor of images, which is that of the rows.
    assert same(y.detach().flatten(1), hand.forward(x.flatten(1), weight.flatten(1), layer.bias.detach()))
    assert same(layer.weight.grad.flatten(1), hand.weight_gradient(g, x.flatten(1)))
    assert same(layer.bias.grad, hand.bias_gradient(g))


def test_conv2d_accepts_empty_images():
    layer, own = nn.Conv2d(3, 4, 2, padding=1, policy=E5M2), tnn.Conv2d(3, 4, 2, padding=1)
    for shape in ((0, 3, 4, 4), (3, 4, 4), (1, 3, 1, 1)):
        y = layer(x := torch.zeros(shape, requires_grad=True))
        assert y.shape == own(x).shape
        y.sum().backward()
        assert x.grad.shape == shape


@pytest.mark.parametrize("policy", POLICIES)
def test_bmm_matches_gemm_by_hand(policy):
    layer = nn.Bmm(policy=policy, seed=SEED)
    a, b, g = normal(3, 2, 4, 5), normal(2, 5, 3, seed=1), normal(3, 2, 4, 3, seed=2)
    x, w = a.clone().requires_grad_(), b.clone().requires_grad_()
    y = layer(x, w)
    y.backward(g)
    hand, wide = Expected(policy, activations=True), b.expand(3, 2, 5, 3).mT
    assert same(y.detach(), hand.forward(a, wide))
    assert same(x.grad, hand.input_gradient(g, wide))
    assert same(w.grad, hand.weight_gradient(g, a).mT.sum(0))


def test_quantize_matches_encode():
    layer = nn.Quantize("e5m2.sr3", "e4m3.rz", seed=SEED)
    x, g = normal(40), normal(40, seed=1)
    y = layer(given := x.clone().requires_grad_())
    y.backward(g)
    assert same(y.detach(), rounded(x, "e5m2.sr3", None, mix(mix(SEED, 0), 0)))
    assert same(given.grad, rounded(g, "e4m3.rz", None, 0))
    assert not same(given.grad, g)
    through = nn.Quantize("e5m2")
    through(given := x.clone().requires_grad_()).backward(g)
    assert same(given.grad, g)


@pytest.mark.parametrize("policy", [SR, MIXED])
def test_threads_change_no_bit(policy):
    found = []
    before = torch.get_num_threads()
    for threads in (1, 4):
        torch.set_num_threads(threads)
        layer = nn.Linear(40, 50, policy=policy, seed=SEED)
        with torch.no_grad():
            layer.weight.copy_(normal(50, 40, seed=4))
            layer.bias.zero_()
        y = layer(normal(70, 40))
        y.backward(normal(70, 50, seed=1))
        found.append((y.detach(), layer.weight.grad, layer.bias.grad))
    torch.set_num_threads(before)
    assert all(same(x, y) for x, y in zip(*found, strict=True))


# Conversion ----------------------------------------------------------------------------------------------------------


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


def network():
    return tnn.Sequential(tnn.Conv2d(1, 2, 3), tnn.Flatten(), tnn.Linear(8, 4), tnn.Linear(4, 3))


def test_convert_reports_swapped_layers():
    own = network()
    found = nn.convert(own, {tnn.Conv2d: E5M2, "2": SR, "3": "fp32"})
    assert [type(layer) for layer in own] == [tnn.Conv2d, tnn.Flatten, tnn.Linear, tnn.Linear]
    assert [type(layer) for layer in found.model] == [nn.Conv2d, tnn.Flatten, nn.Linear, tnn.Linear]
    assert [(swap.name, swap.kind, str(swap.policy)) for swap in found.swapped] == [
        ("0", "Conv2d", E5M2),
        ("2", "Linear", SR),
    ]
    assert [(swap.name, swap.why) for swap in found.left] == [("3", "its policy is fp32")]
    assert str(found).splitlines() == [
        "layer  type    computes in",
        "0      Conv2d  e5m2*e5m2+e6m5.rn",
        "2      Linear  e5m2*e5m2+e6m5.sr10",
        "3      Linear  not swapped: its policy is fp32",
    ]
    assert "policy='e5m2*e5m2+e6m5.rn'" in repr(found.model[0])
    assert nn.convert(own, E5M2, inplace=True).model is own
    # Convert again, to another policy and back.
    again = nn.convert(own, {"2": SR}, inplace=True)
    assert [str(swap.policy) for swap in again.swaps] == [E5M2, SR, E5M2]
    assert "rounding_state" in own[2].state_dict()
    plain = nn.convert(own, "fp32", inplace=True).model
    x = normal(2, 1, 4, 4)
    reference = network()
    reference.load_state_dict(plain.state_dict())
    assert same(plain(x).detach(), reference(x).detach())


def test_convert_in_place_replaces_layers_with_their_state():
    own = network()
    layer, calls, optimizer = own[2], [], torch.optim.SGD(own.parameters(), 0.1)
    layer.register_forward_hook(lambda module, *_: calls.append(type(module)))
    layer.note, layer.weight.requires_grad = "of the user", False
    nn.convert(own.eval(), E5M2, inplace=True)
    assert own[2] is not layer
    assert own[2].weight is layer.weight
    assert (own[2].note, own[2].training) == ("of the user", False)
    own(normal(2, 1, 4, 4)).sum().backward()
    assert calls == [nn.Linear]
    assert {id(one) for one in own.parameters()} == {id(one) for one in optimizer.param_groups[0]["params"]}
    replaced = own[2]
    nn.convert(own, SR, inplace=True)
    assert own[2] is replaced


def test_convert_refuses_to_replace_the_model_in_place():
    layer = tnn.Linear(3, 2)
    with pytest.raises(ValueError, match="itself a Linear"):
        nn.convert(layer, SR, inplace=True)
    assert set(layer.state_dict()) == {"weight", "bias"}
    assert nn.convert(layer, "fp32", inplace=True).model is layer
    found = nn.convert(layer, SR).model
    assert nn.convert(found, E5M2, inplace=True).model is found


def test_convert_accepts_single_layer():
    layer = tnn.Linear(3, 2)
    assert nn.convert(layer, SR).model(torch.ones(1, 3)).shape == (1, 2)
    assert type(layer) is tnn.Linear
    assert str(nn.convert(layer, SR)).splitlines()[1].startswith("(the model)  Linear  e5m2")


class Own(tnn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


class Named(tnn.Linear):
    pass


def test_convert_ignores_other_classes():
    model = tnn.Sequential(Own(2, 2), Named(2, 2), tnn.LazyLinear(2))
    found = nn.convert(model, E5M2)
    assert [swap.why for swap in found.left] == [
        "Own has its own forward function",
        "its sizes are unknown before its first use",
    ]
    assert isinstance(found.model[1], Named)
    assert isinstance(found.model[1], nn.Linear)
    # The classes are local, but can still be pickled and copied.
    for made in (pickle.loads(pickle.dumps(found.model[1])), copy.deepcopy(found.model[1])):
        assert type(made) is type(found.model[1])
        assert (made.policy, made.weight.tolist()) == (found.model[1].policy, found.model[1].weight.tolist())
        assert torch.equal(made(torch.ones(1, 2)), found.model[1](torch.ones(1, 2)))


def test_convert_reports_unknown_layers():
    layers = (tnn.LSTM(2, 2), tnn.Conv1d(2, 2, 1), tnn.GRUCell(2, 2), tnn.Embedding(3, 2), tnn.Linear(2, 2))
    found = nn.convert(tnn.ModuleList(layers), E5M2)
    assert [(swap.name, swap.kind) for swap in found.left] == [("0", "LSTM"), ("1", "Conv1d"), ("2", "GRUCell")]
    assert [swap.name for swap in found.swapped] == ["4"]


def test_convert_swaps_layers_with_rounded_parameters():
    found = nn.convert(tnn.Linear(2, 2), "fp32, update=e6m5.sr10")
    assert [swap.policy.update for swap in found.swapped] == [nn.Cast.parse("e6m5.sr10")]
    x = torch.randn(3, 2)
    assert torch.equal(found.model(x), tnn.functional.linear(x, found.model.weight, found.model.bias))


def test_convert_preserves_shared_layers_and_parameters():
    shared = tnn.Linear(4, 4)
    model = tnn.ModuleDict({"a": shared, "b": shared, "c": tnn.Linear(4, 4), "e": tnn.Embedding(4, 4)})
    model["c"].weight = model["e"].weight
    found = nn.convert(model, {"b": E5M2, "c": E5M2})
    assert [swap.name for swap in found.swapped] == ["a", "c"]
    assert found.model["a"] is found.model["b"]
    assert found.model["c"].weight is found.model["e"].weight
    optimizer = torch.optim.SGD(found.model.parameters(), lr=1.0)
    nn.WeightUpdate(optimizer, "e5m2", parameters=[found.model["c"].weight, found.model["e"].weight])


def test_state_dicts_transfer_between_models():
    own = network()
    for policy in (E5M2, SR):
        made = nn.convert(own, policy).model
        extra = set(made.state_dict()) - set(own.state_dict())
        assert extra == ({f"{i}.rounding_state" for i in (0, 2, 3)} if policy == SR else set())
        made.load_state_dict(own.state_dict())
        x = normal(2, 1, 4, 4)
        made(x)
        other = nn.convert(network(), policy, seed=9).model
        other.load_state_dict(made.state_dict())
        assert same(made(x).detach(), other(x).detach())
        held = io.BytesIO()
        torch.save(made, held)
        held.seek(0)
        again = torch.load(held, weights_only=False)
        assert same(made(x).detach(), again(x).detach())
        twin = copy.deepcopy(made)
        assert same(made(x).detach(), twin(x).detach())


@pytest.mark.parametrize("first", ["convert", "utils"])
def test_torch_utilities_work_on_converted_models(first):
    """Weight norm, orthogonal weights, pruning and clipping, before or after conversion."""

    def utilities(model):
        parametrizations.weight_norm(model[2])
        parametrizations.orthogonal(model[3])
        prune.l1_unstructured(model[0], "weight", 0.5)
        return model

    torch.manual_seed(0)
    model = network()
    if first == "utils":
        with pytest.raises(ValueError, match="torch cannot copy the model"):
            nn.convert(utilities(model), E5M2)
        nn.convert(model, E5M2, inplace=True)
    else:
        model = utilities(nn.convert(model, E5M2).model)
    x = normal(2, 1, 4, 4)
    y = model(x)
    hand, rows = Expected(E5M2), x.unfold(2, 3, 1).unfold(3, 3, 1).reshape(2 * 4, 9)
    with torch.no_grad():
        conv = hand.forward(rows, model[0].weight.flatten(1), model[0].bias).reshape(2, 4, 2).mT.reshape(2, 8)
        inner = hand.forward(conv, model[2].weight, model[2].bias)
        assert same(y.detach(), hand.forward(inner, model[3].weight, model[3].bias))
    assert (model[0].weight == 0).sum() == 9
    y.sum().backward()
    norm = tnn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert norm > 0
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())
    torch.nn.utils.parametrize.remove_parametrizations(model[2], "weight")
    assert isinstance(model[2], nn.Linear)
    assert same(model(x).detach(), y.detach())


class Partly(tnn.Module):
    """Model with products in layers, by hand, and with the weight of a layer that is not called."""

    def __init__(self):
        super().__init__()
        self.first, self.read = tnn.Linear(4, 4), tnn.Linear(4, 4)
        self.norm = tnn.LayerNorm(4)

    def forward(self, x):
        y = F.linear(self.norm(self.first(x)), self.read.weight)
        return y @ y.mT


def test_uncalled_layers_are_reported():
    model = nn.convert(Partly(), E5M2).model
    with pytest.warns(RuntimeWarning, match="read"):
        model(normal(3, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(normal(3, 4))
        nn.convert(network(), E5M2).model(normal(2, 1, 4, 4))


def test_compiled_models_report_uncalled_layers():
    torch._dynamo.reset()
    model = nn.convert(Partly(), SR).model
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with pytest.warns(RuntimeWarning, match="layers read;"):
        compiled(normal(3, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(normal(3, 4))
    model = nn.convert(Partly(), E5M2).model
    model.first.compile(backend="aot_eager")
    with pytest.warns(RuntimeWarning, match="layers read;"):
        model(normal(3, 4))


@pytest.mark.filterwarnings("ignore:halfulp")
def test_observe_reports_products_and_modules_in_torch():
    converted = nn.convert(Partly(), E5M2)
    found = converted.observe(lambda: converted.model(normal(3, 4)).sum().backward())
    assert found.uncalled == ("read",)
    assert found.products == {("(the model)", "mm"): 2 + 4}
    assert ("norm", "native_layer_norm") in found.others
    assert not any(name == "first" and one != "sum" for name, one in found.others)
    assert "never called" in str(found)
    whole = nn.convert(network(), E5M2)
    assert not whole.observe(lambda: whole.model(normal(2, 1, 4, 4)).sum().backward()).products


# Lost numbers ---------------------------------------------------------------------------------------------------------


def test_counts_name_layers_phases_and_losses():
    first = nn.convert(tnn.Sequential(tnn.Linear(4, 1, bias=False)), "fxp4.4*fxp4.4+fxp8.8.rn").model
    with torch.no_grad():
        first[0].weight.fill_(1.0)
    x = torch.tensor([[math.nan, 1e-9, 100.0, 0.0], [1.0, 1.0, 1.0, 1e3]])
    with nn.Counts() as counts:
        first(x).sum().backward()
    kinds = ("numbers", "underflow", "overflow", "saturated", "nan_lost", "pruned")
    assert counts.rows["0", "forward", "x"] == dict(zip(kinds, (8, 1, 0, 2, 1, 0), strict=True))
    assert counts.rows["0", "weight_gradient", "x"] == counts.rows["0", "forward", "x"]
    assert counts.rows["0", "forward", "w"]["numbers"] == 4
    assert str(counts).splitlines()[0].split() == ["layer", "phase", "tensor", *kinds]
    with nn.Counts() as again:
        nn.Quantize("e5m2")(torch.tensor([1e9, 1e-9, 1.0, math.inf, -1e-9]))
    assert again.rows["Quantize", "forward", "x"] == dict(zip(kinds, (5, 2, 1, 0, 0, 0), strict=True))
    with nn.Counts() as results:
        nn.Linear(2, 1, bias=False, policy="e5m2*e5m2+e4m3.rn")(torch.full((1, 2), 3e4))
    assert results.rows["", "forward", "result"]["overflow"] == 1
    first(x)
    assert counts.rows["0", "forward", "x"]["numbers"] == 8
    with nn.Counts() as cast:
        nn.Linear(4, 1, policy=f"{E5M2}, activations=e2m1fn.rn.sat")(torch.tensor([[7.0, 1.0, 0.1, 1e9]]))
    assert cast.rows["", "forward", "x"] == dict(zip(kinds, (4, 1, 0, 2, 0, 0), strict=True))


def test_converted_models_each_warn_of_zeros():
    for _ in range(2):
        model = nn.convert(tnn.Linear(2, 2), "e4m3fn*e4m3fn+fp16.rn").model
        with pytest.warns(RuntimeWarning, match="x became zero"):
            model(torch.full((1, 2), 1e-9))


def test_tensor_that_becomes_zero_warns_once(monkeypatch):
    monkeypatch.setattr(nn.counts, "warned", set())
    layer = nn.Linear(4, 4, policy="e4m3fn*e4m3fn+fp16.rn")
    loss = (layer(normal(3, 4)) * -1e-9).sum()
    with pytest.warns(RuntimeWarning, match="gradient became zero in e4m3fn"):
        loss.backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (layer(normal(3, 4)) * -1e-9).sum().backward()
        nn.Linear(4, 4, policy=E5M2)(torch.zeros(3, 4)).sum().backward()


def test_products_with_zeros_are_not_repeated_in_fp32(monkeypatch):
    layer = nn.Conv2d(2, 3, 3, bias=False, policy="e4m3fn*e4m3fn+fp16.rn")
    monkeypatch.setattr(operands, "gathered", None)
    y = layer(torch.zeros(1, 2, 5, 5))
    y.backward(torch.full_like(y, 1.0))
    assert not y.any()
    assert not layer.weight.grad.any()


# Compilers, transforms and recomputation ------------------------------------------------------------------------------

RANDOM = f"{SR}, weights=e5m2.sr3"


class Small(tnn.Module):
    """Network with each kind of layer."""

    def __init__(self):
        super().__init__()
        self.conv = tnn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.attention = tnn.MultiheadAttention(8, 2, batch_first=True)
        self.linear = tnn.Linear(8, 8)
        self.round = nn.Quantize("e5m2.sr3", "e5m2.sr4", seed=3)

    def forward(self, x):
        y = self.conv(x).flatten(2).mT.reshape(len(x), -1, 8)
        return self.round(self.linear(self.attention(y, y, y)[0] + y).relu())


def small(policy):
    torch.manual_seed(0)
    return nn.convert(Small(), policy, inplace=True).model


def steps(model, run, count=3):
    """Return results, gradients and state of some steps."""
    found = []
    for step in range(count):
        x = normal(2, 1, 8, 8, seed=step).requires_grad_()
        model.zero_grad()
        y = run(x)
        y.square().sum().backward()
        found += [y.detach(), x.grad, *(one.grad for one in model.parameters())]
    return found + [one.clone() for one in model.buffers()]


@pytest.mark.parametrize("policy", [E5M2, RANDOM])
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_models_give_the_same_bits(policy, backend):
    torch._dynamo.reset()
    eager, compiled = small(policy), small(policy)
    found = steps(compiled, torch.compile(compiled, backend=backend, fullgraph=True))
    for one, wanted in zip(found, steps(eager, eager), strict=True):
        assert torch.equal(one, wanted)


def test_exported_models_give_the_same_bits():
    x = normal(2, 1, 8, 8)
    exported = torch.export.export(small(RANDOM), (x,)).module()
    model = small(RANDOM)
    for _ in range(2):
        assert torch.equal(exported(x), model(x))


def test_meta_and_fake_tensors_pass_through_models():
    x = normal(2, 1, 8, 8)
    assert small(RANDOM).to("meta")(x.to("meta")).shape == (2, 8, 8)
    model = small(RANDOM)
    with FakeTensorMode(allow_non_fake_inputs=True):
        model(x).sum().backward()
    assert all(one.grad.shape == one.shape for one in model.parameters())


@pytest.mark.parametrize("policy", POLICIES)
def test_operators_pass_opcheck_of_torch(policy):
    """`torch.library.opcheck` compares shapes and strides with those of fake tensors, among others."""
    key, text = torch.tensor(5), str(nn.Policy.parse(policy))
    x, w, bias = (one.requires_grad_() for one in (normal(3, 4), normal(5, 4), normal(5)))
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(matmul._MATMUL.operator, (x, w, bias, key, None, None, text, "", False), test_utils=checks)
    given = (normal(3, 5), x.detach(), w.detach(), key, None, text, "", False, [True, False, True])
    torch.library.opcheck(matmul._GRADIENTS_OF_MATMUL.operator, given, test_utils=checks)
    images, kernels = normal(2, 4, 6, 5), normal(6, 2, 3, 2)
    parts = (key, None, text, "", [2, 1, 1, 2, 2])
    forward = (images, kernels, normal(6), key, None, *parts[1:])
    torch.library.opcheck(convolution._CONVOLUTION.operator, forward, test_utils=checks)
    given = (normal(2, 6, 2, 3), images, kernels, *parts, [True, True, True])
    torch.library.opcheck(convolution._GRADIENTS_OF_CONVOLUTION.operator, given, test_utils=checks)


@pytest.mark.parametrize("make", [lambda: nn.Linear(6, 4, policy=E5M2), lambda: nn.Conv2d(2, 4, 3, policy=E5M2)])
def test_func_gives_gradients_of_each_sample(make):
    layer = make()
    x = normal(3, 5, 6) if isinstance(layer, tnn.Linear) else normal(3, 2, 5, 5)

    def loss(parameters, x):
        return torch.func.functional_call(layer, parameters, (x,)).square().sum()

    parameters = {name: one.detach() for name, one in layer.named_parameters()}
    found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    for place, sample in enumerate(x):
        layer.zero_grad()
        layer(sample).square().sum().backward()
        for name, one in layer.named_parameters():
            assert torch.equal(found[name][place], one.grad)


def test_forward_derivatives_are_refused():
    layer = nn.Linear(8, 8, policy=E5M2).requires_grad_(False)
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="jvp"):
        layer(forward_ad.make_dual(normal(2, 8), normal(2, 8)))


def test_vmap_gives_random_words_by_its_setting():
    x = normal(8).expand(5, 8)

    def mapped(randomness):
        return torch.func.vmap(nn.Linear(8, 8, policy=SR, seed=SEED), randomness=randomness)(x).detach()

    same_words, different = mapped("same"), mapped("different")
    assert (same_words == same_words[0]).all()
    assert not (different == different[0]).all()
    with pytest.raises(RuntimeError, match="randomness"):
        mapped("error")


class Repeated(tnn.Module):
    """Regions that torch recomputes: nested ones, and one layer in several regions."""

    def __init__(self):
        super().__init__()
        self.parts = tnn.ModuleList(tnn.Sequential(tnn.Linear(8, 8), tnn.Tanh(), tnn.Linear(8, 8)) for _ in range(2))
        self.reentrant = None

    def forward(self, x):
        x = self.run(self.nested, x)
        x = self.run(self.parts[1], x)
        return self.run(self.parts[0], x)

    def nested(self, x):
        return self.parts[1](self.run(self.parts[0], self.run(self.parts[0], x)))

    def run(self, part, x):
        if self.reentrant is None:
            return part(x)
        return torch.utils.checkpoint.checkpoint(part, x, use_reentrant=self.reentrant)


def repeated(reentrant, **options):
    torch.manual_seed(0)
    model = nn.convert(Repeated(), RANDOM, inplace=True).model
    model.reentrant = reentrant
    x = normal(4, 8).requires_grad_()
    for _ in range(2):
        losses = model(x).square().sum() + model(2 * x).square().sum()
        for _ in options:
            losses.backward(**options)
        losses.backward()
    return [x.grad, *(one.grad for one in model.parameters()), *model.buffers()]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("options", [{}, {"retain_graph": True}], ids=str)
def test_checkpointing_repeats_random_words(reentrant, options):
    for one, wanted in zip(repeated(reentrant, **options), repeated(None, **options), strict=True):
        assert torch.equal(one, wanted)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_sequential_repeats_random_words(reentrant):
    found = []
    for run in (
        lambda model, x: model(x),
        lambda model, x: checkpoint_sequential(model, 2, x, use_reentrant=reentrant),
    ):
        torch.manual_seed(0)
        model = nn.convert(tnn.Sequential(*(tnn.Linear(8, 8) for _ in range(4))), RANDOM, inplace=True).model
        x = normal(4, 8).requires_grad_()
        run(model, x).square().sum().backward()
        found.append([x.grad, *(one.grad for one in model.parameters()), *model.buffers()])
    for one, wanted in zip(*found, strict=True):
        assert torch.equal(one, wanted)


def test_unknown_recomputation_is_refused():
    layer = nn.Linear(4, 4, policy=SR)
    x = normal(3, 4).requires_grad_()
    x.register_hook(lambda gradient: gradient + layer(gradient).detach())
    with pytest.raises(RuntimeError, match="checkpoint"):
        x.square().sum().backward()
    assert layer.rounding_state[1] == 0


# Random words of evaluation and of ranks ------------------------------------------------------------------------------


@pytest.mark.parametrize(("evaluation", "equal"), [("repeat", False), ("freeze", True), ("continue", False)])
def test_evaluation_uses_chosen_random_words(evaluation, equal):
    model = nn.convert(tnn.Linear(64, 64), SR, evaluation=evaluation).model
    x = normal(8, 64)
    trained = [model(x).detach() for _ in range(2)]
    first, second = ([model.eval()(x).detach(), model(x).detach()] for _ in range(2))
    assert torch.equal(first[0], first[1]) is equal
    assert torch.equal(first[0], second[0]) is (evaluation != "continue")
    assert torch.equal(first[1], second[1]) is (evaluation != "continue")
    assert not any(torch.equal(one, first[0]) for one in trained)
    assert model.rounding_state[1] == (6 if evaluation == "continue" else 2)


def test_ranks_have_different_random_words(monkeypatch):
    x, found = normal(8, 64), []
    for rank in (0, 1, 2):
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        torch.manual_seed(0)
        found.append(nn.Linear(64, 64, policy=SR, seed=SEED)(x).detach())
    assert not any(torch.equal(one, other) for one, other in itertools.combinations(found, 2))


RANK = """
import sys
import torch
from halfulp.golden import nn

rank, folder = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(nn.convert(torch.nn.Linear(64, 8), sys.argv[3], seed=1).model)
x = torch.randn(16, 64)
results = []
for _ in range(2):
    results.append(model(x))
    results[-1].square().sum().backward()
torch.save([*(one.detach() for one in results), *(one.grad for one in model.parameters())], f"{folder}/{rank}.pt")
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_ranks_of_two_processes_repeat_random_words(tmp_path):
    found = []
    for run in map(str, range(2)):
        (tmp_path / run).mkdir()
        ranks = [subprocess.Popen([sys.executable, "-c", RANK, rank, str(tmp_path / run), SR]) for rank in "01"]
        assert [rank.wait() for rank in ranks] == [0, 0]
        found.append([torch.load(tmp_path / run / f"{rank}.pt") for rank in "01"])
    for one, again in zip(itertools.chain(*found[0]), itertools.chain(*found[1]), strict=True):
        assert torch.equal(one, again)
    (first, second, *gradients), (other, _, *others) = found[0]
    assert not torch.equal(first, other)
    assert not torch.equal(first, second)
    assert all(torch.equal(one, of_other) for one, of_other in zip(gradients, others, strict=True))


def test_stochastic_state_loads_into_rn_model_with_warning():
    state = nn.convert(network(), SR).model.state_dict()
    rn = nn.convert(network(), E5M2).model
    with pytest.warns(RuntimeWarning, match="stochastic") as warned:
        rn.load_state_dict(state)
    assert len({str(one.message) for one in warned}) == 1
    assert torch.equal(rn[2].weight, state["2.weight"])
    with pytest.raises(RuntimeError, match="rounding_state"):
        network().load_state_dict(state)


# Updates -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), lambda p: torch.optim.Adam(p, 0.1)])
@pytest.mark.parametrize("master", [True, False])
def test_weight_update_matches_encode(make, master):
    parameter, twin = (tnn.Parameter(normal(50)) for _ in range(2))
    optimizer, plain = make([parameter]), make([twin])
    update = nn.WeightUpdate(optimizer, "e5m2.sr3", master=master, seed=3)
    for step in range(4):
        # Before the first step and after each step.
        expected = rounded(twin.detach(), "e5m2.sr3", None, mix(mix(3, step), 0))
        assert same(parameter.detach(), expected)
        if not master:
            twin.data.copy_(expected)
        parameter.grad, twin.grad = (normal(50, seed=step) for _ in range(2))
        if step == 2:
            held = copy.deepcopy((optimizer.state_dict(), update.state_dict(), parameter.detach()))
            optimizer.step()
            after = parameter.detach().clone()
            other = tnn.Parameter(torch.zeros(50))
            optimizer = make([other])
            update = nn.WeightUpdate(optimizer, "e5m2.sr3", master=master)
            optimizer.load_state_dict(held[0])
            update.load_state_dict(held[1])
            other.data.copy_(held[2])
            other.grad = parameter.grad
            parameter = other
        optimizer.step()
        plain.step()
        if step == 2:
            assert same(parameter.detach(), after)


def test_weight_update_without_master_drops_small_steps():
    ends = []
    for master in (True, False):
        parameter = tnn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([parameter], 0.01)
        nn.WeightUpdate(optimizer, "e5m2.rn", master=master)
        for _ in range(50):
            parameter.grad = torch.ones(1)
            optimizer.step()
        ends.append(parameter.item())
    assert ends == [0.5, 1.0]


# Policies and errors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [*POLICIES, "fp32", "e5m2*e5m2+e6m5.rn, update=fxp4.4.sr3, master=true"])
def test_policy_parse_and_str_are_inverse(text):
    policy = nn.Policy.parse(text)
    assert str(policy) == text
    assert nn.Policy.parse(policy) is policy
    assert nn.Policy.parse(str(policy)) == policy
    hash(policy)


def test_policy_parts_have_defaults():
    assert nn.Policy.of(E5M2) == nn.Policy.parse(MacSpec.parse(E5M2)) == nn.Policy(E5M2, E5M2, E5M2)
    assert nn.Policy.parse(f"{E5M2}, forward=fp32").macs == (None, MacSpec.parse(E5M2), MacSpec.parse(E5M2))
    assert [str(nn.Cast.parse(text)) for text in ("rn", "e5m2", "fxp4.4", "fxp4.4.sr3.sat", "sr1")] == (
        ["rn", "e5m2.rn", "fxp4.4.rn", "fxp4.4.sr3.sat", "sr1"]
    )


def test_casts_accept_all_rounding_modes():
    assert [str(nn.Cast.parse(f"e5m2.{mode}")) for mode in MODES] == [f"e5m2.{mode}" for mode in MODES]


@pytest.mark.parametrize("source", ["lfsr24", "lfsr3", "plateau3"])
def test_cast_with_source_gives_bits_of_rounding_unit(source):
    cast = nn.Cast.parse(f"int4.sr3@{source}")
    assert str(cast) == f"int4.sr3@{source}"
    values = golden.decode(torch.randint(256, (3, 50)), "fxp4.4")
    state = states(9, cast.source, (), values.device)
    random = golden.random.words(source, values.numel(), int(state), bits=3).reshape(values.shape)
    wanted = golden.sru(golden.encode(values, "fxp4.4"), a="fxp4.4", o="int4", rounding="sr3", random=random)
    assert torch.equal(cast.codes(values, cast.fmt, 9), wanted)


def test_cast_rounds_to_input_format_of_rounding_unit_first():
    """Tiny negative values are zeros of the input, so that no random word rounds them down."""
    cast, direct = (nn.Cast.parse(text) for text in ("fxp8.8 > int8.sr3@plateau3", "int8.sr3@plateau3"))
    assert str(cast) == "fxp8.8>int8.sr3@plateau3"
    assert nn.Cast.parse(str(cast)) == cast
    values = torch.full((200,), -1e-6)
    assert cast.real(values, 3).count_nonzero() == 0
    assert direct.real(values, 3).count_nonzero() > 0
    x = torch.randn(500)
    inputs = golden.decode(golden.encode(x, "fxp8.8"), "fxp8.8")
    assert torch.equal(cast.codes(x, cast.fmt, 3), direct.codes(inputs, direct.fmt, 3))
    assert cast.target is None


@pytest.mark.parametrize("text", ["fxp8.8>rn", "fxp4.8>int8.rn", "int8>fxp4.4.rn", ">int8.rn"])
def test_cast_rejects_unsuitable_input_format(text):
    with pytest.raises(ValueError, match="invalid cast"):
        nn.Cast.parse(text)


@pytest.mark.parametrize("text", ["e5m2.rn@lfsr8", "e5m2.sr10@lfsr8", "e5m2.sr3@plateau8", "e5m2.sr3@xorshift8"])
def test_cast_rejects_unsuitable_source(text):
    with pytest.raises(ValueError, match=r"source|words"):
        nn.Cast.parse(text)


def test_policy_files_read_rules(tmp_path):
    path = tmp_path / "mixed.toml"
    path.write_text(f'mac = "{SR}"\nweights = "e5m2"\n[layers."0"]\nmac = "fp32"\n[layers."fc*"]\nbias = "sr3"\n')
    assert nn.rules(path) == {
        "0": nn.Policy.parse("fp32, weights=e5m2"),
        "fc*": nn.Policy.parse(f"{SR}, weights=e5m2, bias=sr3"),
        "*": nn.Policy.parse(f"{SR}, weights=e5m2"),
    }
    for text, sentence in (
        ("layers = 3", 'mixed.toml: layers must be tables, such as [layers."fc*"]'),
        ("max = 3", "mixed.toml: unknown key 'max' of a policy"),
        ("mac = 3", "mixed.toml: forward: expected the text of a unit"),
        ("mac =", "mixed.toml: invalid TOML: Invalid value"),
        ("mac = " + "[" * 5000, "mixed.toml: invalid TOML: lists and tables are nested more than 50 levels deep"),
        ("layers" + ".a" * 5000 + " = 1", "mixed.toml: invalid TOML: lists and tables are nested more than"),
    ):
        path.write_text(text)
        with pytest.raises((TypeError, ValueError)) as caught:
            nn.rules(path)
        assert str(caught.value).startswith(sentence)
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        nn.rules(str(tmp_path / "other.toml"))


def test_policy_files_change_policies_by_epoch(tmp_path):
    path = tmp_path / "changes.toml"
    path.write_text(
        f'mac = "{SR}"\n[layers.fc]\nbias = "sr3"\n[epochs.12]\nmac = "fp32"\n'
        f'[epochs.3]\nweights = "e5m2"\n[epochs.3.layers.fc]\nweights = "rn"\n[epochs.3.layers.new]\nbias = "ra"\n'
    )
    found = nn.PolicyFile.read(path)
    third = {"fc": f"{SR}, bias=sr3", "new": f"{SR}, weights=e5m2.rn, bias=ra", "*": f"{SR}, weights=e5m2.rn"}
    last = {name: text.replace(SR, "fp32") for name, text in third.items()}
    assert found.choice == {
        epoch: {name: nn.Policy.parse(text) for name, text in rules.items()}
        for epoch, rules in {0: {"fc": f"{SR}, bias=sr3", "*": SR}, 3: third, 12: last}.items()
    }
    assert str(found).startswith(f"fc: {SR}, bias=sr3; *: {SR}; after epoch 3: fc: ")
    with pytest.raises(ValueError, match="Schedule"):
        nn.rules(path)


def test_policy_files_change_policies_at_plateaus(tmp_path):
    path = tmp_path / "changes.toml"
    path.write_text(f'mac = "fp32"\npatience = 2\n[[plateaus]]\nmac = "{E5M2}"\n[[plateaus]]\nweights = "sr3"\n')
    schedule = nn.Schedule.of_file(golden.emulate("fp32"), path)
    found = [schedule.policy["*"]]
    for _ in range(5):
        schedule.step(1.0)
        found.append(schedule.policy["*"])
    assert list(map(str, found)) == ["fp32"] * 3 + [E5M2] * 2 + [f"{E5M2}, weights=sr3"]


@pytest.mark.parametrize(
    ("text", "keyword"),
    [
        ("[epochs.first]", "epochs"),
        ("[epochs.0]", "epochs"),
        ("epochs = 3", "epochs"),
        ("[plateaus]", "plateaus"),
        ("[epochs.3]\n[[plateaus]]", "not both"),
        ("patience = 3", "patience"),
        ("[epochs.3]\nno = 1", "no"),
        ("[epochs.3.layers]\nfc = 1", "layers"),
    ],
)
def test_policy_files_reject_bad_changes(tmp_path, text, keyword):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"bad.toml.*{keyword}"):
        nn.PolicyFile.read(path)


def differentiated_twice():
    layer = nn.Linear(2, 2, policy=E5M2)
    x = torch.ones(1, 2, requires_grad=True)
    torch.autograd.grad(torch.autograd.grad(layer(x).sum(), x, create_graph=True)[0].sum(), x)


@pytest.mark.parametrize(
    ("make", "error", "keyword"),
    [
        (
            differentiated_twice,
            RuntimeError,
            "multiply-accumulate",
        ),
        (
            lambda: nn.Linear(2, 2, policy="e5m2*e5m2+e11m30.rn")(torch.ones(1, 2)),
            ValueError,
            "number",
        ),
        (
            lambda: nn.Linear(2, 2, policy="posit8*posit8+posit64.rn")(torch.ones(1, 2)),
            ValueError,
            "number",
        ),
        (
            lambda: nn.Linear(2, 2, policy="e5m2*ufxp0.8+e6m5.rn")(torch.ones(1, 2)),
            ValueError,
            "ufxp0.8",
        ),
        (lambda: nn.Linear(2, 2, policy=3), TypeError, "policy"),
        (lambda: nn.Linear(2, 2, policy=E5M2)(3), TypeError, "numbers"),
        (lambda: nn.Linear(2, 2, policy=SR)(torch.ones(1, 2).numpy()), TypeError, "ndarray"),
        (
            lambda: nn.Linear(2, 2, policy=E5M2)(torch.ones(1, 2, dtype=torch.int32)),
            TypeError,
            "input",
        ),
        (
            lambda: nn.Linear(2, 2, policy=E5M2)(torch.ones(1, 3)),
            ValueError,
            "input",
        ),
        (
            lambda: nn.Conv2d(2, 2, 3, policy=E5M2)(torch.ones(1, 3, 4, 4)),
            ValueError,
            "input",
        ),
        (
            lambda: nn.Conv2d(2, 2, 3, policy=E5M2)(torch.ones(1, 2, 4, 2)),
            ValueError,
            "padding",
        ),
        (
            lambda: nn.Bmm(policy=E5M2)(torch.ones(2, 3, 4), torch.ones(2, 3, 4)),
            ValueError,
            "shape",
        ),
        (
            lambda: nn.Bmm(policy=E5M2)(torch.ones(2, 3, 4), torch.ones(3, 4, 4)),
            ValueError,
            "broadcast",
        ),
        (
            lambda: nn.Bmm(policy=E5M2)(torch.ones(3, 4), torch.ones(4, 4).double()),
            TypeError,
            "torch.float32",
        ),
        (
            lambda: nn.MultiheadAttention(4, 2, policy=E5M2)(
                *[torch.ones(3, 1, 4)] * 3, key_padding_mask=torch.ones(3, 1, dtype=torch.bool)
            ),
            ValueError,
            "key_padding_mask",
        ),
        (
            lambda: nn.MultiheadAttention(4, 2, policy=E5M2)(*[torch.ones(3, 1, 4)] * 3, attn_mask=torch.ones(1, 3, 3)),
            ValueError,
            "attn_mask",
        ),
        (
            lambda: nn.MultiheadAttention(4, 2, policy=E5M2)(*[torch.ones(3, 1, 4)] * 3, is_causal=True),
            ValueError,
            "is_causal",
        ),
        (lambda: nn.Linear(2, 2, policy=SR, seed=1.0), TypeError, "seed"),
        (lambda: nn.Linear(2, 2, policy=SR, seed=-1), ValueError, "seed"),
        (lambda: nn.Quantize("rn"), ValueError, "forward"),
        (lambda: nn.Cast.parse("e5m2.exact"), ValueError, "e5m2.exact"),
        (lambda: nn.Cast.parse("e1m2.rn"), ValueError, "e1m2.rn"),
        (lambda: nn.Cast.parse(3), TypeError, "e5m2.rn"),
        (lambda: nn.Cast("e5m2"), TypeError, "Format"),
        (lambda: nn.Policy.parse("e5m2"), ValueError, "forward"),
        (lambda: nn.Policy.parse(f"{E5M2}, {E5M2}"), ValueError, "policy"),
        (lambda: nn.Policy.parse("sparsemac e4m3fn*e4m3fn+fp32"), ValueError, "no sparsemac"),
        (lambda: nn.Policy.parse(f"{E5M2}, mode=3"), ValueError, "mode"),
        (
            lambda: nn.Policy.of(E5M2, update="sr3"),
            ValueError,
            "update",
        ),
        (lambda: nn.Policy.of(E5M2, master=True), ValueError, "update"),
        (lambda: nn.Policy.of(E5M2, master="maybe"), TypeError, "master"),
        (lambda: nn.convert(3, E5M2), TypeError, "Module"),
        (lambda: nn.convert(network(), {3: E5M2}), TypeError, "pattern"),
        (
            lambda: nn.convert(network(), {"4": E5M2}),
            ValueError,
            "4",
        ),
        (
            lambda: nn.convert(network(), {tnn.LSTM: E5M2}),
            ValueError,
            "matches",
        ),
        (
            lambda: nn.convert(tnn.MultiheadAttention(4, 2), {"out_proj": E5M2}),
            ValueError,
            "out_proj",
        ),
        (lambda: nn.convert(tnn.ReLU(), E5M2), ValueError, "ReLU"),
        (lambda: nn.convert(network(), E5M2, evaluation="x"), ValueError, "evaluation"),
        (lambda: nn.WeightUpdate(3, "e5m2"), TypeError, "optimizer"),
        (
            lambda: nn.WeightUpdate(
                torch.optim.SGD(tnn.Linear(2, 2).parameters()), "e5m2", parameters=tnn.Linear(2, 2).parameters()
            ),
            ValueError,
            "parameter",
        ),
        (lambda: nn.LossScaler("256"), TypeError, "number"),
        (lambda: nn.LossScaler(0), ValueError, "finite"),
        (lambda: nn.LossScaler(interval=0), ValueError, "interval"),
        (lambda: nn.LossScaler(adaptive="no"), TypeError, "adaptive"),
    ],
)
def test_nn_rejects_bad_arguments(make, error, keyword):
    with pytest.raises(error) as caught:
        make()
    assert keyword in str(caught.value)


@pytest.mark.parametrize(
    ("spaced", "text"),
    [
        ("e5m2 * e5m2 + e6m5.sr10 , weights = e5m2 . sr3 . sat", "e5m2*e5m2+e6m5.sr10, weights=e5m2.sr3.sat"),
        ("e5m2 *e5m2 = e6m5.rn + e6m5.rn", "e5m2*e5m2=e6m5.rn+e6m5.rn"),
        ("forward = e5m2* e5m2+e6m5.rn", "forward=e5m2*e5m2+e6m5.rn, input_gradient=fp32, weight_gradient=fp32"),
    ],
)
def test_policy_ignores_blanks(spaced, text):
    assert str(nn.Policy.parse(spaced)) == text


@pytest.mark.parametrize("layer", [tnn.Conv1d(2, 2, 3), tnn.Tanh(), tnn.Sequential(tnn.LSTM(2, 2))])
def test_convert_rejects_model_without_layer_to_swap(layer):
    with pytest.raises(ValueError, match=f"{type(layer).__name__} has no layer that can be swapped: .*Linear"):
        nn.convert(layer, "e5m2*e5m2+e6m5.rn")


@pytest.mark.parametrize("policy", ["e5m2*e5m2+e6m5.rn", "e5m2*e5m2+e6m5.sr10@lfsr16, weights=e5m2.sr3"])
def test_training_step_skips_range_checks_of_own_codes(policy, monkeypatch):
    """Codes from layers are in range, so a step does not check their minimum and maximum."""
    model = nn.convert(tnn.Sequential(tnn.Conv2d(1, 4, 3), tnn.Flatten(), tnn.Linear(144, 3)), policy).model
    monkeypatch.setattr(torch, "aminmax", lambda *given: pytest.fail("codes were searched"))
    model(torch.randn(2, 1, 8, 8)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_encode_of_permuted_images_matches_copy():
    x = torch.randn(3, 4, 5, 6)
    for turned in (x.permute(0, 2, 3, 1), x[:, ::2], x.expand(2, 3, 4, 5, 6), x.mT):
        assert torch.equal(golden.encode(turned, "e5m2"), golden.encode(turned.clone().contiguous(), "e5m2"))
        codes = golden.encode(turned, "posit16")
        assert torch.equal(golden.decode(codes, "posit16"), golden.decode(codes.contiguous(), "posit16"))


@pytest.mark.filterwarnings("ignore:halfulp. all numbers")
def test_counts_have_products_of_zero_and_nan():
    layer = torch.nn.Linear(4, 3, bias=False)
    torch.nn.init.constant_(layer.weight, float("nan"))
    model = nn.convert(torch.nn.Sequential(layer), "bf16*bf16+fxp8.8.rn").model
    with nn.Counts() as counts:
        model(torch.zeros(2, 4))
    assert counts.rows["0", "forward", "result"]["nan_lost"] == 6
