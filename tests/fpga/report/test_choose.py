"""Choice of a build: order of the search, the choice, and its report."""

import json
from dataclasses import replace

import pytest

from halfulp.boards.targets import TARGETS
from halfulp.fpga.report import choose as choosing
from halfulp.fpga.report.choose import choose
from halfulp.fpga.synth import measure, route
from halfulp.fpga.synth.measure import Cost
from halfulp.fpga.synth.stages import near_stages
from halfulp.implementation import Implementation
from halfulp.tools.errors import CheckError
from halfulp.units.verilog import emit

ECP5 = TARGETS["ecp5-85k"]
MUL = Implementation.parse("mul fp16*fp16")

COST = Cost(lut=0, luts=(), ff=0, carry=0, mux=0, dsp=0, bram=0, uram=0, memory=0, path=1)

BUILDS = {
    # LUT and clock of each build, in three steps: without stages, with stages, with other places of the stages.
    "": (100, 50),
    "dsp": (80, 40),
    "speed": (120, 45),
    "p1": (101, 99),
    "p2": (105, 104),
    "dsp_p1": (81, 95),
    "dsp_p2": (85, 70),
    "speed_p1": (121, 85),
    "speed_p2": (125, 150),
    "dsp_p1_xc7": (82, 101),
    "dsp_p1_xcup": (83, 80),
    "p1_xc7": (110, 120),
    "p1_xcup": (84, 150),
}


@pytest.fixture
def routed(monkeypatch):
    """Replace synthesis and place and route by `BUILDS`; return the list of the routed builds."""
    order = []

    def synthesise(units, *_, **__):
        return {str(own): replace(COST, lut=BUILDS[str(own.build)][0], dsp=own.build.dsp) for own in units}

    def clocks(builds, *_):
        order.extend(str(own.build) for own in builds)
        return [BUILDS[str(own.build)][1] for own in builds]

    monkeypatch.setattr(choosing, "measure_units", synthesise)
    monkeypatch.setattr(choosing, "route", clocks)
    monkeypatch.setattr(choosing, "_numbers", lambda missed, *_: [[1, 2] for _ in missed])
    return order


def test_choose_routes_the_smallest_builds_until_one_meets_the_clock(routed):
    choice = choose(MUL, ECP5, 100)
    # All structures miss. Of builds with stages, p2 meets the clock, and the larger ones with `speed` are not routed.
    # dsp_p1 and p1 reach 90 %; p1_xc7 is larger than p2.
    assert routed == ["dsp", "", "speed", "dsp_p1", "dsp_p2", "p1", "p2", "dsp_p1_xc7", "dsp_p1_xcup", "p1_xcup"]
    assert str(choice.chosen.unit.build) == "dsp_p1_xc7"
    table = choice.report("halfulp choose").tables["choose"].frame
    assert table["LUT"].tolist() == sorted(lut for lut, _ in BUILDS.values())
    assert dict(zip(table["build"], table["result"], strict=True)) == {
        **dict.fromkeys(("default", "--dsp", "--goal speed", "--pipeline 1"), "misses"),
        **dict.fromkeys(("--pipeline 1 --dsp", "--pipeline 2 --dsp", "--pipeline 1 --dsp --target xcup"), "misses"),
        **dict.fromkeys(("--pipeline 2", "--pipeline 1 --target xcup"), "meets"),
        **dict.fromkeys(("--pipeline 1 --goal speed", "--pipeline 2 --goal speed"), "larger"),
        "--pipeline 1 --target xc7": "larger",
        "--pipeline 1 --dsp --target xc7": "chosen",
    }
    assert choice.report("halfulp choose").plots["choose"]() is not None


def test_choose_stops_without_stages_if_the_smallest_structure_meets_the_clock(routed):
    assert str(choose(MUL, ECP5, 40).chosen.unit.build) == "dsp"
    assert routed == ["dsp", "", "speed"]
    routed.clear()
    # A build that is larger than the choice is not continued.
    choice = choose(MUL, ECP5, 50, fixed=["dsp"])
    assert [str(tried.unit.build) for tried in choice.tried] == ["", "speed"]
    assert choice.chosen == choice.tried[0]
    assert routed == ["", "speed"]


def test_choose_varies_no_field_that_is_fixed(routed):
    assert str(choose(MUL.with_build(goal="speed"), ECP5, 100).chosen.unit.build) == "speed_p2"
    assert {name.partition("_")[0] for name in routed} == {"speed"}
    routed.clear()
    assert str(choose(MUL.with_build(pipeline=2), ECP5, 100, fixed=["goal"]).chosen.unit.build) == "p2"
    assert routed == ["dsp_p2", "p2"]
    routed.clear()
    assert str(choose(MUL, ECP5, 100, fixed=["dsp", "goal"], stages=[0, 2]).chosen.unit.build) == "p2"
    assert routed == ["", "p2"]
    with pytest.raises(ValueError, match="has a clock"):
        choose(MUL.with_build(clock=100.0), ECP5, 100)


def test_choose_leaves_out_blocks_that_are_slower_than_the_clock(routed):
    choice = choose(MUL, ECP5, 230, stages=[0])
    assert routed == ["", "speed"]
    assert choice.report("halfulp choose").tables["choose"].frame["result"].tolist()[0] == "DSP block: 225 MHz"


def test_choose_without_a_build_that_meets_the_clock_fails(routed, halfulp):
    with pytest.raises(CheckError) as caught:
        choose(MUL, ECP5, 200).check()
    sentence = (
        "no measured build of mul fp16*fp16.rn meets 200 MHz on ecp5-85k after place and route; the fastest, "
        "--pipeline 2 --goal speed, reaches 150.00 MHz"
    )
    assert str(caught.value) == sentence
    code, out, err = halfulp("choose", "mul fp16*fp16", "--clock", "200")
    assert (code, err.splitlines()[-1]) == (1, f"halfulp: {sentence}")
    assert "chosen" not in out.replace("Chosen", "").partition("\n\n- ")[0]


def test_choose_names_ways_to_faster_sums(routed):
    with pytest.raises(CheckError, match=r"MHz; sums run faster with interleave=N, which gives each sum N cycles"):
        choose(Implementation.parse("mac e2m1*e2m1+e3m2"), ECP5, 200, fixed=["dsp", "goal"], stages=[0]).check()


def test_choose_prints_the_command_that_writes_the_choice(routed, halfulp):
    code, out, err = halfulp("choose", "mul", "fp16", "--clock", "100")
    command = "halfulp emit 'mul fp16*fp16.rn' --pipeline 1 --dsp --target xc7"
    assert (code, out.splitlines()[-1]) == (0, command), err
    code, out, _ = halfulp("choose", "mul", "fp16", "--clock", "100", "--no-dsp", "--json")
    found = json.loads(out)
    assert (code, found["chosen"]["emit"]) == (0, "halfulp emit 'mul fp16*fp16.rn' --pipeline 1 --target xcup")
    assert len(found["tables"]["choose"]) == 8


@pytest.mark.slow
def test_emit_places_stages_by_the_delays_of_a_family(halfulp):
    unit = Implementation.parse("mul e5m2*e5m2", pipeline=2, target="xcup")
    code, out, err = halfulp("emit", "mul e5m2*e5m2", "--pipeline", "2", "--target", "xcup")
    assert (code, err) == (0, "")
    assert out == emit(unit.component())
    assert out != halfulp("emit", "mul e5m2*e5m2", "--pipeline", "2")[1].replace("_p2", "_p2_xcup")


def test_near_stages_surround_those_of_the_delay_model():
    unit = Implementation.parse("mul e2m1fn*e2m1fn")
    # By the model: 71 MHz without stages, 120 with one, 172 with two, 213 with three.
    assert near_stages(unit, 150.0, "ecp5", 70.0) == [2, 3, 4]
    assert near_stages(unit, 150.0, "ecp5", 120.0) == [1, 2, 3, 4]
    assert near_stages(unit, 10_000.0, "ecp5", 70.0) == []
    assert near_stages(Implementation.parse("div e5m2/e5m2", iterations=1), 50.0, "ecp5", 40.0) == []


@pytest.mark.slow
def test_choose_measures_a_unit_and_reads_it_from_the_cache(monkeypatch):
    unit = Implementation.parse("mul e5m2*e5m2")
    choice = choose(unit, ECP5, 142)
    assert choice.chosen.cost.fmax >= 142
    smaller = choice.tried[: choice.tried.index(choice.chosen)]
    assert smaller
    assert all(tried.cost.fmax < 142 for tried in smaller)
    alone = measure.measure_modules([measure.module_of(choice.chosen.unit)], ECP5)
    assert [replace(choice.chosen.cost, fmax=None)] == alone
    for room in (measure, route):
        monkeypatch.setattr(room, "python", lambda module, folder: ["/nowhere/yosys"])
    assert choose(unit, ECP5, 142) == choice
