"""Digests of the netlists of cost records: complete, and those of the present units."""

from functools import partial

import pytest

from halfulp.hdl import round as rounder
from halfulp.implementation import Implementation
from halfulp.lab.bench import netlists, records

RUN = "the figures of these units are stale: run `make cost`"

MADE = records.components()

COMPONENTS = {record: MADE[record] for record in dict.fromkeys(row["record"] for row in netlists.read())}
"""Components of the records with digests; the others get theirs when `make cost` measures them again."""

SMALL = Implementation.parse("mul e2m1*e2m1.rn")


def test_netlists_cover_all_rows_of_records():
    """The figures in standard cells, and those of arrays, need programs or times that most machines have not."""
    assert {"cells", "cell-delays", "arrays"} <= COMPONENTS.keys()
    wanted = sorted((record, unit) for record, members in COMPONENTS.items() for unit in members)
    assert [(row["record"], row["unit"]) for row in netlists.read()] == wanted, RUN
    assert all(row[name] for row in netlists.read() for name in netlists.COLUMNS)


@pytest.mark.parametrize(
    "record", [pytest.param(record, marks=[pytest.mark.slow] * (record == "arrays")) for record in COMPONENTS]
)
def test_netlists_of_some_units_are_those_of_figures(record):
    """The shortest names are those of small units with default options."""
    names = sorted(COMPONENTS[record], key=len)[:2]
    assert netlists.stale(record, COMPONENTS[record], names) == [], RUN


@pytest.mark.slow
@pytest.mark.parametrize("record", COMPONENTS)
def test_netlists_are_those_of_figures(record):
    assert netlists.stale(record, COMPONENTS[record]) == [], RUN


@pytest.fixture
def folder(tmp_path):
    netlists.update(tmp_path, "small", {"first": SMALL.component, "other": SMALL.component})
    return tmp_path


def test_netlists_are_stale_after_a_change_of_rounding(folder, monkeypatch):
    stale = partial(netlists.stale, "small", {"first": SMALL.component}, folder=folder)
    assert stale() == []
    right = rounder._decision
    # Other text and the same logic.
    monkeypatch.setattr(rounder, "_decision", lambda *given: ~~right(*given))
    assert stale() == []
    monkeypatch.setattr(rounder, "_decision", lambda mode, bits, first, below: first)
    assert stale() == ["first"]
    netlists.update(folder, "small", {"first": SMALL.component})
    assert stale() == []


def test_netlists_of_another_record_stay(folder):
    netlists.update(folder, "cells", {"first": SMALL.component})
    assert [(row["record"], row["unit"]) for row in netlists.read(folder)] == [
        ("cells", "first"),
        ("small", "first"),
        ("small", "other"),
    ]
    assert netlists.stale("cells", {"second": SMALL.component}, folder=folder) == ["second"]


def test_netlists_are_not_computed_of_known_rtlil(folder, monkeypatch):
    monkeypatch.setattr(netlists, "netlist", None)
    assert netlists.stale("small", {"first": SMALL.component}, folder=folder) == []
