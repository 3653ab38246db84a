"""Devices that compute the products of a policy."""

import pytest
import torch

from halfulp import golden
from halfulp.golden import nn
from halfulp.golden.nn import product

MAC = "e4m3fn*e4m3fn+fp16.rn"


def test_registered_device_computes_products():
    calls = []

    def device(a, b, mac, start, key):
        calls.append(tuple(a.shape))
        return golden.gemm(a, b, mac, start=start)

    nn.register_device("counted", device)
    try:
        x, w = torch.randn(2, 3), torch.randn(3, 4)
        layer = nn.Linear(3, 4, policy=f"{MAC}, device=counted")
        with golden.emulate(f"{MAC}, device=counted"):
            emulated = x @ w
        with golden.emulate(MAC):
            assert torch.equal(emulated, x @ w)
        layer(x)
        assert calls == [(2, 3), (2, 3)]
    finally:
        del product.DEVICES["counted"]
    with pytest.raises(ValueError, match="unknown device 'counted': expected rtl, "):
        nn.Policy.parse(f"{MAC}, device=counted")


def test_register_device_rejects_invalid_name():
    with pytest.raises(ValueError, match="identifier, not 'a b'"):
        nn.register_device("a b", golden.gemm)
