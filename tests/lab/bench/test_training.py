"""Bench of training steps of emulated programs."""

import pytest
from torch import nn

from halfulp.lab.bench.speed import Speed, write
from halfulp.lab.bench.training import EVERYTHING, STEPS, steps
from halfulp.lab.train.language import Lstm
from halfulp.lab.train.steps import TrainingStep, Transformer
from halfulp.lab.train.vision import resnet
from halfulp.tools.digests import version


@pytest.mark.slow
def test_bench_of_training_has_a_row_for_each_policy():
    small = TrainingStep(
        "linear",
        "small",
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 3)),
        (2, 3, 2, 2),
        3,
        EVERYTHING[:1],
        (),
        EVERYTHING[1:],
    )
    letters = TrainingStep("letters", "small", lambda: Lstm(5, 4), (2, 3), 5, EVERYTHING[:1])
    speeds = []
    lines = list(steps(speeds, (small, letters)))
    assert sum(line.endswith("x") for line in lines) == 3
    assert sum(line.startswith("  compiled, ") for line in lines) == 1
    assert [line for line in lines if line.endswith("small")] == ["linear, small", "letters, small"]
    subjects = ["linear", "linear, compiled", "letters"]
    assert [(one.kind, one.subject) for one in speeds] == [("program", name) for name in subjects]


def test_measured_networks_have_their_sizes():
    sizes = {
        "resnet18": sum(one.numel() for one in resnet(18, 10).parameters()),
        "transformer": sum(one.numel() for one in Transformer(64, 128, 512, 6).parameters()),
    }
    assert 10.9e6 < sizes["resnet18"] < 11.2e6
    assert 18.9e6 < sizes["transformer"] < 19.2e6
    assert {one.name for one in STEPS} == {"GPT", "ResNet-20", "ResNet-18", "LSTM", "Transformer"}


def test_record_of_speeds_has_ratios_and_where_they_were_measured(tmp_path):
    path = tmp_path / "speed.csv"
    write([Speed("layers", "GPT", "bf16*bf16+fp32.rn", 2.03, 1.0)], path)
    head, row = path.read_text().splitlines()
    assert head == "kind,subject,policy,seconds,baseline,ratio,measured"
    assert row.startswith("layers,GPT,bf16*bf16+fp32.rn,2.03,1,2.0,")
    assert f"torch {version('torch')}" in row
