"""Counts of results by layer and phase, and warnings of tensors that become zero."""

import math
import warnings

import pytest
import torch
from torch import nn as tnn

from halfulp.golden import nn
from halfulp.golden.nn import operands
from tests.layers_by_hand import E5M2, normal


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


@pytest.mark.filterwarnings("ignore:halfulp. all numbers")
def test_counts_have_products_of_zero_and_nan():
    layer = torch.nn.Linear(4, 3, bias=False)
    torch.nn.init.constant_(layer.weight, float("nan"))
    model = nn.convert(torch.nn.Sequential(layer), "bf16*bf16+fxp8.8.rn").model
    with nn.Counts() as counts:
        model(torch.zeros(2, 4))
    assert counts.rows["0", "forward", "result"]["nan_lost"] == 6
