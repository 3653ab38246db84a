"""Iterative forms of divisions, roots and quantisation: results, handshake, and builds that are refused."""

import pytest
from click.testing import CliRunner

from halfulp.cli import cli
from halfulp.hdl.rows import Iterated
from halfulp.hdl.specs import Build, UnitSpec
from halfulp.implementation import implementations
from halfulp.sim.bench import run
from halfulp.units import BlockQuantize, Div, Mul, Remainder
from halfulp.units.catalogue import component
from halfulp.units.verilog import emit

UNITS = ("div {0}/{0}", "reciprocal {0}", "sqrt {0}", "rsqrt {0}", "remainder {0},{0}")


def iterated(text, iterations):
    return component(text, Build(iterations=iterations))


@pytest.mark.slow
def test_iterative_root_has_bits_of_golden_model_in_streams_and_stalls():
    unit = iterated("sqrt e3m2.port_sr2", 2)
    assert (unit.latency, unit.initiation) == (4, 4)
    assert run(unit, limit=512).failed == 0


@pytest.mark.slow
@pytest.mark.sampled(34, 34)
@pytest.mark.parametrize("iterations", [1, 2, 3])
@pytest.mark.parametrize("fmt", ["e5m2", "e4m3fn", "posit8", "takum8", "fxp4.4", "fp16"])
@pytest.mark.parametrize("text", UNITS)
def test_iterative_units_have_bits_of_golden_model(text, fmt, iterations):
    result = run(
        iterated(text.format(fmt) + ("", "", ".sr4@lfsr16", ".port_ro_sr3")[iterations], iterations), limit=1 << 14
    )
    assert result.failed == 0
    assert result.checks


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "iterations"),
    [
        ("e5m2>block(int8,4,e5m0,ceil).rn", 3),
        pytest.param("bf16>block(e2m1,5,e4m3fn,nearest).sr4@lfsr16", 2, marks=pytest.mark.slow),
        pytest.param("fp32>block(e4m3fn,8,e8m0fnu,floor).sr7", 1, marks=pytest.mark.slow),
        pytest.param("fp16>block(e2m3,3,e8m0fnu,even).ro", 3, marks=pytest.mark.slow),
        pytest.param("fp32>mxfp8_e4m3.sr6@lfsr16", 4, marks=pytest.mark.slow),
    ],
)
def test_iterative_quantisation_has_bits_of_golden_model(text, iterations):
    unit = iterated(f"blockquantize {text}", iterations)
    assert unit.latency == 1 + -(-unit.spec.o.length // iterations)
    result = run(unit, limit=1 << 11)
    assert result.failed == 0
    assert result.checks


@pytest.mark.slow
@pytest.mark.sampled(2, 2)
@pytest.mark.parametrize("text", UNITS)
def test_iterative_units_have_flags_of_golden_model(text):
    assert run(iterated(text.format("e4m3") + " flags", 1), limit=1 << 14).failed == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unit", "options"),
    [(Div, dict.fromkeys("abo", "e5m2")), (BlockQuantize, {"a": "e5m2", "o": "block(e2m1,4,e8m0fnu,floor)"})],
)
def test_bench_detects_operands_that_are_not_held(unit, options, monkeypatch):
    monkeypatch.setattr(Iterated, "held", lambda rows, m, value, name: value)

    class Own(unit):
        """Class of the user, whose Verilog is not cached."""

    assert run(Own(**options, build=Build(iterations=1)), limit=256).failed


@pytest.mark.parametrize(
    ("unit", "build", "words"),
    [
        (Mul, {"iterations": 1}, "no effect"),
        (Div, {"iterations": 2, "pipeline": 3}, "either"),
        (Div, {"iterations": 2, "clock": 100}, "either"),
        (Div, {"iterations": 6}, "only 5 in all"),
        (Div, {"iterations": 65}, "64"),
    ],
)
def test_build_refuses_iterations(unit, build, words):
    with pytest.raises(ValueError, match=words):
        unit(a="e5m2", b="e5m2", o="e5m2", build=Build(**build))


def test_remainder_with_many_rows_needs_iterations():
    spec = UnitSpec.parse("remainder bf16,bf16")
    for build in (Build(), Build(pipeline=3), Build(clock=100.0)):
        with pytest.raises(ValueError, match="iterations"):
            component(spec, build)
    assert component(spec, Remainder.default_build(spec)).latency == 1 + spec.digits == 262
    assert component("remainder fp16,fp16", Remainder.default_build(UnitSpec.parse("remainder fp16,fp16"))).latency == 0
    assert [asked.build for asked in implementations("all", "bf16", pipeline=2) if "remainder" in str(asked)] == [
        Build(iterations=1)
    ]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("command", ["formal", "mutate", "faults", "uvm"])
def test_commands_that_need_operands_in_every_cycle_refuse_iterations(command):
    found = CliRunner().invoke(cli, [command, "div", "e2m1", "--iterations", "1"])
    assert "every cycle" in found.output
    assert found.exit_code == 2


@pytest.mark.parametrize("text", UNITS)
def test_iterations_take_one_cycle_for_operands_and_one_for_each_digit_of_a_radix(text):
    unit = component(text.format("fp16"))
    assert [iterated(text.format("fp16"), bits).latency for bits in (1, 2, 4)] == [
        1 + -(-unit.spec.digits // bits) for bits in (1, 2, 4)
    ]


def test_roots_of_integers_have_half_as_many_digits():
    assert [UnitSpec.parse(text).digits for text in ("sqrt uint32.rz", "sqrt int8.rz", "sqrt fp64>int8-wrap.rz")] == [
        16,
        4,
        512,
    ]


@pytest.mark.slow
@pytest.mark.parametrize("text", ["div e10m1/e10m1=int2-wrap", "rsqrt e11m1>int2-wrap", "sqrt e11m2>int2-wrap"])
def test_iterative_units_of_hundreds_of_digits_have_verilog(text):
    assert "cycles_left" in emit(iterated(text, 8))
