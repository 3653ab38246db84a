"""Weight updates with a master copy: weights that other code writes, added parameters, checkpoints."""

import copy
import io

import pytest
import torch
from torch import nn as tnn

from halfulp.golden import nn

STEP = 2.0**-6
"""Step below half of the last place of 1 in e5m2, which only a master copy adds up."""


def _step(optimizer, gradient=1.0):
    for group in optimizer.param_groups:
        for one in group["params"]:
            one.grad = torch.full_like(one, gradient)
    optimizer.step()


def _trained(*values, steps=0, **others):
    parameter = tnn.Parameter(torch.tensor(values))
    optimizer = torch.optim.SGD([parameter], STEP)
    update = nn.WeightUpdate(optimizer, "e5m2.rn", master=True, **others)
    for _ in range(steps):
        _step(optimizer)
    return parameter, optimizer, update


def _masters(update):
    return [one.tolist() for one in update.state_dict()["masters"]]


def _load(parameter, value):
    module = tnn.Module()
    module.w = parameter
    module.load_state_dict({"w": torch.full_like(parameter, value)})


def _average(parameter, value):
    with torch.no_grad():
        parameter.lerp_(torch.full_like(parameter, value), 1.0)


WRITES = {
    "load_state_dict": _load,
    "average": _average,
    "data": lambda parameter, value: parameter.data.fill_(value),
    "other storage": lambda parameter, value: setattr(parameter, "data", torch.full_like(parameter, value)),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("value", [3.0, -0.3])
def test_written_weights_replace_the_master(write, value):
    parameter, optimizer, update = _trained(1.0, 2.0, steps=2)
    WRITES[write](parameter, value)
    _step(optimizer)
    wanted = torch.full((2,), value) - STEP
    assert _masters(update) == [wanted.tolist()]
    assert parameter.tolist() == nn.Cast.parse("e5m2.rn").real(wanted, 0).tolist()


def test_clipping_keeps_the_master_of_other_elements():
    parameter, optimizer, update = _trained(1.0, 8.0, steps=3)
    assert parameter.tolist() == [1.0, 8.0]
    with torch.no_grad():
        parameter.clamp_(max=4)
    _step(optimizer)
    assert _masters(update) == [[1 - 4 * STEP, 4 - STEP]]


def test_written_sign_of_zero_counts():
    parameter, optimizer, update = _trained(2.0**-20, 1.0)
    assert parameter[0] == 0
    parameter.data[0] = -0.0
    _step(optimizer, 0.0)
    assert str(_masters(update)[0][0]) == "-0.0"


def test_weights_that_nobody_writes_keep_the_master():
    parameter, optimizer, update = _trained(1.0, -3.0, steps=40)
    assert _masters(update) == [[1 - 40 * STEP, -3 - 40 * STEP]]
    _load(parameter, 0.0)
    parameter.data.copy_(torch.tensor([0.375, -3.5]))
    assert parameter.tolist() == [0.375, -3.5]
    _step(optimizer)
    # These are the roundings that the update had written.
    assert _masters(update) == [[1 - 41 * STEP, -3 - 41 * STEP]]


@pytest.mark.parametrize("master", [True, False])
def test_added_parameters_are_rounded(master):
    first, second = tnn.Parameter(torch.tensor([1.1])), tnn.Parameter(torch.tensor([1.1]))
    optimizer = torch.optim.SGD([first], STEP)
    nn.WeightUpdate(optimizer, "e5m2.rn", master=master)
    optimizer.add_param_group({"params": [second], "lr": 0.25})
    assert second.item() == first.item() == 1
    _step(optimizer)
    # 1.1 - 0.25 and 1 - 0.25 in e5m2.
    assert (first.item(), second.item()) == (1.0, 0.875 if master else 0.75)


def test_added_parameters_have_random_words_of_their_own():
    ends = []
    for together in (True, False):
        first, second = (tnn.Parameter(torch.linspace(0, 1, 200)) for _ in range(2))
        optimizer = torch.optim.SGD([first, second] if together else [first], 0.0)
        nn.WeightUpdate(optimizer, "e5m2.sr3", seed=5)
        if not together:
            optimizer.add_param_group({"params": [second]})
        assert not torch.equal(first, second)
        ends.append(torch.stack([first, second]).detach())
    assert torch.equal(*ends)


def test_update_of_chosen_parameters_takes_no_others():
    first, second = tnn.Parameter(torch.tensor([1.1])), tnn.Parameter(torch.tensor([1.1]))
    optimizer = torch.optim.SGD([first], STEP)
    nn.WeightUpdate(optimizer, "e5m2.rn", parameters=[first])
    optimizer.add_param_group({"params": [second]})
    assert (first.item(), second.item()) == (1, torch.tensor(1.1).item())


@pytest.mark.parametrize("cast", ["e5m2.rn", "e5m2.sr3"])
@pytest.mark.parametrize("model_first", [True, False])
def test_state_of_optimizer_has_the_masters(cast, model_first):
    def made():
        model = tnn.Linear(3, 2)
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        pairs = ((model.weight, 7), (model.bias, 9))
        updates = [nn.WeightUpdate(optimizer, cast, master=True, parameters=[one], seed=seed) for one, seed in pairs]
        return model, optimizer, updates

    def masters(updates):
        return [_masters(one) for one in updates]

    torch.manual_seed(0)
    model, optimizer, updates = made()
    for _ in range(3):
        _step(optimizer)
    file = io.BytesIO()
    torch.save([model.state_dict(), optimizer.state_dict()], file)
    file.seek(0)
    states = torch.load(file, weights_only=True)
    other, second, others = made()
    for part, state in list(zip((other, second), states, strict=True))[:: 1 if model_first else -1]:
        part.load_state_dict(copy.deepcopy(state))
    assert masters(others) == masters(updates)
    for one in (optimizer, second):
        _step(one)
    assert masters(others) == masters(updates)
    assert [one.tolist() for one in other.parameters()] == [one.tolist() for one in model.parameters()]


def test_optimizer_without_update_loads_the_state():
    parameter, optimizer, _ = _trained(1.0, steps=1)
    plain = torch.optim.SGD([parameter], 1.0)
    plain.load_state_dict(optimizer.state_dict())
    assert plain.param_groups[0]["lr"] == STEP
    _, other, update = _trained(1.0)
    other.load_state_dict(plain.state_dict())
    assert _masters(update) == [[1.0]]


def test_update_after_the_state_of_the_optimizer_warns():
    parameter = tnn.Parameter(torch.ones(1))
    optimizer = torch.optim.Adam([parameter])
    parameter.grad = torch.ones(1)
    optimizer.step()
    with pytest.warns(RuntimeWarning, match=r"before optimizer\.load_state_dict"):
        nn.WeightUpdate(optimizer, "e5m2.rn", master=True)


def test_step_after_a_failed_step_continues():
    parameter, optimizer, update = _trained(1.0, steps=3)
    with pytest.raises(RuntimeError, match="stop"):
        optimizer.step(_failing)
    _step(optimizer)
    assert _masters(update) == [[1 - 4 * STEP]]
    assert parameter.item() == 1


def _failing():
    raise RuntimeError("stop")
