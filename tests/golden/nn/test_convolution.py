"""Convolutions in described arithmetic against sums by hand."""

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn as tnn

from halfulp.golden import nn
from tests.layers_by_hand import E5M2, POLICIES, SEED, Expected, multiplied, normal, same

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


@pytest.mark.sampled(6)
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
