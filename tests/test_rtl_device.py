"""Layers whose products are made by Verilated hardware."""

import pytest
import torch

from halfulp.golden import nn
from halfulp.golden.nn import product
from halfulp.sim import rtl

POLICY = "e5m2*e5m2+e6m5.rn, bias=e5m2.rn"


def twins(make):
    """A layer, and the same one on hardware."""
    layers = [make(policy) for policy in (POLICY, f"{POLICY}, device=rtl")]
    layers[1].load_state_dict(layers[0].state_dict())
    return layers


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda policy: nn.Linear(7, 5, policy=policy, seed=3), (2, 3, 7)),
        (lambda policy: nn.Conv2d(4, 6, 3, padding=1, groups=2, policy=policy, seed=3), (1, 4, 5, 4)),
    ],
)
def test_a_layer_on_hardware_gives_the_same_bits(make, shape, monkeypatch):
    """Forward and backward, bias included; and it is hardware that made them."""
    made = []
    monkeypatch.setitem(product._DEVICES, "rtl", lambda *given: made.append(rtl.product(*given)) or made[-1])
    torch.manual_seed(6)
    found = []
    x = torch.randn(shape)
    for layer in twins(make):
        own = x.clone().requires_grad_()
        y = layer(own)
        y.backward(torch.linspace(-1, 1, y.numel()).reshape(y.shape))
        found.append([y.detach(), own.grad, *(parameter.grad for parameter in layer.parameters())])
    assert len(made) == 4
    for golden, hardware in zip(*found, strict=True):
        assert torch.equal(golden, hardware)
        assert golden.count_nonzero() > golden.numel() / 2


def test_products_of_nothing_are_what_they_start_from():
    layers = twins(lambda policy: nn.Linear(0, 3, policy=policy))
    assert torch.equal(*(layer(torch.zeros(2, 0)) for layer in layers))
    layers = twins(lambda policy: nn.Linear(3, 2, policy=policy))
    assert torch.equal(*(layer(torch.zeros(0, 3)) for layer in layers))


def test_what_is_refused(monkeypatch):
    x = torch.ones(1, 3)
    with pytest.raises(ValueError, match="unknown device 'fpga'; products are made on rtl, or by golden"):
        nn.Policy.parse(f"{POLICY}, device=fpga")
    noisy = nn.Linear(3, 2, policy="e5m2*e5m2+e6m5.sr10, device=rtl")
    with pytest.raises(ValueError, match=r"e5m2\*e5m2\+e6m5.sr10 rounds at random, and multiply-acc"):
        noisy(x)
    torch.manual_seed(1)
    fine = nn.Linear(3, 2, policy="e5m2*e5m2+e6m5.rn, device=rtl")
    with pytest.raises(ValueError, match=r"sums on device rtl start from products with 1, and not all biases are such"):
        fine(x)
    monkeypatch.delitem(product._DEVICES, "rtl")
    with pytest.raises(ValueError, match=r"there is no device rtl yet; import halfulp.sim.rtl first"):
        fine(x)


def test_a_policy_says_its_device():
    policy = nn.Policy.parse(f"{POLICY}, device=rtl")
    assert policy.device == "rtl"
    assert nn.Policy.parse(str(policy)) == policy
    assert str(policy) == f"{POLICY}, device=rtl"
