"""Layers in described arithmetic: forward and backward bits against products written out by hand."""

import math

import pytest
import torch
from torch import nn as tnn

from halfulp import golden
from halfulp.golden import nn
from halfulp.golden.nn.draw import mix
from tests.layers_by_hand import E5M2, MIXED, POLICIES, ROLES, SEED, SR, Expected, normal, rounded, same


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


@pytest.mark.sampled(2)
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


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["e5m2*e5m2+e6m5.rn", "e5m2*e5m2+e6m5.sr10@lfsr16, weights=e5m2.sr3"])
def test_training_step_skips_range_checks_of_own_codes(policy, monkeypatch):
    """Codes from layers are in range, so a step does not check their minimum and maximum."""
    model = nn.convert(tnn.Sequential(tnn.Conv2d(1, 4, 3), tnn.Flatten(), tnn.Linear(144, 3)), policy).model
    # Small products run in torch until their kernel is in the cache, and check the states of sources there.
    monkeypatch.setenv("HALFULP_KERNEL", "native")
    monkeypatch.setattr(torch, "aminmax", lambda *given: pytest.fail("codes were searched"))
    model(torch.randn(2, 1, 8, 8)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_encode_of_permuted_images_matches_copy():
    x = torch.randn(3, 4, 5, 6)
    for turned in (x.permute(0, 2, 3, 1), x[:, ::2], x.expand(2, 3, 4, 5, 6), x.mT):
        assert torch.equal(golden.encode(turned, "e5m2"), golden.encode(turned.clone().contiguous(), "e5m2"))
        codes = golden.encode(turned, "posit16")
        assert torch.equal(golden.decode(codes, "posit16"), golden.decode(codes.contiguous(), "posit16"))
