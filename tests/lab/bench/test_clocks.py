"""Report of clocks: draws between neighbouring latencies, and verdicts of place and route."""

from collections.abc import Iterable
from typing import Any

import pytest
from click.testing import CliRunner

from halfulp.cli import report
from halfulp.fpga.synth.measure import Module
from halfulp.implementation import Implementation
from halfulp.lab.bench import clocks
from halfulp.lab.bench.clocks import Drawn, study, tables

UNIT = Implementation.parse("mul e2m1*e2m1.rn")


@pytest.fixture
def routed(monkeypatch: pytest.MonkeyPatch) -> list[Module]:
    """Replace place and route by 30 MHz per stage more than 30, and return its modules."""
    asked: list[Module] = []

    def frequencies(modules: Iterable[Module], *_: Any) -> list[float]:
        found = list(modules)
        asked.extend(found)
        return [
            30.0 * (1 + sum(f"_p{stages}" in one.top for stages in range(1, 9) for _ in range(stages))) for one in found
        ]

    monkeypatch.setattr(clocks, "frequencies", frequencies)
    monkeypatch.setattr(clocks, "module_of", lambda unit, **_: Module("", f"unit_{unit.build}"))
    return asked


@pytest.mark.slow
def test_clocks_are_drawn_between_neighbouring_stages(routed: list[Module]) -> None:
    measured, drawn = study([UNIT], stages=4, count=6)
    assert measured[0].routed == (30, 60, 90, 120, 150)
    assert [30 * one.needed < one.mhz < 30 * one.needed + 30 for one in drawn] == [True] * 6
    assert {one.needed for one in drawn[:4]} == {1, 2, 3, 4}
    assert drawn == study([UNIT], stages=4, count=6)[1] != study([UNIT], stages=4, count=6, seed=1)[1]


@pytest.mark.slow
def test_clocks_are_drawn_up_to_the_maximum_of_the_device(routed: list[Module]) -> None:
    measured, drawn = study([UNIT], stages=8, count=20)
    assert measured[0].routed[-2:] == (240, 270)
    assert any(one.mhz > 240 for one in drawn)
    assert all(one.mhz <= 257 for one in drawn)
    note = "Clocks above 257 MHz are those of logic alone: the clock network of ecp5-85k limits them."
    assert note in tables(measured, drawn)["clocks-stages"].notes
    assert note not in tables(*study([UNIT], stages=3, count=1))["clocks-stages"].notes


def test_place_and_route_has_each_clock_as_target(routed: list[Module]) -> None:
    _, drawn = study([UNIT], stages=2, count=2)
    tried = [one.mhz for one in drawn for _ in range(1 + bool(one.stages))]
    assert [one.mhz for one in routed] == [None] * 3 + tried
    for one in drawn:
        assert one.stages is not None
        assert one.reached == 30 * (one.stages + 1)
        assert one.fewer == (30 * one.stages if one.stages else None)


@pytest.mark.slow
def test_clocks_by_stages_are_compared_with_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    routed = iter((30, 30, 60, 61, 58, 90, 100, 110))

    def frequencies(modules: Iterable[Module], *_: Any) -> list[float]:
        found = list(modules)
        if found:
            assert [one.slices for one in found] == [0, 0, 0, 1, 0, 2, 0, 3]
            assert all(f"_p{stages}" in one.top for stages, one in enumerate(found[2::2], start=1))
            assert {one.top for one in found[1::2]} == {found[0].top}
            assert {one.seeds for one in found} == {3}
        return [float(next(routed)) for _ in found]

    monkeypatch.setattr(clocks, "frequencies", frequencies)
    measured, drawn = study([UNIT], stages=3, count=0, seeds=3, slices=True)
    assert (measured[0].routed, measured[0].sliced) == ((30, 60, 58, 100), (30, 61, 90, 110))
    assert not drawn
    (table,) = tables(measured, drawn, 3).values()
    assert list(table.frame["MHz / slices"]) == pytest.approx([1, 60 / 61, 58 / 90, 100 / 110])
    assert "median of 3 seeds" in table.notes[0]
    assert "more than 3 % in 1 of 3 cases" in table.notes[0]
    assert "90 % of their clock in 3 of 4 rows" in table.notes[2]


def test_slices_of_units_with_state_are_rejected() -> None:
    with pytest.raises(ValueError, match="registers"):
        study([Implementation.parse("mac e2m1*e2m1+e3m2.rn")], stages=1, slices=True)


@pytest.mark.parametrize(
    ("stages", "reached", "fewer", "is_met", "is_least"),
    [(2, 101, 99, True, True), (2, 99, 90, False, True), (2, 120, 101, True, False), (0, 101, None, True, True)]
    + [(None, None, None, False, False)],
)
def test_verdicts_of_a_drawn_clock(
    stages: int | None, reached: float | None, fewer: float | None, is_met: bool, is_least: bool
) -> None:
    one = Drawn(UNIT, 100, 2, stages, reached, fewer)
    assert (one.is_met, one.is_least) == (is_met, is_least)
    found = tables([clocks.Measured(UNIT, (50.0,), (55.0,))], [one])
    assert (
        f"reaches it in {int(is_met)} of 1, and does not with one stage fewer in {int(is_least)} of 1"
        in (found["clocks"].notes[0])
    )
    assert "error of the delay model is 10.0 %" in found["clocks-stages"].notes[1]


def test_tables_name_structures_for_speed(routed: list[Module]) -> None:
    unit = Implementation.parse("add fp16+fp16.rn", goal="speed")
    found = tables(*study([unit], stages=1, count=1))
    assert [set(table.frame["unit"]) for table in found.values()] == [{"'add fp16+fp16.rn' --goal speed"}] * 2
    assert all("speed" in one.top for one in routed)


def test_report_clocks_rejects_unknown_units() -> None:
    answer = CliRunner().invoke(report, ["clocks", "mul e1m1*e1m1"])
    assert answer.exit_code == 2
    assert "exponent" in answer.output


def test_report_clocks_rejects_units_that_no_stage_makes_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "frequencies", lambda modules, *_: [50.0 for _ in modules])
    with pytest.raises(ValueError, match="more stages"):
        study([UNIT], stages=1)
