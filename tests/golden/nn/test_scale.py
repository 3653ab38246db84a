"""Loss scaling: results and errors of torch.amp.GradScaler, with several optimisers and sparse gradients."""

import math

import pytest
import torch
from torch import nn as tnn

from halfulp.golden import nn


def _ours(start, interval):
    return nn.LossScaler(start, interval=interval)


def _theirs(start, interval):
    return torch.amp.GradScaler("cpu", start, 2.0, 0.5, interval)


def _iterations(scaler, gradients, clip):
    """Train two parameters with an optimiser each; return parameters, gradients and factors after each iteration."""
    parameters = [tnn.Parameter(torch.ones(3)) for _ in range(2)]
    optimizers = [torch.optim.SGD([one], 0.5, momentum=0.9) for one in parameters]
    found = []
    for pair in gradients:
        losses = [(one * torch.tensor(gradient)).sum() for one, gradient in zip(parameters, pair, strict=True)]
        for loss in scaler.scale(losses):
            loss.backward()
        if clip:
            scaler.unscale_(optimizers[0])
            tnn.utils.clip_grad_norm_(parameters[:1], 1.0)
        stepped = [scaler.step(one) for one in optimizers]
        scaler.update()
        found += [stepped, *(one.detach().tolist() for one in parameters), scaler.get_scale()]
        found += [one.grad.tolist() for one in parameters]
        for one in optimizers:
            one.zero_grad()
    return repr(found)


GRADIENTS = [
    ([1.0, 2.0, 3.0], [0.25, 0.25, 0.25]),
    ([math.inf, 2.0, 3.0], [0.25, 0.25, 0.25]),
    ([1.0, 2.0, 3.0], [0.25, math.nan, 0.25]),
    *[([1.0, 2.0, 3.0], [0.25, 0.5, 0.25])] * 5,
    ([1.0, -math.inf, 3.0], [math.nan, 0.25, 0.25]),
]


@pytest.mark.parametrize("clip", [False, True])
def test_loss_scaler_equals_grad_scaler_with_two_optimizers(clip):
    wanted = _iterations(_theirs(256.0, 3), GRADIENTS, clip)
    assert _iterations(_ours(256.0, 3), GRADIENTS, clip) == wanted


def test_all_optimizers_of_an_iteration_divide_by_one_factor():
    for before in (math.inf, 1.0):
        scaler = nn.LossScaler(8.0, interval=1)
        parameters = [tnn.Parameter(torch.ones(1)) for _ in range(2)]
        for parameter, gradient in zip(parameters, (before, 0.25), strict=True):
            parameter.grad = torch.tensor([gradient * 8.0])
            scaler.step(torch.optim.SGD([parameter], 1.0))
        assert parameters[1].grad.item() == 0.25
        assert parameters[1].item() == 0.75
        scaler.update()
        assert scaler.get_scale() == (4.0 if before == math.inf else 16.0)


@pytest.mark.parametrize("make", [_ours, _theirs])
def test_second_division_and_second_step_are_refused(make):
    parameter = tnn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], 1.0)
    scaler = make(8.0, 2)
    scaler.scale(parameter.sum()).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match=r"update\(\)"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    for again in (scaler.step, scaler.unscale_):
        with pytest.raises(RuntimeError, match=r"update\(\)|after step\(\)"):
            again(optimizer)
    assert (parameter.item(), parameter.grad.item()) == (0.0, 1.0)
    scaler.update()
    scaler.scale(parameter.sum()).backward()
    with pytest.raises(RuntimeError, match="losure"):
        scaler.step(optimizer, closure=lambda: None)


def test_update_without_a_step_is_refused():
    scaler = nn.LossScaler()
    with pytest.raises(RuntimeError, match="none was called"):
        scaler.update()
    scaler.update(32.0)
    assert scaler.get_scale() == scaler.factor == 32
    for bad, error in ((math.inf, ValueError), (0.0, ValueError), ("8", TypeError)):
        with pytest.raises(error, match="new_scale"):
            scaler.update(bad)
    with pytest.raises(TypeError, match="iterable of tensors"):
        scaler.scale(1.0)


def _sparse(scaler, weights, dtype):
    """Step an embedding, in which two tokens are equal, with the gradients of two losses."""
    layer = tnn.Embedding(4, 2, sparse=True, dtype=dtype)
    with torch.no_grad():
        layer.weight.fill_(1)
    optimizer = torch.optim.SGD(layer.parameters(), 1.0)
    tokens = torch.tensor([1, 3, 1])
    scaler.scale((layer(tokens) * torch.tensor(weights, dtype=dtype)[:, None]).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    return layer.weight.tolist(), layer.weight.grad.to_dense().tolist(), scaler.get_scale()


@pytest.mark.parametrize("weights", [(0.5, 2.0, 0.25), (0.5, math.inf, 0.25)])
def test_sparse_gradients_equal_those_of_grad_scaler(weights):
    wanted = _sparse(_theirs(256.0, 2), weights, torch.float32)
    assert repr(_sparse(_ours(256.0, 2), weights, torch.float32)) == repr(wanted)


def test_sum_of_sparse_gradients_that_overflows_skips_the_step():
    # Each of both is finite in float16, and their sum is not.
    weights, gradients, factor = _sparse(_ours(256.0, 2), (200.0, 1.0, 200.0), torch.float16)
    assert weights == [[1.0, 1.0]] * 4
    assert gradients[1] == [math.inf, math.inf]
    assert factor == 128
    large = torch.finfo(torch.float32).max / 512
    assert _sparse(_ours(256.0, 2), (large * 1.5, 1.0, large * 1.5), torch.float32)[2] == 128


def test_loss_scaler_halves_and_grows():
    parameter = tnn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], 1.0)
    scaler = nn.LossScaler(interval=2)
    assert scaler.scale(torch.tensor(2.0)) == 512

    def step(*gradient):
        parameter.grad = torch.tensor(gradient)
        before = scaler.skipped
        scaler.step(optimizer)
        scaler.update()
        return scaler.skipped == before, scaler.factor

    assert step(256.0, 0.0) == (True, 256)
    assert parameter.tolist() == [0, 1]
    assert step(math.nan, 0.0) == (False, 128)
    assert step(1.0, math.inf) == (False, 64)
    assert parameter.tolist() == [0, 1]
    assert [step(0.0, 0.0), step(0.0, 0.0)] == [(True, 64), (True, 128)]
    other = nn.LossScaler(interval=2)
    other.load_state_dict(scaler.state_dict())
    assert (other.state_dict(), scaler.skipped) == (scaler.state_dict(), 2)
    scaler = nn.LossScaler(8, adaptive=False)
    assert step(math.inf, 8.0) == (True, 8)
    assert parameter.tolist() == [-math.inf, 0]


@pytest.mark.parametrize(
    ("state", "keyword"),
    [
        ({}, "factor, good, skipped"),
        ({"scale": 2.0, "_growth_tracker": 0}, "none of a LossScaler"),
        ({"factor": math.nan, "good": 0, "skipped": 0}, "factor"),
        ({"factor": 1e39, "good": 0, "skipped": 0}, "finite in float32"),
        ({"factor": 2.0, "good": -1, "skipped": 0}, "good"),
    ],
)
def test_state_of_another_scaler_is_refused(state, keyword):
    scaler = nn.LossScaler(8)
    with pytest.raises(ValueError, match=keyword):
        scaler.load_state_dict(state)
    assert scaler.factor == 8
