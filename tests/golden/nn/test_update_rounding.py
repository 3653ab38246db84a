"""Rounding of parameters after steps of optimisers, with and without a master copy."""

import copy

import pytest
import torch
from torch import nn as tnn

from halfulp.golden import nn
from halfulp.golden.nn.draw import mix
from tests.layers_by_hand import normal, rounded, same


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
