"""Times of emulation: the settings of each column."""

import os

import pytest

from halfulp.golden.kernels.build import SETTING
from halfulp.lab.papers import emulation


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
    monkeypatch.setattr(emulation, "FORMATS", ("e8m7",))
    assert set(emulation.by_format()["e8m7"]) == set(emulation.POLICIES)
