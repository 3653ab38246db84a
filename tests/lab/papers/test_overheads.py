"""Times of emulation: the format of two functions, and the settings of each column."""

import os

import pytest
import torch

from halfulp import golden
from halfulp.golden.kernels.build import SETTING
from halfulp.lab.papers import arbitor, overheads


def test_two_functions_are_bf16():
    codes = torch.arange(1 << 16)
    numbers = golden.decode(codes, "bf16")
    finite = numbers[numbers.isfinite()]
    halves = torch.cat([finite, (finite[:-1] + finite[1:]) / 2])
    # Numbers next to middles round to the nearer neighbour, although float32 does not hold them.
    near = torch.cat([halves, halves * (1 + 2**-40), halves * (1 - 2**-40), torch.tensor([torch.inf, -torch.inf])])
    assert torch.equal(overheads.from_real(near), golden.encode(near, "bf16"))
    assert torch.equal(overheads.to_real(codes).double().nan_to_num(), numbers.nan_to_num())
    assert golden.decode(overheads.from_real(torch.tensor([torch.nan]).double()), "bf16").isnan()


def test_columns_choose_kernels_and_restore_the_setting(monkeypatch):
    levels = []
    monkeypatch.setenv(SETTING, "portable")
    monkeypatch.setattr(overheads, "_product", lambda *_: (lambda: levels.append(os.environ[SETTING]), lambda: None))
    monkeypatch.setattr(overheads, "REPEATS", 1)
    for setting in overheads.WAYS.values():
        assert overheads._ratio(None, *setting) > 0
    assert levels[::2] == ["auto", "torch", "torch", "auto", "auto"]
    assert os.environ[SETTING] == "portable"


@pytest.mark.slow
def test_every_time_and_count_is_measured(monkeypatch):
    monkeypatch.setattr(overheads, "REPEATS", 1)
    monkeypatch.setattr(overheads, "SIDE", 16)
    networks = overheads._networks()
    assert set(networks) == set(overheads.COUNTERPARTS)
    two = {name: networks[name] for name in ("product", "resnet")}
    monkeypatch.setattr(overheads, "_networks", lambda: two)
    found = overheads.by_network()
    assert {name: set(ratios) for name, ratios in found["ways"].items()} == {key: set(overheads.WAYS) for key in two}
    for counts in found["roundings"].values():
        assert 0 < counts["left out"] < counts["roundings"]
        assert min(counts["kernels"], counts["KiB"]) > 0
    monkeypatch.setattr(overheads, "FORMATS", ("e8m7",))
    assert set(overheads.by_format(arbitor.WAYS)["e8m7"]) == set(arbitor.WAYS)
