"""Times of emulation: the format of two functions, and the settings of each column."""

import os
import re
from dataclasses import replace

import pytest
import torch

from halfulp import golden
from halfulp.fpga.package.manifest import RECORDS
from halfulp.golden.kernels.build import SETTING
from halfulp.lab.papers import emulation
from halfulp.lab.papers.trainings import Figures


def test_two_functions_are_bf16():
    codes = torch.arange(1 << 16)
    numbers = golden.decode(codes, "bf16")
    finite = numbers[numbers.isfinite()]
    halves = torch.cat([finite, (finite[:-1] + finite[1:]) / 2])
    # Numbers next to middles round to the nearer neighbour, although float32 does not hold them.
    near = torch.cat([halves, halves * (1 + 2**-40), halves * (1 - 2**-40), torch.tensor([torch.inf, -torch.inf])])
    assert torch.equal(emulation.from_real(near), golden.encode(near, "bf16"))
    assert torch.equal(emulation.to_real(codes).double().nan_to_num(), numbers.nan_to_num())
    assert golden.decode(emulation.from_real(torch.tensor([torch.nan]).double()), "bf16").isnan()


def test_columns_choose_kernels_and_restore_the_setting(monkeypatch):
    levels = []
    monkeypatch.setenv(SETTING, "portable")
    monkeypatch.setattr(emulation, "_product", lambda *_: (lambda: levels.append(os.environ[SETTING]), lambda: None))
    monkeypatch.setattr(emulation, "REPEATS", 1)
    for setting in emulation.WAYS.values():
        assert emulation._ratio(None, *setting) > 0
    assert levels[::2] == ["auto", "torch", "torch", "auto", "auto"]
    assert os.environ[SETTING] == "portable"


@pytest.mark.slow
def test_every_time_and_count_is_measured(monkeypatch):
    monkeypatch.setattr(emulation, "REPEATS", 1)
    monkeypatch.setattr(emulation, "SIDE", 16)
    networks = emulation._networks()
    assert set(networks) == set(emulation.COUNTERPARTS)
    two = {name: networks[name] for name in ("product", "resnet")}
    monkeypatch.setattr(emulation, "_networks", lambda: two)
    found = emulation.by_network()
    assert {name: set(ratios) for name, ratios in found["ways"].items()} == {key: set(emulation.WAYS) for key in two}
    for counts in found["roundings"].values():
        assert 0 < counts["left out"] < counts["roundings"]
        assert min(counts["kernels"], counts["KiB"]) > 0
    monkeypatch.setattr(emulation, "FORMATS", ("e8m7",))
    assert set(emulation.by_format()["e8m7"]) == set(emulation.POLICIES)


def test_peak_counts_what_lives_at_once():
    def run(count=1 << 18):
        first = torch.zeros(count)
        second = first + 1
        del first
        return second + 1

    # Two of three tensors of one MiB live at the same time.
    assert 2 << 20 <= emulation.peak(run) < 2.1 * (1 << 20)


@pytest.mark.slow
def test_memory_of_a_step_is_that_of_another_run(monkeypatch):
    networks = emulation._networks()
    monkeypatch.setattr(emulation, "_networks", lambda: {name: networks[name] for name in ("product", "resnet")})
    sizes = emulation.memory()["resnet"]
    assert list(sizes) == list(emulation.MEMORY)
    # The parameters' gradients at least.
    assert min(sizes.values()) > 4 * sum(parameter.numel() for parameter in networks["resnet"].build().parameters())
    # When Python frees an object is not the same in each run.
    assert emulation.memory()["resnet"] == pytest.approx(sizes, rel=0.25)


def test_memory_is_added_to_a_record(tmp_path, monkeypatch, halfulp):
    record = RECORDS / "emulation.json"
    before = Figures.load(record)
    sizes = {name: dict.fromkeys(emulation.MEMORY, 12_345_678) for name in before.more["roundings"]}
    monkeypatch.setattr(emulation, "memory", lambda: sizes)
    code, out, err = halfulp("report", "emulation", "--add", record, "-o", tmp_path)
    assert code == 0, err
    after = Figures.load(tmp_path / "emulation.json")
    assert after == replace(before, more=before.more | {"memory": sizes})
    assert re.search(r"\| resnet +\| +199 +\| +12\.35 \|", out)
    assert re.search(r"\| Inception-v4, published +\| +93 +\| +\| +578\.40 +\| +572\.90 \|", out)
    (tmp_path / "none.json").write_text("[]")
    for name, sentence in (("none.json", "none.json is no record"), ("gone.json", "gone.json cannot be read")):
        code, out, err = halfulp("report", "emulation", "--add", tmp_path / name, "-o", tmp_path)
        assert (code, out) == (2, "")
        assert sentence in err
