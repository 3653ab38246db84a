"""Builds for a clock: the number of register stages by the delay model, in units and arrays."""

import itertools
import re

import pytest

from halfulp.boards.targets import FAMILIES, target_of
from halfulp.hdl.delay import MODELS
from halfulp.hdl.specs import Build
from halfulp.hdl.specs.build import TARGETS
from halfulp.implementation import Implementation
from halfulp.sim.bench import run
from halfulp.sim.build import verilog
from halfulp.units import Mac, Mul
from halfulp.units.base import Unit
from halfulp.units.stream import Streamed
from halfulp.units.systolic import Chain, Grid
from tests.short_form import asked

SMALL = "mul e3m2*e3m2"


def mhz(text: str, stages: int, target: str = "ecp5") -> float:
    """Return the clock of a unit with a number of stages by the delay model."""
    clock: float = Implementation.parse(text, pipeline=stages, target=target if stages else None).component().model_mhz
    return clock


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "text", [SMALL, "mac e2m1*e2m1+exact=e2m1", "pwl tanh(fxp4.12) pieces=8", "dot2 e2m1*e2m1=e2m1"]
)
def test_clock_takes_the_fewest_stages(text: str) -> None:
    """The clock of the model has a margin; without it, the lower one of two clocks would need a stage fewer."""
    clocks, tried = [mhz(text, stages) for stages in range(1, 4)], 0
    for stages, (slower, faster) in enumerate(itertools.pairwise(clocks), start=2):
        for clock in (0.98 * slower, 0.96 * faster) if 0.96 * faster > slower else ():
            unit = Implementation.parse(text, clock=clock, target="ecp5").component()
            assert (unit.stages, unit.latency) == (stages, stages + unit.stateful)
            assert unit.model_mhz == pytest.approx(faster)
            tried += 1
    assert tried


def test_unit_of_a_clock_is_that_of_its_stages() -> None:
    """Only the module name and the header comment differ."""
    clock = (mhz(SMALL, 1) + mhz(SMALL, 2)) / 2
    texts = []
    for options in ({"clock": clock, "target": "ecp5"}, {"pipeline": 2}):
        unit = Implementation.parse(SMALL, **options).component()
        text = verilog(unit).replace(unit.name, "unit")
        texts.append(text[text.index("\nmodule") :])
    assert texts[0] == texts[1]


def test_construction_computes_no_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unit, "dataflow", None)
    build = Build(clock=123.4)
    mac = "e5m2*e5m2+e6m5.rn"
    units = [Mac.of(mac, build), Chain(mac=mac, n=2, m=2, build=build), Grid(mac=mac, n=2, m=2, build=build)]
    assert "en" in units[0].signature.members
    assert all(unit.name.endswith("c123_4_xcup") for unit in units)
    with pytest.raises(TypeError):
        _ = units[0].stages


def test_unit_that_needs_no_stage_has_an_enable_without_effect() -> None:
    unit = Implementation.parse(SMALL, clock=1).component()
    assert (unit.stages, unit.clocked) == (0, False)
    assert "en" in unit.signature.members
    assert "clk" not in verilog(unit)
    assert "clk" not in verilog(Streamed(Implementation.parse(SMALL, clock=1).component()))


@pytest.mark.slow
@pytest.mark.parametrize("clock", [1, 60])
@pytest.mark.parametrize("text", [SMALL, "mac e2m1*e2m1+exact=e2m1", "add e3m2+e3m2.sr3@lfsr5"])
def test_unit_of_a_clock_passes_its_bench(text: str, clock: float) -> None:
    unit = Implementation.parse(text, clock=clock, target="ecp5").component()
    assert (unit.stages > 0) == (clock > 1)
    assert run(unit, limit=64).passed


@pytest.mark.parametrize(
    ("text", "clock", "ways"),
    [
        pytest.param(
            "mac e2m1*e2m1+e2m1",
            200,
            "; sums run faster with interleave=N, which gives each sum N cycles, or --goal loop, which shortens them",
            marks=pytest.mark.slow,
        ),
        ("mul e2m1*e2m1", 900, ""),
        ("pwl tanh(e5m2)>e5m2 pieces=4", 800, ""),
    ],
)
def test_clock_out_of_reach_names_the_best_one(text: str, clock: float, ways: str) -> None:
    with pytest.raises(ValueError, match=rf"cannot run at {clock} MHz.* is \d+\.\d MHz{ways}$") as refusal:
        Implementation.parse(text, clock=clock, target="ecp5").component()
    best = float(re.findall(r"([\d.]+) MHz", str(refusal.value))[-1])
    assert Implementation.parse(text, clock=0.97 * best, target="ecp5").component().model_mhz >= 0.97 * best


@pytest.mark.parametrize(
    ("text", "goal", "ways"),
    [
        ("mac e5m2*e5m2+e6m5", "area", ("interleave=N", "--goal loop")),
        ("mac e5m2*e5m2+e6m5", "loop", ("interleave=N",)),
        ("quire posit8*posit8", "area", ("interleave=N",)),
        ("add e5m2+e5m2", "area", ()),
    ],
)
def test_accumulators_name_ways_to_a_higher_clock(text: str, goal: str, ways: tuple[str, ...]) -> None:
    words = Implementation.parse(text, goal=goal).component().faster_sums
    assert [way for way in ("interleave=N", "--goal loop") if way in words] == [*ways]
    assert bool(words) == bool(ways)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("mac", "clock"), [("e2m1*e2m1+e3m2.rn", 35), ("e2m1*e2m1+exact=e2m1.rn", 80)])
@pytest.mark.parametrize("array", [Grid, Chain])
def test_array_of_a_clock_has_the_stages_of_its_parts(array: type, mac: str, clock: float) -> None:
    built = array(mac=mac, n=1, m=2, build=Build(clock=clock, target="ecp5"))
    fixed = array(mac=mac, n=1, m=2, build=Build(pipeline=built.stages))
    assert built.stages > 0
    assert built.part_build == fixed.build
    assert built._part(built.part_build).model_mhz >= clock
    if array is Chain and built.mac.quire:
        assert 0 < built._reading <= built.stages
        assert built._read.clock is None
    else:
        assert built.cycles(3, 4, 5) == fixed.cycles(3, 4, 5)


@pytest.mark.slow
@pytest.mark.parametrize("array", [Chain, Grid])
def test_array_of_a_clock_is_that_of_its_stages(array: type) -> None:
    built = array(mac="e2m1*e2m1+e3m2.rn", n=1, m=2, build=Build(clock=35, target="ecp5"))
    fixed = array(mac="e2m1*e2m1+e3m2.rn", n=1, m=2, build=Build(pipeline=built.stages))
    texts = [verilog(one).replace(one.name, "array") for one in (built, fixed)]
    assert texts[0][texts[0].index("\nmodule") :] == texts[1][texts[1].index("\nmodule") :]


@pytest.mark.parametrize("target", TARGETS)
def test_each_target_has_a_delay_model(target: str) -> None:
    assert MODELS[target].name == target
    assert Implementation.parse(SMALL, clock=60, target=target).component().model_mhz >= 60


def test_target_places_a_number_of_stages() -> None:
    assert mhz("add fp16+fp16", 2, "xcup") > 2 * mhz("add fp16+fp16", 2)


@pytest.mark.parametrize(
    "words", ["mul e3m2 --clock 133.25", "mul e3m2 --clock 60 --target ecp5", "mul e3m2 --pipeline 2"]
)
def test_options_of_a_clock_are_those_of_the_command_line(words: str) -> None:
    found = asked(words)
    assert found.build.options == words.split()[2:]
    assert asked(str(found)) == found


def test_mul_of_a_clock_equals_that_of_its_default_target() -> None:
    first, second = (
        Mul(a="e3m2", b="e3m2", o="e3m2", build=Build(clock=300, target=target)) for target in (None, "xcup")
    )
    assert first.name == second.name == "mul_e3m2_e3m2_e3m2_rn_c300_xcup"


def test_sums_in_turn_reach_a_higher_clock() -> None:
    text = "mac fxp1.2*fxp1.2+fxp3.2"
    with pytest.raises(ValueError, match="cannot run"):
        Implementation.parse(text, clock=150, target="ecp5").component()
    unit = Implementation.parse(f"{text} interleave=4", clock=150, target="ecp5").component()
    assert unit.model_mhz >= 150


def test_family_names_its_first_device() -> None:
    assert [target_of(family).name for family in TARGETS] == ["ecp5-85k", "artix100t", "vu9p"]
    assert set(TARGETS) == set(MODELS) == set(FAMILIES)
