"""The pyuvm environment: it passes for right units, and catches what is planted in wrong ones."""

import os
from pathlib import Path
from random import Random

import numpy as np
import pytest
from click.testing import CliRunner

from halfulp.hdl.formats import E4M3FN, E5M2
from halfulp.sim.ports import Port, Ports
from halfulp.sim.rules import Entry, Pace, Registered, Waiting
from halfulp.sim.uvm.cli import uvm
from halfulp.sim.uvm.interfaces import Packed, Pins, Sink, Wires
from halfulp.sim.uvm.items import Operand, Operation
from halfulp.sim.uvm.job import class_of, module_of, name_of
from halfulp.sim.uvm.sequences import ExhaustiveSequence, gap_of
from halfulp.sim.uvm.tests import UnitTest
from halfulp.units.catalogue import CATALOGUE, build

EXHAUSTIVE = os.environ.get("HALFULP_EXHAUSTIVE") == "1"

OVERRIDES = Path(__file__).with_name("uvm_overrides.py")
EXAMPLE = Path(__file__).parent.parent / "examples" / "dot_product.py"


def command(*words: str) -> tuple[int, str]:
    """Exit code and output of `halfulp uvm`."""
    answer = CliRunner().invoke(uvm, words)
    return answer.exit_code, answer.output


# In the simulator ----------------------------------------------------------------------------------------------------

TILE = "tile e3m2 --n 3 --m 2 --acc e4m3 --round sr4 --random lfsr8 --vectors 8", "grid_3x2_e3m2_e3m2_e4m3_sr4_lfsr8"

UNITS = [
    ("mul e5m2", "mul_e5m2_e5m2_e5m2_rn"),
    ("add posit8 --round sr3", "add_posit8_posit8_posit8_sr3"),
    ("fma bf16 --pipeline 2", "fma_e8m7_e8m7_e8m7_e8m7_rn_p2"),
    ("mac e5m2 --round sr10 --random lfsr16 --product e5m2.sr4", "mac_e5m2_e5m2_e5m2_sr4_e6m5_sr10_lfsr16"),
    ("mac posit8 --acc exact --to posit16 --pipeline 3", "mac_posit8_posit8_exact_posit16_rn_p3"),
    ("accumulate fxp4.4", "accumulate_fxp4_4_fxp28_4_rn"),
    ("convert bf16 --to e4m3fn --saturate", "convert_e8m7_e4m3fn_rn_sat"),
    ("sru int16 --random plateau3 --lanes 4 --sharing rotated", "sru4_int16_fxp16__8_sr3_rotated_plateau3"),
    ("sru fxp8.8 --to fxp4.2-wrap --no-increment --round sr6 --pipeline 1", "sru1_fxp8_8_fxp4_2_wrap_sr6_carry_p1"),
    ("pwl fxp4.4 --pieces 4", "pwl_tanh"),
    ("dot e4m3fn --to bf16 --pipeline 3", "dot4_e4m3fn_e4m3fn_e8m7_rn_p3"),
    ("dot posit8 --k 3 --order sequential", "dot3_posit8_posit8_posit8_sequential_rn"),
    ("quire posit8", "quire_posit8_posit8_posit8_31_rn"),
    ("quire e5m2 --pipeline 4 --round sr3", "quire_e5m2_e5m2_e5m2_31_sr3_p4"),
    ("compare e5m2-ftz --pipeline 1", "compare_e5m2_ftz_e5m2_ftz_e5m2_ftz_rn_p1"),
]

MORE = [
    ("tile e5m2 --n 3 --m 2 --round sr10 --random lfsr16", "grid_3x2_e5m2_e5m2_e6m5_sr10_lfsr16"),
    (
        "tile posit8 --acc exact --to posit16 --n 2 --m 1 --depth 3 --pipeline 2",
        "chain_2x1_posit8_posit8_exact_posit16",
    ),
    ("tile fxp4.4 --n 1 --m 3", "grid_1x3_fxp4_4_fxp4_4_fxp8_8_rn"),
    ("tile e4m3fn --depth 1 --vectors 4 --seed 9", "chain_3x2_e4m3fn"),
    ("tile e3m2 --round sr4 --random lfsr8 --sequence storm", "grid_3x2_e3m2_e3m2_e4m5_sr4_lfsr8"),
    ("tile e5m2 --sequence random", "grid_3x2_e5m2_e5m2_e6m5_rn"),
    *(
        (f"mac e2m1 --acc e3m1 --seed 3 --sequence {name}", "mac_e2m1_e2m1_e3m1_rn")
        for name in ("exhaustive", "directed", "random", "chain", "storm")
    ),
    ("mac e5m2 --sequence kept", "mac_e5m2_e5m2_e6m5_rn"),
    ("mac e5m2 --vector 0x3c,0x40,0x001 --wave", "mac_e5m2_e5m2_e6m5_rn"),
    (f"mul fp16 --test {OVERRIDES}:Rare", "mul_e5m10_e5m10_e5m10_rn"),
    (f"mul fp16 --test {OVERRIDES}:OtherFormat", "mul_posit8_posit8_e5m2_rn"),
]


@pytest.mark.parametrize(("words", "title"), [TILE, *UNITS, *MORE] if EXHAUSTIVE else [TILE])
def test_what_is_right_passes(words: str, title: str) -> None:
    """Also a multiplier whose mistake the sequence that runs unless told otherwise does not find."""
    code, text = command(*words.split())
    assert code == 0, text
    assert text.startswith(title)
    assert text.endswith("PASS\n")
    assert "mismatches  0\n" in text
    assert text.count("pyuvm  ") == (1 if words.startswith("tile") else 2)


def test_every_row_of_the_catalogue_is_among_them() -> None:
    assert {words.split()[0] for words, _ in UNITS} == set(CATALOGUE)


def test_another_design_reuses_the_agents() -> None:
    """Active ones on its streams, a passive one around the unit inside."""
    code, text = command("mac", "e4m3fn", "--test", f"{EXAMPLE}:DotProductTest")
    assert code == 0, text
    assert "40  totals\n" in text
    assert "267  steps\n" in text


PLANTED = [
    ("mul fp16", "RareAimed", {"plain": "mismatch", "stream": "mismatch"}),
    ("mul e5m2", "RestlessTest", {"plain": "stall", "stream": "payload"}),
    ("mul e5m2", "LateTest", {"plain": "latency", "stream": "mismatch"}),
    ("mac e5m2", "EagerTest", {"plain": "bubble", "stream": "mismatch"}),
    ("convert e6m5", "ImpatientTest", {"plain": "stall", "stream": "payload"}),
    ("mul e5m2", "BufferedTest", {"stream": "payload"}),
    ("tile e5m2 --n 1 --m 2 --round sr10 --random lfsr16", "SwappedSeedsTest", {"tile": "mismatch"}),
    ("mul e5m2", "BlindTest", {}),
    ("mac e4m3fn", "WrongInsideTest", {"totals": "mismatch", "steps": "mismatch"}),
    ("mac e4m3fn", "WrongOutsideTest", {"totals": "mismatch"}),
]
"""What is asked for, the test that puts something else in its place, and the kinds of failure that come of it."""


@pytest.mark.parametrize(("words", "test", "found"), PLANTED if EXHAUSTIVE else PLANTED[:1])
def test_what_is_planted_is_found_where_it_is(
    words: str, test: str, found: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one is wrong for one pair of operands in 2^32, to which another sequence goes."""
    if test == "BufferedTest":
        monkeypatch.setattr("halfulp.units.stream.Streamed", module_of(str(OVERRIDES)).Unheld)
    code, text = command(*words.split(), "--test", f"{OVERRIDES}:{test}")
    assert code == 1, text
    assert "\nFAIL\n" in text
    told = {line.split(": ")[0].removeprefix("pyuvm, ") for line in text.splitlines() if line.startswith("pyuvm, ")}
    assert told == set(found), text
    for channel, kind in found.items():
        assert f"pyuvm, {channel}: {kind}\n" in text
    if test == "RareAimed":
        assert text.startswith("mul_e5m10_e5m10_e5m10_rn\n")
        assert text.count("    300  observed on") == 2
        assert "again: halfulp sim mul e5m10 --vector 0x3c01,0x4201\n" in text
        assert "keep:  halfulp keep mul e5m10 --vector 0x3c01,0x4201\n" in text


# The parts -----------------------------------------------------------------------------------------------------------


def test_operands_carry_their_formats() -> None:
    ports = Ports.of(build("mac", "e5m2").inputs)
    item = Operation("operation").set(ports, {"a": 0x3E, "b": 0xC0, "c": 0, "load": 1, "clear": 0})
    assert item["a"].fmt == E5M2
    assert item["a"].number == 1.5
    assert item["load"].fmt is None
    assert str(item) == "a 0x3e (e5m2 1.5), b 0xc0 (e5m2 -2), c 0x000 (e6m5 0), load 0x1, clear 0x0"
    assert item.codes["b"] == 0xC0
    assert Operation("other").set_word(ports, item.word) == item
    item.gap, item.reset = 3, True
    copy = item.clone()
    assert (copy, copy.gap, copy.reset) == (item, 3, True)
    with pytest.raises(ValueError, match="code 0x100 does not fit the 8 bits of a"):
        Operand(Port("a", 8, E5M2), 0x100)


def test_a_registered_result_is_told_from_one_that_moved() -> None:
    watch = Registered(latency=2, holds=True)
    shown = []
    # Operations 0 and 1, a stall, a cycle without operands, another stall in which the result moves.
    words = [0, 0, 10, 10, 11, 12, 13]
    enables = [True, True, False, True, True, False, True]
    for word, enabled, vector in zip(words, enables, [0, 1, None, None, None, None, None], strict=True):
        shown.append(watch.see(word))
        watch.edge(enabled=enabled, vector=vector)
    kind = "stall", "the result moved while the clock enable was low"
    assert shown == [None, None, Entry(0, True), None, Entry(1, True), Entry(1, False), kind]


def test_a_stream_that_withdraws_or_changes_a_result_is_told() -> None:
    rule = Waiting()
    assert rule.see(True, False, 5) is None
    assert rule.see(True, False, 5) is None
    assert rule.see(True, True, 6) == ("payload", "the result changed while it waited to be taken")
    assert rule.see(True, False, 7) is None
    assert rule.see(False, False, 7) == ("withdrawn", "valid fell before the result was taken")
    assert rule.see(False, True, 0) is None


class Pin:
    """A handle of the simulator, without one."""

    def __init__(self, value: int = 0) -> None:
        self.value = value


def test_results_beside_their_operands_may_not_move_while_these_wait() -> None:
    ports = Ports((Port("a", 8),))
    en, valid, a, o = Pin(), Pin(1), Pin(3), Pin(4)
    pins = Pins(clk=Pin(), inputs=Packed(a, ports), outputs=Packed(o, ports), latency=0, en=en, valid=valid)
    watch = pins.watch()
    assert watch.see() == []
    o.value = 5
    assert watch.see() == [("stall", "the result moved while the clock enable was low")]
    en.value = 1
    assert watch.see() == [5]
    assert pins.handshakes() == {"plain": {"en": True, "valid": True}}
    valid.value = 0
    assert watch.see() == []


def test_what_is_taken_in_a_reset_is_not_an_operation() -> None:
    ports, rst = Ports((Port("a", 8, E4M3FN), Port("b", 3))), Pin(1)
    wires = Wires({"a": Pin(), "b": Pin()}, ports)
    pins = Pins(clk=Pin(), rst=rst, inputs=wires, outputs=wires, latency=1)
    pins.offer(0x755)
    assert (wires.read(), [handle.value for handle in wires.handles]) == (0x755, [0x55, 7])
    assert not pins.taken
    rst.value = 0
    assert pins.taken
    sink = Sink(clk=Pin(), outputs=wires, valid=Pin(1), ready=Pin(0))
    sink.grant(True)
    assert sink.watch().see() == [0x755]


def test_a_storm_has_every_pace() -> None:
    pace = Pace(Random(1))
    gaps = [gap_of(pace) for _ in range(4000)]
    assert 0.2 < np.mean(np.array(gaps) == 0) < 0.95
    assert max(gaps) > 8


def test_only_some_units_have_few_enough_operands_for_all_of_them() -> None:
    ExhaustiveSequence.check(build("mul", "e5m2"), None)
    with pytest.raises(ValueError, match=r"2\^32 combinations of operands, and a sequence of all takes at most 2\^16"):
        ExhaustiveSequence.check(build("mul", "fp16"), None)
    with pytest.raises(ValueError, match=r"5 vectors are not all that mul_e2m1_e2m1_e2m1_rn has; there are 2\^8"):
        ExhaustiveSequence.check(build("mul", "e2m1"), 5)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("mac e1m2", "e1m2 has 1 exponent bit; a float needs 2 to 11"),
        ("frobnicate", "unknown unit 'frobnicate'"),
        ("mul e5m2 --sequence best", "unknown sequence 'best'; there are campaign, exhaustive, directed, random"),
        (
            "mul e5m2 --sequence chain",
            "mul_e5m2_e5m2_e5m2_rn has no state, so none of its operations builds on another",
        ),
        ("mul e5m2 --n 3", "--n goes with the unit tile, not with mul"),
        ("mul e5m2 --vectors 0", "Invalid value for '--vectors'"),
        ("mul e5m2 --vector 1", "a vector of this unit has 2 codes (a, b), not 1"),
        ("all e5m2 --vector 1,2", "--vector goes with one unit, not with all of them"),
        ("tile e5m2 --vector 1,2", "--vector goes with one unit, not with a tile"),
        ("tile e5m2 --wave", "--wave goes with one unit, not with a tile"),
        ("tile e5m2 --n 0", "a tiling has n of 1 or more, not 0"),
        ("tile e5m2 --round sr4", "the multiply-accumulates of an array have sources of their own, but"),
        ("mul e2m0 --sequence kept", "nothing is kept for mul_e2m0_e2m0_e2m0_rn"),
        ("tile e5m2 --sequence chain", "an array has no sequence chain; it has campaign, random, storm"),
        ("mul e5m2 --test nothing", "'nothing' names no test; one is written like my_tests.py:MyTest"),
        ("mul e5m2 --test nothing.py:Test", "nothing.py with tests"),
        ("mul e5m2 --test no.such:Test", "there is no module no.such with tests"),
        (f"mul e5m2 --test {OVERRIDES}:Missing", "has no test Missing"),
        (f"mul e5m2 --test {OVERRIDES}:Restless", "has no test Restless"),
        (f"mac e5m2 --wave --test {EXAMPLE}:DotProductTest", "dot_product is watched inside, of which there is no"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(words: str, sentence: str) -> None:
    code, text = command(*words.split())
    assert code == 2
    assert sentence in text
    assert "Traceback" not in text


def test_a_test_is_found_by_its_text() -> None:
    assert name_of(UnitTest) == "halfulp.sim.uvm.tests:UnitTest"
    assert class_of("halfulp.sim.uvm.tests:UnitTest") is UnitTest
    rare = class_of(f"{OVERRIDES}:Rare")
    assert name_of(rare) == f"{OVERRIDES}:Rare"
    assert class_of(name_of(rare)) is rare

    class Local(UnitTest):
        pass

    with pytest.raises(ValueError, match="is defined in a function, where the simulation does not find it"):
        name_of(Local)
