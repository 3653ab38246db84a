"""Schedules: policies that change by epoch, by plateaus of the loss and by functions, and their checkpoints."""

import contextlib
import math
import warnings

import pytest
import torch
from torch import nn as tnn

from halfulp import golden
from halfulp.golden import nn

COARSE, FINE, NOISY = "e2m1fn*e2m1fn+fp16.rn", "bf16*bf16+fp32.rn", "e5m2*e5m2+e6m5.sr4"


def results(target, layer, x):
    if isinstance(target, tnn.Module):
        return target(x)
    with target:
        return layer(x)


@pytest.mark.parametrize("emulated", [False, True])
def test_schedule_changes_policy_by_epoch(emulated):
    torch.manual_seed(0)
    layer, x = tnn.Linear(8, 4), torch.randn(3, 8)
    wanted = {policy: nn.convert(layer, policy).model(x).detach() for policy in (COARSE, FINE)}
    target = golden.emulate("fp32") if emulated else tnn.Sequential(layer)
    schedule = nn.Schedule(target, {0: COARSE, 2: FINE, 3: "fp32"})
    plain = torch.nn.functional.linear(x, layer.weight, layer.bias)
    for expected in (wanted[COARSE], wanted[COARSE], wanted[FINE], plain, plain):
        assert torch.equal(results(target, layer, x), expected)
        schedule.step()
    assert schedule.epoch == 5


def test_schedule_moves_on_at_plateaus():
    run = golden.emulate("fp32")
    schedule = nn.Schedule(run, [COARSE, FINE, "fp32"], patience=2, threshold=0.1)

    def after(*losses):
        for loss in losses:
            schedule.step(loss)
        return schedule.policy

    assert after(1.0, 0.95) == COARSE
    # Less than a tenth below the smallest loss.
    assert after(0.91) == FINE
    assert run.policies["*"] == nn.Policy.parse(FINE)
    assert after(0.5, math.nan, 0.4, math.inf) == FINE
    assert after(0.39) == "fp32"
    assert after(0.39, 0.39, 0.39) == "fp32"
    with pytest.raises(TypeError, match="loss"):
        schedule.step()


def test_schedule_by_function_has_epoch_and_loss():
    seen = []

    def choose(epoch, loss):
        seen.append((epoch, loss))
        return FINE if loss is not None and loss < 1 else COARSE

    run = golden.emulate("fp32")
    schedule = nn.Schedule(run, choose)
    for loss in (2.0, 0.5):
        schedule.step(loss)
    assert seen == [(0, None), (1, 2.0), (2, 0.5)]
    assert run.policies["*"] == nn.Policy.parse(FINE)


def test_schedule_by_function_must_not_change_update():
    choices = {0: FINE, 1: f"{FINE}, update=bf16.rn"}
    schedule = nn.Schedule(golden.emulate("fp32"), lambda epoch, loss: choices[epoch])
    with pytest.raises(ValueError, match="update"):
        schedule.step()


def test_schedule_of_patterns_changes_named_layers():
    model = tnn.Sequential(tnn.Linear(4, 4), tnn.Linear(4, 2))
    schedule = nn.Schedule(model, {0: {"0": COARSE}, 1: {"0": FINE, "*": COARSE}})
    assert str(model[0].policy) == COARSE
    assert not hasattr(model[1], "policy")
    schedule.step()
    assert [str(one.policy) for one in model] == [FINE, COARSE]


@pytest.mark.parametrize("policies", [{0: COARSE, 2: NOISY, 4: FINE}, [COARSE, NOISY, FINE]])
def test_resumed_schedule_gives_same_bits(policies):
    def start():
        torch.manual_seed(1)
        model = tnn.Sequential(tnn.Linear(8, 4))
        return model, nn.Schedule(model, policies, patience=2, seed=7)

    def epochs(model, schedule, count):
        found = []
        for _ in range(count):
            y = model(torch.ones(2, 8))
            found.append(y.detach())
            schedule.step(1.0)
        return found

    model, schedule = start()
    # Stopped between the first epoch without a smaller loss and the one that ends the plateau.
    first = epochs(model, schedule, 4)
    state, weights = schedule.state_dict(), {name: one.clone() for name, one in model.state_dict().items()}
    rest = epochs(model, schedule, 3)
    assert schedule.policy == FINE
    resumed, again = start()
    again.load_state_dict(state)
    resumed.load_state_dict(weights)
    found = epochs(resumed, again, 3)
    assert all(torch.equal(a, b) for a, b in zip(found, rest, strict=True))
    assert again.state_dict() == schedule.state_dict()
    assert len({str(one.tolist()) for one in first + rest}) > 2


def test_changed_models_have_new_random_words():
    model = tnn.Sequential(tnn.Linear(64, 8))
    schedule = nn.Schedule(model, {0: NOISY, 1: FINE, 2: NOISY})
    x, found = torch.randn(4, 64), []
    for _ in range(3):
        found.append(model(x).detach())
        schedule.step()
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize(
    ("make", "error", "keyword"),
    [
        (lambda target: nn.Schedule(3, {0: FINE}), TypeError, "target"),
        (lambda target: nn.Schedule(golden.emulate.backend(FINE), {0: FINE}), TypeError, "Backend"),
        (lambda target: nn.Schedule(target, {1: FINE}), ValueError, "epoch 0"),
        (lambda target: nn.Schedule(target, {0: FINE, "1": FINE}), TypeError, "epoch"),
        (lambda target: nn.Schedule(target, {0: FINE, -1: FINE}), ValueError, "epoch"),
        (lambda target: nn.Schedule(target, FINE), TypeError, "sequence"),
        (lambda target: nn.Schedule(target, []), ValueError, "policy"),
        (lambda target: nn.Schedule(target, [FINE], patience=0), ValueError, "patience"),
        (lambda target: nn.Schedule(target, [FINE], threshold=1), ValueError, "threshold"),
        (lambda target: nn.Schedule(target, {0: FINE, 9: "no policy"}), ValueError, "no policy"),
        (lambda target: nn.Schedule(target, {0: FINE, 9: f"{FINE}, update=bf16.rn"}), ValueError, "update"),
    ],
)
def test_schedule_rejects_bad_arguments(make, error, keyword):
    with pytest.raises(error, match=keyword):
        make(golden.emulate("fp32"))


@pytest.mark.parametrize("emulated", [False, True])
def test_update_without_weight_update_warns_once(emulated):
    policy = nn.Policy.parse(f"{FINE}, update=e6m5.rn")
    for updated in (False, True):
        layer = tnn.Linear(4, 2)
        run = golden.emulate(policy) if emulated else nn.convert(tnn.Sequential(layer), policy, inplace=True).model
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        if updated:
            nn.WeightUpdate(optimizer, policy.update)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                results(run, layer, torch.ones(1, 4)).sum().backward()
                with run if emulated else contextlib.nullcontext():
                    optimizer.step()
        found = [str(one.message) for one in caught if "WeightUpdate" in str(one.message)]
        assert len(found) == (not updated)
        assert updated or "e6m5.rn" in found[0]
