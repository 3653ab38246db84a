"""Bench of training steps of emulated programs."""

import pytest
from torch import nn

from halfulp.sim.training import EVERYTHING, STEPS, Lstm, Step, Transformer, resnet18, steps


@pytest.mark.slow
def test_bench_of_training_has_a_row_for_each_policy():
    small = Step(
        "linear",
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 3)),
        (2, 3, 2, 2),
        3,
        EVERYTHING[:1],
        (),
        EVERYTHING[1:],
    )
    letters = Step("letters", lambda: Lstm(5, 4), (2, 3), 5, EVERYTHING[:1])
    lines = list(steps((small, letters)))
    assert sum(line.endswith("x") for line in lines) == 3
    assert sum(line.startswith("  compiled, ") for line in lines) == 1
    assert [line for line in lines if line in ("linear", "letters")] == ["linear", "letters"]


def test_measured_networks_have_their_sizes():
    sizes = {
        "resnet18": sum(one.numel() for one in resnet18().parameters()),
        "transformer": sum(one.numel() for one in Transformer(64, 128, 512, 6).parameters()),
    }
    assert 10.9e6 < sizes["resnet18"] < 11.2e6
    assert 18.9e6 < sizes["transformer"] < 19.2e6
    assert {one.name.split()[0].rstrip(",") for one in STEPS} == {"gpt", "resnet20", "resnet18", "lstm", "transformer"}
