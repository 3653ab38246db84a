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
    for setting in emulation.SWITCHES.values():
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
    assert {name: set(ratios) for name, ratios in found["ways"].items()} == {
        key: set(emulation.SWITCHES) for key in two
    }
    monkeypatch.setattr(emulation, "FORMATS", ("e8m7",))
    assert set(emulation.by_format()["e8m7"]) == set(emulation.POLICIES)


def test_notes_give_causes_only_for_times_that_have_them():
    slow = dict.fromkeys(("no kernels, no graphs", "graphs only", "kernels only"), 10.0) | {"kernels and graphs": 20.0}
    first, second = emulation._reasons({"lstm": slow, "resnet": slow | {"graphs only": 9.5}})
    assert "no step more than 5% faster" in first
    assert "lstm takes 20.0 times the time of FP32 with kernels and graphs and 10.0 times" in second
    fast = slow | {"graphs only": 5.0, "kernels and graphs": 5.0}
    assert not list(emulation._reasons({"lstm": fast, "resnet": slow}))
