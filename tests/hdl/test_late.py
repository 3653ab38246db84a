"""Accumulators of floats with late normalisation: bits, states and refusals."""

from typing import Any

import pytest

from halfulp.hdl import late
from halfulp.hdl.late import Loop
from halfulp.hdl.specs import Build
from halfulp.implementation import Implementation
from halfulp.sim.bench import result_formats, run_and_compare
from halfulp.sim.model import CompiledModel
from halfulp.sim.ports import Ports
from halfulp.sim.space import Space
from halfulp.sim.vectors import chains
from halfulp.units.mac import Mac
from halfulp.units.systolic import Chain, Grid

TOYS = [
    "mac e2m1*e2m1+e3m3.sr3",
    "mac e2m1*e2m1+e2m2.rn",
    "mac e3m0*e2m3+e3m2.rn",
    "accumulate e3m2+e3m2.rn interleave=2",
    "accumulate e2m4+e3m1.rn",
    "accumulate e3m2+e3m2.sr4",
    "mac e4m1*e2m1fn+e4m2.rn",
]
"""Sums of so few bits that a chain of steps goes through every state."""

WIDE = [
    ("mac e5m2*e5m2+e6m5.sr10@lfsr16:7 interleave=3", 4),
    ("mac bf16*bf16+fp32.rn", 0),
    ("mac fp16*fp16+bf16.rn", 2),
    ("mac e4m3*e4m3=e5m2.sr3+e6m5.rn", 1),
    ("partmac bf16x2*bf16+fp32.rn", 3),
    ("mac e4m3fn-ftz*e4m3fnuz+bf16.sr8", 5),
    ("accumulate fp32+fp16.rn", 1),
]


def unit_of(text: str, stages: int = 0) -> Any:
    return Implementation.parse(text, goal="loop", pipeline=stages).component()


def chain_of(component: Any, count: int) -> dict[str, Any]:
    return chains(Ports.inputs_of(component), result_formats(component), count, 3, component.spec.interleave)


def wrong(component: Any, codes: dict[str, Any], *, chained: bool) -> int:
    with CompiledModel.of_unit(component) as loop:
        return run_and_compare(component, loop, codes, 1, chained=chained)[0]


@pytest.mark.slow
@pytest.mark.sampled(8)
@pytest.mark.parametrize("text", TOYS)
def test_fast_accumulators_match_golden_in_every_state(text: str) -> None:
    """Each pair of an operand and a start value that is loaded, and a long chain."""
    component = unit_of(text)
    space = Space.of(Ports.inputs_of(component))
    bits = space.bits + space.random_bits
    assert bits <= 20
    assert not wrong(component, space.codes(0, 1 << bits, with_random=True), chained=False)
    steps = chain_of(component, 1 << 19)
    assert not wrong(component, steps, chained=True)


@pytest.mark.slow
@pytest.mark.sampled(2, 2)
@pytest.mark.parametrize(("text", "stages"), WIDE)
def test_fast_accumulators_match_golden_sums(text: str, stages: int) -> None:
    component = unit_of(text, stages)
    assert not wrong(component, chain_of(component, 1 << 20), chained=True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("mac e5m2*e5m2+e6m5.rz", "rounds by rn or stochastically, not rz"),
        ("mac e5m2*e5m2+e6m5.port", "rounds by rn or stochastically, not port"),
        ("mac e5m2*e5m2+e6m5.rn.sat", "does not saturate"),
        ("mac e5m2*e5m2+e6m5.rn flags", "no flags"),
        ("mac e5m2*e5m2+e4m3fn.rn", "infinities, -0 and subnormal numbers, unlike e4m3fn"),
        ("mac e5m2*e5m2+e6m5-ftz.rn", "infinities, -0 and subnormal numbers, unlike e6m5-ftz"),
        ("mac posit8*posit8+posit16.rn", "adds floats, not posit16"),
        ("mac fp16*fp16+fp16.sr8", "terms of up to 11 significand bits, not 22"),
        ("mac e5m2*e5m2+exact=fp32.rn", "no effect"),
        ("add fp16+fp16.rn", "no effect"),
        ("pwl tanh(fxp4.4)", "no effect"),
    ],
)
def test_goal_loop_says_what_it_does_not_take(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        unit_of(text)


def test_goal_loop_has_no_structure_of_stochastic_rounding() -> None:
    with pytest.raises(ValueError, match="no stochastic eager"):
        Implementation.parse("mac e5m2*e5m2+e6m5.sr10@lfsr16", goal="loop", stochastic="eager").component()
    with pytest.raises(ValueError, match="structure table has no effect"):
        Implementation.parse("mac e5m2*e5m2+e6m5.rn", structure="table").component()


class Broken(Mac):
    """A unit whose Verilog is not that of its description in the cache."""


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["window", "lowest", "normalise", "shift"])
def test_comparison_detects_broken_loops(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that is one place too short, and steps that are left out."""
    first, lowest, shift = Loop.first.fget, Loop.lowest.fget, late.shift_right_sticky
    assert first is not None
    assert lowest is not None
    if broken == "window":
        monkeypatch.setattr(Loop, "first", property(lambda self: first(self) - 1))
        monkeypatch.setattr(Loop, "lowest", property(lambda self: max(lowest(self), 0)))
    elif broken == "lowest":
        monkeypatch.setattr(Loop, "lowest", property(lambda self: lowest(self) + 1))
    elif broken == "normalise":
        monkeypatch.setattr(late, "normalise", lambda m, x, *_: x)
    else:
        monkeypatch.setattr(late, "shift_right_sticky", lambda *given: (shift(*given)[0], late.NEVER))
    component = Broken(a="e3m4", b="e3m4", acc="e4m9", build=Build(goal="loop"))
    assert wrong(component, chain_of(component, 1 << 16), chained=True)


@pytest.mark.parametrize("array", [Chain, Grid])
def test_arrays_refuse_goal_loop_when_they_are_made(array: Any) -> None:
    for mac, reason in (("e5m2*e5m2+e6m5.rn.sat", "does not saturate"), ("e5m2*e5m2+e6m5.rz", "not rz")):
        with pytest.raises(ValueError, match=reason):
            array(mac=mac, n=1, m=1, build=Build(goal="loop"))
