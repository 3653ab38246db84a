"""Iterative forms of divisions and roots: results, handshake, and builds that are refused."""

import pytest
from click.testing import CliRunner

from halfulp.cli import cli
from halfulp.hdl.rows import Iterated
from halfulp.hdl.specs import Build, UnitSpec
from halfulp.sim.bench import run
from halfulp.sim.implementation import implementations
from halfulp.units import Div, Mul, Remainder
from halfulp.units.catalogue import component

UNITS = ("div {0}/{0}", "reciprocal {0}", "sqrt {0}", "rsqrt {0}", "remainder {0},{0}")


def iterated(text, iterations):
    return component(text, Build(iterations=iterations))


@pytest.mark.slow
def test_iterative_root_has_bits_of_golden_model_in_streams_and_stalls():
    unit = iterated("sqrt e3m2.port_sr2", 2)
    assert (unit.latency, unit.initiation) == (4, 4)
    assert run(unit, limit=512).failed == 0


@pytest.mark.slow
@pytest.mark.parametrize("iterations", [1, 2, 3])
@pytest.mark.parametrize("fmt", ["e5m2", "e4m3fn", "posit8", "takum8", "fxp4.4", "fp16"])
@pytest.mark.parametrize("text", UNITS)
def test_iterative_units_have_bits_of_golden_model(text, fmt, iterations):
    result = run(
        iterated(text.format(fmt) + ("", "", ".sr4@lfsr16", ".port_ro_sr3")[iterations], iterations), limit=1 << 14
    )
    assert result.failed == 0
    assert result.checks


class Forgetful(Iterated):
    """Rows that do not hold the values of operands."""

    def held(self, m, value, name):
        return value


@pytest.mark.slow
@pytest.mark.parametrize("text", UNITS)
def test_iterative_units_have_flags_of_golden_model(text):
    assert run(iterated(text.format("e4m3") + " flags", 1), limit=1 << 14).failed == 0


@pytest.mark.slow
def test_bench_detects_operands_that_are_not_held(monkeypatch):
    formats = dict.fromkeys("abo", "e5m2")
    monkeypatch.setattr("halfulp.units.endless.Iterated", Forgetful)

    class Own(Div):
        """Class of the user, whose Verilog is not cached."""

    assert run(Own(**formats, build=Build(iterations=1)), limit=256).failed


@pytest.mark.parametrize(
    ("unit", "build", "words"),
    [
        (Mul, {"iterations": 1}, "no effect"),
        (Div, {"iterations": 2, "pipeline": 3}, "either"),
        (Div, {"iterations": 2, "clock": 100}, "either"),
        (Div, {"iterations": 9}, "9"),
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
