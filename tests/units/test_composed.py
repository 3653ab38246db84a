"""Composed units in RTL: results of the golden model with gaps and back-pressure, clock cycles, and refusals."""

import numpy as np
import pytest

from halfulp.hdl.specs import Build
from halfulp.sim import composed as simulated
from halfulp.sim.bench import run
from halfulp.sim.model import CompiledModel, pack, unpack
from halfulp.units import LayerNorm, RmsNorm, SoftMax
from halfulp.units.catalogue import COMPOSED, component

CASES = [
    ("softmax e4m3 length=6 argument=fxp4.3 pieces=4", {"pipeline": 1}),
    ("rmsnorm e4m3*e5m2>e5m2 eps=0.01 length=7", {}),
    ("softmax e4m3 length=5", {}),
    ("softmax e4m3fn>e5m2.rz elementwise=e5m5 functions=e5m2.ru reductions=e6m9 length=6", {"pipeline": 2}),
    ("rmsnorm fxp4.4*e4m3>e5m2 elementwise=e5m7 length=1", {"pipeline": 1}),
    ("layernorm e4m3*e4m3+e4m3 eps=0.01 length=4", {"pipeline": 3}),
    ("softmax posit8 length=4", {}),
    ("softmax bf16 reductions=fp32 length=16", {"clock": 90.0}),
    ("rmsnorm bf16*bf16 reductions=fp32", {"pipeline": 2, "dsp": True}),
    ("layernorm bf16*bf16+bf16 reductions=fp32 length=33", {"pipeline": 1}),
]
FAST = 2
"""Number of the first cases that are compiled in seconds."""


@pytest.mark.parametrize(
    "case",
    [*CASES[:FAST], *(pytest.param(case, marks=pytest.mark.slow) for case in CASES[FAST:])],
    ids=lambda case: f"{case[0]} {case[1]}",
)
def test_rtl_has_the_bits_of_the_golden_model(case):
    text, build = case
    result = run(component(text, Build(**build)), limit=60)
    assert result.passed, [failure.text for check in result.checks for failure in check.failures]
    assert [check.checked for check in result.checks] == [result.checks[0].checked] * 3
    assert result.checks[0].checked >= 60


@pytest.mark.slow
def test_simulation_detects_wrong_results(monkeypatch):
    reference = simulated.reference

    def wrong(spec, cases):
        """Return the results with one wrong bit."""
        results = reference(spec, cases)
        results[7][-1] ^= 1
        return results

    monkeypatch.setattr(simulated, "reference", wrong)
    result = run(component(CASES[0][0]), limit=20)
    assert [check.failed for check in result.checks] == [1, 1, 1]
    assert result.checks[0].failures[0].kind == "mismatch"


def test_vectors_have_all_lengths_and_special_values():
    unit = component("softmax e4m3 length=6")
    cases = simulated.vectors(unit.spec, 60, 0)
    assert {case.shape[1] for case in cases} == set(range(1, 7))
    codes = set(np.concatenate(cases, axis=1)[0].tolist())
    fmt = unit.spec.a
    assert {0, fmt.nan_code, fmt.max_code + 1, fmt.sign_code | (fmt.max_code + 1)} <= codes
    assert any(case.shape[1] > 1 and set(case[0].tolist()) == {fmt.sign_code | (fmt.max_code + 1)} for case in cases)


@pytest.mark.slow
@pytest.mark.parametrize("case", [CASES[0], CASES[1], CASES[3], CASES[5]], ids=lambda case: case[0])
def test_cycles_are_those_of_a_simulation(case):
    unit = component(case[0], Build(**case[1]))
    widths = [*(fmt.width for fmt in unit.spec.operands.values()), 1]
    with CompiledModel.of_streams(unit) as model:
        for length in (1, 2, unit.spec.length):
            model.reset()
            beats = np.zeros((length, len(widths)), dtype=np.uint64)
            beats[-1, -1] = 1
            passed = model.stream({"i": pack(beats, widths)}, {"o": length}, limit=1000)
            # The element is offered in the first cycle.
            first = passed.cycles["i"] - length
            assert passed.cycles["o"] - first == unit.cycles(length)


@pytest.mark.slow
def test_vector_ends_with_its_largest_length():
    unit = component("softmax e4m3 length=5")
    widths = [8, 1]
    beats = np.zeros((7, 2), dtype=np.uint64)
    beats[6, 1] = 1
    with CompiledModel.of_streams(unit) as model:
        passed = model.stream({"i": pack(beats, widths)}, {"o": 7}, limit=1000)
    results = unpack(passed.words["o"], widths)
    assert results[:, 1].tolist() == [0, 0, 0, 0, 1, 0, 1]
    fifth, half = unit.spec.o.encode(0.2), unit.spec.o.encode(0.5)
    assert results[:, 0].tolist() == [fifth] * 5 + [half] * 2


def test_fields_of_a_component_are_those_of_its_description():
    unit = SoftMax(a="bf16", o="fp16", reductions="fp32", length=8, build=Build(pipeline=1))
    assert unit.spec.text == "softmax bf16>fp16.rn reductions=fp32.rn length=8"
    assert unit.name == "softmax_bf16_fp16_rn_reductions_fp32_rn_length_8_p1"
    assert list(dict(unit.i.payload.shape())) == ["a", "last"]
    assert list(dict(LayerNorm(a="bf16", gain="bf16", bias="fp16").i.payload.shape())) == ["a", "gain", "bias", "last"]
    assert {cls.__name__ for cls in COMPOSED.values()} == {"SoftMax", "RmsNorm", "LayerNorm"}


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: SoftMax("softmax bf16", length=4), "SoftMax takes a description or its fields, not both"),
        (lambda: SoftMax("rmsnorm bf16"), r"rmsnorm bf16.rn describes the unit rmsnorm, expected softmax a\[>o\]"),
        (lambda: SoftMax(a="bf16", build=3), "build of softmax_bf16_bf16_rn must be a Build, not int"),
        (lambda: SoftMax(a="bf16", build=Build(iterations=1)), "iterations 1 has no effect on softmax"),
        (lambda: SoftMax(a="e4m3", build=Build(dsp=True)), "dsp has no effect on softmax e4m3.rn"),
        (RmsNorm, "a of rmsnorm is missing"),
        (lambda: RmsNorm(a="bf16", bias="bf16"), "rmsnorm has no parameter bias"),
    ],
)
def test_component_refuses(make, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        make()
