"""Bench on correct units, and on runs that must fail."""

import re
import shlex
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner
from vcd.reader import TokenKind, tokenize

from halfulp.hdl.formats import E5M2, parse
from halfulp.hdl.specs import UnitSpec
from halfulp.implementation import Implementation, short
from halfulp.sim import build as builder
from halfulp.sim import model as modelling
from halfulp.sim.bench import plan, run
from halfulp.sim.build import Design, design, models
from halfulp.sim.cli import sim
from halfulp.sim.exact_text import exact_result, number, shown
from halfulp.sim.model import CompiledModel
from halfulp.sim.ports import Ports
from halfulp.sim.reference import reference
from halfulp.sim.report import Check, Failure, Result, mismatch, summary, write_junit
from halfulp.sim.simulate import UnitSimulation
from halfulp.tools.errors import ToolError
from halfulp.tools.paths import build_root
from halfulp.units.catalogue import CATALOGUE
from tests.short_form import BLOCK, asked, build

VECTORS = 1 << 14


@pytest.mark.sampled(30, 8)
@pytest.mark.parametrize(
    ("name", "fmt", "options"),
    [
        ("mul", "e4m3fnuz", {"pipeline": 3}),
        ("add", "e3m2fn", {"rounding": "sr3"}),
        ("fma", "fp32", {"pipeline": 1, "rounding": "rd"}),
        ("mac", "e5m2", {"acc": "fp16", "product": "e5m2.sr3", "rounding": "sr10", "saturate": True, "pipeline": 2}),
        ("mac", "e2m0", {}),
        ("convert", "bf16", {"to": "e4m3fn", "pipeline": 1}),
        ("compare", "e5m2-ftz", {"b": "fp16", "to": "e4m3", "pipeline": 1}),
        ("mac", "posit8", {"acc": "exact", "to": "posit16", "pipeline": 4, "rounding": "sr5"}),
        ("quire", "e4m3fn", {"carry": 2, "to": "fxp8.8"}),
        ("accumulate", "fxp4.4-wrap", {"rounding": "ro"}),
        ("dot", "posit8", {"k": 3, "b": "int4", "c": "e5m2", "to": "fp16", "pipeline": 2}),
        ("dot", "fxp2.3", {"k": 2, "order": "sequential", "rounding": "sr2"}),
        ("convert", "e6m5", {"to": "e4m3fn", "rounding": "sr3", "random": "plateau3"}),
        ("mul", "fxp4.4", {"rounding": "sr3", "random": "lfsr7", "random_seed": 5, "pipeline": 2}),
        ("mac", "e5m2", {"rounding": "sr10", "random": "lfsr16", "product": "e5m2.sr4", "pipeline": 1}),
        ("mac", "e5m2", {"rounding": "sr10", "random": "lfsr16", "stochastic": "eager", "pipeline": 1}),
        ("add", "e4m3", {"rounding": "sr7", "stochastic": "eager", "pipeline": 4}),
        ("dot", "e2m1", {"k": 2, "to": "e4m3", "order": "sequential", "rounding": "sr4", "stochastic": "eager"}),
        ("sru", "int16", {"random": "plateau3", "lanes": 7, "sharing": "rotated"}),
        ("sru", "fxp8.8", {"to": "fxp4.2-wrap", "rounding": "sr6", "lanes": 2, "pipeline": 1}),
        ("sru", "int16", {"increment": False, "random": "plateau3", "lanes": 8, "sharing": "rotated"}),
        ("sru", "fxp2.7", {"to": "ufxp2.2-wrap", "increment": False, "rounding": "sr8", "lanes": 2, "pipeline": 2}),
    ],
    ids=str,
)
def test_bench_passes_correct_units(name: str, fmt: str, options: dict[str, Any]) -> None:
    unit = build(name, fmt, **options)
    result = run(unit, limit=VECTORS, seed=1)
    text = summary(result)
    assert result.passed, text
    assert text.endswith("PASS")
    done = {(check.tool, check.name) for check in result.checks}
    chains = {("cocotb", "chain"), ("compiled loop", "chain")} if unit.stateful else set()
    assert done == {("cocotb", "plain"), ("cocotb", "stream"), ("compiled loop", "plain")} | chains
    assert all(check.checked >= 1 << 10 for check in result.checks)


@pytest.mark.slow
def test_catalogue_rows_all_have_a_bench_plan() -> None:
    for name, row in CATALOGUE.items():
        fmt = next((fmt for fmt in ("e3m2fn", "fxp4.4", "e3m2") if row.spec.takes(parse(fmt), None)), BLOCK)
        unit = build(name, fmt)
        chosen = plan(unit, seed=0, limit=64)
        assert set(chosen.vectors.codes) == set(unit.inputs)
        assert set(reference(unit, chosen.plain)) == set(unit.outputs)
        assert Implementation.of(unit) == short(name, fmt)


@pytest.mark.slow
def test_command_builds_a_description_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parsed description goes from the arguments to the component, its vectors, and the report."""
    text, built, check = "mac e5m2*e5m2+e6m5.sr10@lfsr16", list[str](), UnitSpec.__post_init__

    def counted(spec: UnitSpec) -> None:
        check(spec)
        built.append(spec.text)

    monkeypatch.setattr(UnitSpec, "__post_init__", counted)
    answer = CliRunner().invoke(sim, [text, "--vectors", "64"])
    assert answer.exit_code == 0, answer.output
    assert built.count(text) == 1


def test_stream_repeats_few_vectors() -> None:
    """Repeated vectors give a stream the same number of stalls between any two vectors."""
    unit = build("convert", "e2m1", to="e3m2")
    chosen = plan(unit, seed=0)
    assert chosen.vectors.count == len(chosen.plain["a"]) == 16
    assert len(chosen.stream["a"]) == 1 << 10
    assert set(chosen.stream["a"]) == set(range(16))


@pytest.mark.slow
def test_bench_writes_junit() -> None:
    unit = build("mul", "e2m1fn")
    run(unit)
    root = ElementTree.parse(build_root() / "results" / unit.name / "results.xml").getroot()
    (suite,) = root
    assert suite.get("tests") == "3"
    assert suite.get("failures") == "0"
    assert [case.get("name") for case in suite] == ["cocotb plain", "cocotb stream", "compiled loop plain"]


def test_empty_result_fails_run(tmp_path: Path) -> None:
    assert not Result("unit", "what", "vectors").passed
    empty = Result("unit", "what", "vectors", [Check("cocotb", "plain", 0, 0, [])])
    assert not empty.passed
    assert summary(empty).endswith("FAIL")
    write_junit(empty, tmp_path / "results.xml")
    assert "nothing was checked" in (tmp_path / "results.xml").read_text()


def test_failures_appear_in_summary_and_junit(tmp_path: Path) -> None:
    failure = Failure("stall", "the result moved")
    result = Result("unit", "what", "vectors", [Check("cocotb", "plain", 10, 5, [failure])])
    assert not result.passed
    assert "the result moved" in summary(result)
    assert "and 4 more" in summary(result)
    write_junit(result, tmp_path / "results.xml")
    assert 'failures="1"' in (tmp_path / "results.xml").read_text()


def test_mismatch_text_has_all_fields() -> None:
    unit = build("mac", "e5m2", rounding="sr10")
    codes = {"a": 0x3C, "b": 0x41, "c": 0x001, "load": 1, "clear": 0, "random": 0x2A}
    text = mismatch(unit, codes, {"o": 0x408}, {"o": 0x409}).text
    assert "0x3c  0_01111_00  1" in text
    assert "0x408  0_100000_01000  2.5" in text
    assert "a * b + c = 2.5000000000291038 = 85899345921 * 2^-35" in text
    assert "halfulp sim 'mac e5m2*e5m2+e6m5.sr10' --vector 0x3c,0x41,0x001,0x02a" in text
    assert "wrong golden model" not in text


def test_mismatch_names_wrong_golden_model() -> None:
    unit = build("mul", "e5m2")
    text = mismatch(unit, {"a": 0x3C, "b": 0x3C}, {"o": 0x3D}, {"o": 0x3C}).text
    assert "wrong golden model: exact arithmetic gives 0x3c" in text


def test_mismatch_of_own_source_prints_word() -> None:
    unit = build("mul", "e5m2", rounding="sr2", random="lfsr5")
    text = mismatch(unit, {"a": 0x3D, "b": 0x3D, "random": 3}, {"o": 0x3F}, {"o": 0x3E}).text
    assert "again: halfulp sim 'mul e5m2*e5m2.sr2' --vector 0x3d,0x3d,0x3" in text


def test_exact_result_prints_for_every_unit() -> None:
    assert exact_result(build("add", "e5m2"), {"a": 0x3C, "b": 0x40, "subtract": 1}) == "a - b = -1 = -1 * 2^0"
    assert exact_result(build("convert", "e5m2"), {"a": 0x7C}) == "inf"
    assert exact_result(build("fma", "e5m2"), {"a": 0x7B, "b": 0x7C, "c": 0xFC}) == "a * b + c = nan"
    assert exact_result(build("mul", "e5m2"), {"a": 0x00, "b": 0x7C}) == "a * b = nan"
    rounded = exact_result(build("mac", "e5m2", product="e2m1fn.rz"), {"a": 0x3D, "b": 0x3D, "c": 0x000})
    assert rounded == "(a * b = 1.5625 = 25 * 2^-4, rounded to 1.5) + c = 1.5 = 3 * 2^-1"
    assert exact_result(build("compare", "e5m2"), {"a": 0, "b": 0}) == ""
    assert exact_result(build("accumulate", "posit8"), {"a": 0x40, "c": 0x5000}) == "a + c = 5 = 5 * 2^0"
    quire = {"a": 0x3C, "b": 0x3C, "c": 0x40, "subtract": 1}
    assert exact_result(build("quire", "e5m2"), quire) == "c - a * b = 1 = 1 * 2^0"
    dot = {"a0": 0x10, "b0": 0x20, "a1": 0xF0, "b1": 0x10}
    assert exact_result(build("dot", "fxp4.4", k=2), dot) == "exact sum = 1 = 1 * 2^0"
    assert number(parse("fp64").decode(1)).startswith("4.9406564584124654e-324 = 1 * 2^-1074")
    lines = shown(build("mul", "e2m0"), Ports.inputs_of(build("mul", "e2m0")), {"a": 1, "b": 7})
    assert "0_01" in lines[0]


def test_vector_text_round_trips() -> None:
    inputs = Ports.inputs_of(build("mac", "e5m2"))
    codes = inputs.read_vector("0x3c,64,0b1")
    assert codes == {"a": 0x3C, "b": 64, "c": 1, "load": 1, "clear": 0}
    assert inputs.stateless.write(codes) == "0x3c,0x40,0x001"
    with pytest.raises(ValueError, match=r"has 3 codes \(a, b, c\), not 2"):
        inputs.read_vector("1,2")
    with pytest.raises(ValueError, match="'x' is not a number"):
        inputs.read_vector("1,x,3")
    with pytest.raises(ValueError, match="code 256 does not fit the 8 bits of a"):
        inputs.read_vector("256,0,0")


def test_plan_has_fewer_vectors_for_wide_quire() -> None:
    wide, usual = (plan(build("quire", fmt), seed=0) for fmt in ("fp64", "e5m2"))
    for few, all_ in ((wide.plain, usual.plain), (wide.stream, usual.stream), (wide.chain, usual.chain)):
        assert few is not None
        assert all_ is not None
        assert 256 <= len(few["a"]) <= len(all_["a"]) // 8


@pytest.mark.parametrize(
    ("words", "text", "options"),
    [
        ("mac e5m2", "mac e5m2*e5m2+e6m5.rn", ""),
        ("mac e5m2 acc=fp16 product=e5m2.rz saturate", "mac e5m2*e5m2=e5m2.rz+fp16.rn.sat", ""),
        ("mac e5m2 product=e5m2", "mac e5m2*e5m2=e5m2.rn+e6m5.rn", ""),
        ("mac e5m2 product=fxp4.4", "mac e5m2*e5m2=fxp4.4.rn+e6m5.rn", ""),
        ("fma e5m2 c=e4m3 to=e3m4 pipeline=2", "fma e5m2*e5m2+e4m3=e3m4.rn", "--pipeline 2"),
        ("convert bf16 to=e2m1fn", "convert bf16>e2m1fn.rn", ""),
        ("dot posit8 k=3 order=sequential", "dot3 posit8*posit8.rn order=sequential", ""),
        ("dot posit8", "dot4 posit8*posit8.rn", ""),
        ("mac posit8 acc=exact to=posit16 carry=5", "mac posit8*posit8+exact=posit16.rn carry=5", ""),
        ("sru int16 lanes=2 increment=", "sru int16>fxp16.-8-wrap.sr3 lanes=2 increment=no", ""),
        ("mac e5m2 rounding=sr4 random=lfsr8 random_seed=3", "mac e5m2*e5m2+e6m5.sr4@lfsr8:3", ""),
        ("add e5m2 rounding=sr4 stochastic=eager", "add e5m2+e5m2.sr4", "--stochastic eager"),
        ("mul fp16 dsp", "mul fp16*fp16.rn", "--dsp"),
        ("pwl fxp4.4 pieces=4 structure=address", "pwl tanh(fxp4.4).rn pieces=4", "--structure address"),
    ],
)
def test_short_form_equals_text(words: str, text: str, options: str) -> None:
    unit, fmt, *given = words.split()
    read = {
        name: int(value) if value.isdigit() else value if value else not equals
        for name, equals, value in (word.partition("=") for word in given)
    }
    found = short(unit, fmt, **read)
    assert str(found) == (f"'{text}' {options}" if options else text)
    assert found.command("sim") == f"halfulp sim '{text}' {options}".strip()
    assert asked(str(found) if options else shlex.quote(text)) == found
    assert found.spec == UnitSpec.parse(text)
    assert Implementation.of(found.component()) == found


@pytest.mark.slow
def test_waveform_has_numbers() -> None:
    unit = build("mac", "e5m2")
    result = run(unit, vector={"a": 0x3C, "b": 0x3E, "c": 0, "load": 1, "clear": 0}, wave=True)
    assert result.passed
    assert result.wave is not None
    names, values = {}, {}
    with result.wave.open("rb") as file:
        for token in tokenize(file):
            if token.kind is TokenKind.VAR:
                names[token.var.reference] = token.var.id_code
            elif token.kind is TokenKind.CHANGE_STRING:
                values.setdefault(token.string_change.id_code, []).append(token.string_change.value)
    assert "1.5" in values[names["plain_o_e6m5"]]
    assert "1.5" in values[names["accumulator_e6m5"]]
    assert "1" in values[names["plain_a_e5m2"]]
    assert not any(re.match(r"\$|.*_part", name) for name in names)


# Parts ---------------------------------------------------------------------------------------------------------------


def test_built_design_needs_no_amaranth(monkeypatch: pytest.MonkeyPatch) -> None:
    unit = build("mul", "e2m1fn")
    first, both = design(unit), design(unit, ("loop", "cocotb"))

    def refuse(unit: Any) -> None:
        raise AssertionError("the Verilog was there")

    monkeypatch.setattr(builder, "verilog", refuse)
    assert design(build("mul", "e2m1fn")) == first
    assert design(build("mul", "e2m1fn"), ("loop", "cocotb")) == both
    assert models(first, ("loop",)) == models(first, ("loop",)) == models(both, ("loop",))


def test_ports_pack_first_in_lowest_bits() -> None:
    ports = Ports.of({"a": E5M2, "b": E5M2})
    assert ports.pack([0x12, 0x34]) == 0x3412
    assert ports.unpack(0x3412) == [0x12, 0x34]


def test_loop_rejects_columns_of_other_lengths() -> None:
    unit = build("mul", "e2m1fn")
    with (
        CompiledModel.of_unit(unit) as loop,
        pytest.raises(ValueError, match="input b has 3 codes for 2 vectors"),
    ):
        loop.run({"a": np.zeros(2, dtype=np.uint64), "b": np.zeros(3, dtype=np.uint64)}, 2)


def test_missing_model_raises_tool_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modelling, "models", lambda made, kinds: {"loop": tmp_path / "loop.so"})
    with pytest.raises(ToolError, match="cannot be loaded"):
        CompiledModel(Design("nothing", ""))


def test_simulator_without_tests_fails_run(tmp_path: Path) -> None:
    unit = build("mul", "e2m1fn")
    codes = {name: np.zeros(4, dtype=np.uint64) for name in "ab"}
    tests = {"plain": (codes, {"o": np.zeros(4, dtype=np.uint64)})}
    for program, said in (("/bin/true", "cocotb ran no test instead of plain"), ("/bin/false", "exit code 1")):
        with (
            UnitSimulation(Path(program), unit, tests, tmp_path, seed=0) as simulation,
            pytest.raises(ToolError, match=said),
        ):
            simulation.finish()
    with pytest.raises(ToolError, match="could not be started"):
        UnitSimulation(tmp_path / "nothing", unit, tests, tmp_path, seed=0)


def test_random_words_lie_at_decision_boundary() -> None:
    unit = build("mul", "fp16", rounding="sr32")
    codes = plan(unit, seed=0, limit=512).vectors.codes
    one = np.uint64(1)
    word = codes["random"]
    at = reference(unit, codes)["o"]
    below = reference(unit, codes | {"random": np.where(word > 0, word - one, word)})["o"]
    above = reference(unit, codes | {"random": np.where(word < (1 << 32) - 1, word + one, word)})["o"]
    inexact = np.count_nonzero(
        reference(unit, codes | {"random": np.zeros_like(word)})["o"]
        != reference(unit, codes | {"random": np.full_like(word, (1 << 32) - 1)})["o"]
    )
    assert inexact > 200
    # Even rows have the smallest word that rounds up, odd rows the word below it.
    assert np.count_nonzero((at != below) | (at != above)) == inexact
