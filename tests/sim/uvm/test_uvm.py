"""Environment in pyuvm: it passes for correct units and detects planted mistakes."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from pyuvm import ConfigDB, uvm_root, uvm_sequencer

from halfulp.hdl.formats import E4M3FN, E5M2, E6M5
from halfulp.hdl.specs.formula import Port
from halfulp.sim.coverage.collect import hits
from halfulp.sim.ports import Ports
from halfulp.sim.signals.interfaces import Packed, Pins, Sink, Source, Wires
from halfulp.sim.signals.rules import MOVED, Entry, Pace, Registered, Waiting
from halfulp.sim.uvm.cli import uvm
from halfulp.sim.uvm.collector import CoverageCollector
from halfulp.sim.uvm.items import Operand, Operation
from halfulp.sim.uvm.job import class_of, name_of
from halfulp.sim.uvm.reference import Prediction, Reference
from halfulp.sim.uvm.scoreboard import Compared, Scoreboard, export
from halfulp.sim.uvm.sequences import ExhaustiveSequence, RandomSequence, gap_of
from halfulp.sim.uvm.tests import UnitTest
from halfulp.sim.uvm.tile import TileReference, TileScoreboard, ports_of
from halfulp.tools.imports import module_of
from halfulp.units.catalogue import CATALOGUE
from halfulp.units.systolic import Grid
from tests.settings import EXHAUSTIVE, ROOT
from tests.short_form import BLOCK, build

OVERRIDES = ROOT / "tests" / "uvm_overrides.py"
EXAMPLE = ROOT / "examples" / "dot_product.py"


def command(*words: str) -> tuple[int, str]:
    """Run `halfulp uvm`; return exit code and output."""
    answer = CliRunner().invoke(uvm, words)
    return answer.exit_code, answer.output


# In the simulator ----------------------------------------------------------------------------------------------------

TILE = "tile e3m2 --n 3 --m 2 --acc e4m3 --round sr4 --random lfsr8 --vectors 8", "grid_3x2_e3m2_e3m2_e4m3_sr4_lfsr8"

UNITS = [
    ("mul e5m2", "mul e5m2*e5m2.rn"),
    ("add posit8 --round sr3", "add posit8+posit8.sr3"),
    ("fma bf16 --pipeline 2", "'fma bf16*bf16+bf16.rn' --pipeline 2"),
    ("mac e5m2 --round sr10 --random lfsr16 --product e5m2.sr4", "mac e5m2*e5m2=e5m2.sr4+e6m5.sr10@lfsr16"),
    ("mac posit8 --acc exact --to posit16 --pipeline 3", "'mac posit8*posit8+exact=posit16.rn' --pipeline 3"),
    ("accumulate fxp4.4", "accumulate fxp4.4+fxp28.4.rn"),
    ("convert bf16 --to e4m3fn --saturate", "convert bf16>e4m3fn.rn.sat"),
    (
        "sru int16 --random plateau3 --lanes 4 --sharing rotated",
        "sru int16>fxp16.-8.sr3@plateau3 lanes=4 sharing=rotated",
    ),
    (
        "sru fxp8.8 --to fxp4.2-wrap --no-increment --round sr6 --pipeline 1",
        "'sru fxp8.8>fxp4.2-wrap.sr6 increment=no' --pipeline 1",
    ),
    ("pwl fxp4.4 --pieces 4", "pwl tanh(fxp4.4).rn pieces=4"),
    ("dot e4m3fn --to bf16 --pipeline 3", "'dot4 e4m3fn*e4m3fn=bf16.rn' --pipeline 3"),
    ("dot posit8 --k 3 --order sequential", "dot3 posit8*posit8.rn order=sequential"),
    ("quire posit8", "quire posit8*posit8=posit8.rn"),
    ("quire e5m2 --pipeline 4 --round sr3", "'quire e5m2*e5m2=e5m2.sr3' --pipeline 4"),
    ("compare e5m2-ftz --pipeline 1", "'compare e5m2-ftz,e5m2-ftz.rn' --pipeline 1"),
    ("split fp32 --to bf16x3 --pipeline 2", "'split fp32>bf16x3.rn' --pipeline 2"),
    ("join e4m3 --round sr3", "join e4m3x2>e4m11.sr3"),
    ("partmac bf16 --acc fp32", "partmac bf16x2*bf16x2+fp32.rn"),
    ("sparsedot e4m3fn --to bf16 --sparsity 1:2", "sparsedot4 e4m3fn*e4m3fn=bf16.rn sparsity=1:2"),
    ("dotmac e4m3fn --acc bf16 --k 3", "dotmac3 e4m3fn*e4m3fn+bf16.rn"),
    ("sparsemac e4m3fn --acc bf16 --sparsity 1:2", "sparsemac e4m3fn*e4m3fn+bf16.rn sparsity=1:2"),
    ("div e4m3fn --round sr3", "div e4m3fn/e4m3fn.sr3"),
    ("reciprocal bf16 --pipeline 2", "'reciprocal bf16.rn' --pipeline 2"),
    ("sqrt posit8", "sqrt posit8.rn"),
    ("rsqrt posit8", "rsqrt posit8.rn"),
    ("rint e4m3 --round ru", "rint e4m3.ru"),
    ("requantize int8 --shift uint2 --to uint4", "requantize int8*fxp1.7,uint2>uint4.rn"),
    ("logb e5m2", "logb e5m2.rn"),
    (f"blockquantize bf16 --to {BLOCK}", f"'blockquantize bf16>{BLOCK}.rn'"),
    (f"blockdequantize {BLOCK} --to e5m2", f"'blockdequantize {BLOCK}>e5m2.rn'"),
    (f"blockdot {BLOCK} --pipeline 2", f"'blockdot2 {BLOCK}*{BLOCK}.rn' --pipeline 2"),
    (f"blockmac {BLOCK} --acc e4m3", f"'blockmac {BLOCK}*{BLOCK}+e4m3.rn'"),
]
UNITS += [
    (f"{name} e5m2", str(row.spec.filled(E5M2)))
    for name, row in CATALOGUE.items()
    if name not in {words.split()[0] for words, _ in UNITS}
]

MORE = [
    ("tile e5m2 --n 3 --m 2 --round sr10 --random lfsr16", "grid_3x2_e5m2_e5m2_e6m5_sr10_lfsr16"),
    (
        "tile posit8 --acc exact --to posit16 --n 2 --m 1 --depth 3 --pipeline 2",
        "chain_2x1_posit8_posit8_exact_posit16",
    ),
    ("tile fxp4.4 --n 1 --m 3", "grid_1x3_fxp4_4_fxp4_4_fxp8_8_rn"),
    ("tile e3m2 --depth 2 --rows 2 --round sr4 --random lfsr8", "chain_3x2_e3m2_e3m2_e4m5_sr4_lfsr8_d2_r2"),
    ("tile e4m3fn --depth 1 --vectors 4 --seed 9", "chain_3x2_e4m3fn"),
    ("tile e3m2 --round sr4 --random lfsr8 --sequence storm", "grid_3x2_e3m2_e3m2_e4m5_sr4_lfsr8"),
    ("tile e5m2 --sequence random", "grid_3x2_e5m2_e5m2_e6m5_rn"),
    *(
        (f"mac e2m1 --acc e3m1 --seed 3 --sequence {name}", "mac e2m1*e2m1+e3m1.rn")
        for name in ("exhaustive", "directed", "random", "chain", "storm")
    ),
    ("mac e5m2 --sequence regressions", "mac e5m2*e5m2+e6m5.rn"),
    ("mac e5m2 --vector 0x3c,0x40,0x001 --wave", "mac e5m2*e5m2+e6m5.rn"),
    (f"mul fp16 --test {OVERRIDES}:Rare", "mul fp16*fp16.rn"),
    (f"mul fp16 --test {OVERRIDES}:OtherFormat", "mul posit8*posit8=e5m2.rn"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("words", "title"), [TILE, *UNITS, *MORE] if EXHAUSTIVE else [TILE])
def test_uvm_passes_correct_units(words: str, title: str) -> None:
    """Includes a multiplier whose mistake the default sequence does not find."""
    code, text = command(*words.split())
    assert code == 0, text
    assert text.startswith(title)
    assert text.endswith("PASS\n")
    assert "mismatches  0\n" in text
    assert text.count("pyuvm  ") == (1 if words.startswith("tile") else 2)


def test_uvm_cases_cover_catalogue() -> None:
    assert {words.split()[0] for words, _ in UNITS} == set(CATALOGUE)


@pytest.mark.slow
def test_uvm_agents_work_in_another_design() -> None:
    """Active agents on its streams, and a passive agent around the unit inside."""
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
"""Request, test with an override, and kind of the failure, per check."""


@pytest.mark.slow
@pytest.mark.parametrize(("words", "test", "found"), PLANTED if EXHAUSTIVE else PLANTED[:1])
def test_uvm_finds_planted_fault(words: str, test: str, found: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first mutant is wrong for one pair of operands in 2^32, which another sequence contains."""
    if test == "BufferedTest":
        monkeypatch.setattr("halfulp.units.stream.Streamed", module_of(str(OVERRIDES)).Unheld)
    code, text = command(*words.split(), "--test", f"{OVERRIDES}:{test}")
    assert code == 1, text
    assert "\nFAIL\n" in text
    found_ = {line.split(": ")[0].removeprefix("pyuvm, ") for line in text.splitlines() if line.startswith("pyuvm, ")}
    assert found_ == set(found), text
    for channel, kind in found.items():
        assert f"pyuvm, {channel}: {kind}\n" in text
    if test == "RareAimed":
        assert text.startswith("mul fp16*fp16.rn\n")
        assert text.count("    300  observed on") == 2
        assert "again: halfulp sim 'mul fp16*fp16.rn' --vector 0x3c01,0x4201\n" in text
        assert "save:  halfulp save 'mul fp16*fp16.rn' --vector 0x3c01,0x4201\n" in text


# Parts ----------------------------------------------------------------------------------------------------------------


def test_operation_items_carry_formats() -> None:
    ports = Ports.inputs_of(build("mac", "e5m2"))
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
        Operand(Port("a", E5M2), 0x100)


def test_registered_watch_detects_moved_result() -> None:
    watch = Registered(latency=2, holds=True)
    shown = []
    # Operations 0 and 1, a stall, a cycle without operands, and another stall in which the result moves.
    words = [0, 0, 10, 10, 11, 12, 13]
    enables = [True, True, False, True, True, False, True]
    for word, enabled, vector in zip(words, enables, [0, 1, None, None, None, None, None], strict=True):
        shown.append(watch.see(word))
        watch.edge(enabled=enabled, vector=vector)
    kind = MOVED
    assert shown == [None, None, Entry(0, True), None, Entry(1, True), Entry(1, False), kind]


def test_stream_watch_detects_withdrawal_and_change() -> None:
    rule = Waiting()
    assert rule.see(True, False, 5) is None
    assert rule.see(True, False, 5) is None
    assert (rule.see(True, True, 6) or "")[0] == "payload"
    assert rule.see(True, False, 7) is None
    assert (rule.see(False, False, 7) or "")[0] == "withdrawn"
    assert rule.see(False, True, 0) is None


class Pin:
    """Stub of a simulator handle."""

    def __init__(self, value: int = 0) -> None:
        self.value = value


def test_combinational_watch_requires_stable_result() -> None:
    ports = Ports((Port("a", 8),))
    en, valid, a, o = Pin(), Pin(1), Pin(3), Pin(4)
    pins = Pins(clk=Pin(), inputs=Packed(a, ports), outputs=Packed(o, ports), latency=0, en=en, valid=valid)
    watch = pins.watch()
    assert watch.see() == []
    o.value = 5
    assert watch.see() == [MOVED]
    en.value = 1
    assert watch.see() == [5]
    assert pins.handshakes() == {"plain": {"en": True, "valid": True}}
    valid.value = 0
    assert watch.see() == []


def test_operands_taken_in_reset_are_ignored() -> None:
    ports, rst = Ports((Port("a", E4M3FN), Port("b", 3))), Pin(1)
    wires = Wires({"a": Pin(), "b": Pin()}, ports)
    pins = Pins(clk=Pin(), rst=rst, inputs=wires, outputs=wires, latency=1)
    pins.offer(0x755)
    assert (wires.read(), [handle.value for handle in wires.handles]) == (0x755, [0x55, 7])
    assert not pins.taken
    rst.value = 0
    assert pins.taken
    source = Source(clk=Pin(), rst=Pin(1), inputs=wires, valid=Pin(1), ready=Pin(1))
    assert not source.taken
    source.rst.value = 0
    assert source.taken
    assert source.handshakes() == {"input": {"valid": True, "ready": True}}
    source.offer(None, 0x2AA)
    assert (wires.read(), source.taken) == (0x2AA, False)
    wires.write(0x755)
    sink = Sink(clk=Pin(), outputs=wires, valid=Pin(1), ready=Pin(0))
    sink.grant(True)
    assert sink.watch().see() == [0x755]


def test_storm_pace_varies() -> None:
    pace = Pace(Random(1))
    gaps = [gap_of(pace) for _ in range(4000)]
    assert 0.2 < np.mean(np.array(gaps) == 0) < 0.95
    assert max(gaps) > 8


def test_exhaustive_sequence_rejects_large_units() -> None:
    ExhaustiveSequence.check(build("mul", "e5m2"), None)
    with pytest.raises(ValueError, match=r"2\^32 "):
        ExhaustiveSequence.check(build("mul", "fp16"), None)
    with pytest.raises(ValueError, match=r"2\^8 "):
        ExhaustiveSequence.check(build("mul", "e2m1"), 5)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("mac e1m2", "1 exponent bit"),
        ("frobnicate", "frobnicate"),
        ("mul e5m2 --sequence best", "unknown sequence 'best'"),
        ("mul e5m2 --sequence chain", "has no state"),
        ("mul e5m2 --n 3", "--n goes with"),
        ("mul e5m2 --vectors 0", "Invalid value for '--vectors'"),
        ("mul e5m2 --vector 1", "2 codes (a, b)"),
        ("all e5m2 --vector 1,2", "--vector goes with"),
        ("tile e5m2 --vector 1,2", "--vector goes with"),
        ("tile e5m2 --wave", "--wave goes with"),
        ("tile e5m2 --n 0", "n 0"),
        ("tile e5m2 --rows 2", "depth"),
        ("tile e5m2 --round sr4", "source"),
        ("mul e2m0 --sequence regressions", "no regressions"),
        ("tile e5m2 --sequence chain", "unknown sequence 'chain'"),
        ("mul e5m2 --test nothing", "invalid name 'nothing'"),
        ("mul e5m2 --test nothing.py:Test", "nothing.py"),
        ("mul e5m2 --test no.such:Test", "no.such"),
        (f"mul e5m2 --test {OVERRIDES}:Missing", "has no attribute 'Missing'"),
        (f"mul e5m2 --test {OVERRIDES}:Restless", "Restless is no test"),
        (f"mac e5m2 --wave --test {EXAMPLE}:DotProductTest", "no waveform"),
    ],
)
def test_uvm_rejects_bad_requests(words: str, sentence: str) -> None:
    code, text = command(*words.split())
    assert code == 2
    assert sentence in text
    assert "Traceback" not in text


def test_uvm_test_is_found_by_text() -> None:
    assert name_of(UnitTest) == "halfulp.sim.uvm.tests:UnitTest"
    assert class_of("halfulp.sim.uvm.tests:UnitTest") is UnitTest
    rare = class_of(f"{OVERRIDES}:Rare")
    assert name_of(rare) == f"{OVERRIDES}:Rare"
    assert class_of(name_of(rare)) is rare

    class Local(UnitTest):
        pass

    with pytest.raises(ValueError, match="top level of a file"):
        name_of(Local)


# Components without a simulator ---------------------------------------------------------------------------------------


@pytest.fixture
def made() -> Iterator[Callable[..., Any]]:
    """Return a function that builds components of a class for a unit."""
    uvm_root().clear_children()
    ConfigDB().clear()

    def make(kind: type[Any], unit: Any, **known: Any) -> Any:
        for label, value in ({"unit": unit, "channel": "plain", "seed": 1, "limit": None} | known).items():
            ConfigDB().set(None, "*", label, value)
        component = kind(kind.__name__, None)
        component.build_phase()
        return component

    yield make
    uvm_root().clear_children()
    ConfigDB().clear()


def operation(ports: Ports, *codes: int, epoch: int = 0, cycle: int = 0) -> Operation:
    """Return an observed operation."""
    item = Operation("observed").set(ports, dict(zip(ports.names, codes, strict=True)))
    item.epoch, item.cycle = epoch, cycle
    return item


class Heard:
    """Listener on an analysis port."""

    def __init__(self, port: Any) -> None:
        self.found: list[Any] = []
        port.connect(export("heard", port.parent, self.found.append))


def prediction(unit: Any, *, epoch: int = 0, cycle: int = 1) -> Prediction:
    """Return three products of e5m2: 1, 2 and 4."""
    codes = {"a": np.array([0x3C, 0x40, 0x40], dtype=np.uint64), "b": np.array([0x3C, 0x3C, 0x40], dtype=np.uint64)}
    return Prediction(epoch, 0, codes, {"o": np.array([0x3C, 0x40, 0x44], dtype=np.uint64)}, [cycle] * 3, False)


@pytest.mark.parametrize(
    ("epochs", "results", "cycle", "checked", "found"),
    [
        ([0], {0: [0x3C, 0x40, 0x44]}, 1, 3, []),
        ([0], {0: [0x3C, 0x41, 0x44]}, 1, 3, ["mismatch"]),
        ([0], {0: [0x3C, 0x40]}, 1, 2, ["count: the unit stopped after 3 operations and 2 results"]),
        ([0], {0: [0x3C, 0x40, 0x44, 0]}, 1, 3, ["count: there are 4 results; 3 are expected"]),
        ([0], {0: [0x3C, 0x40, 0x44], 1: [0]}, 1, 3, ["count: there are 1 results; 0 are expected"]),
        ([0], {0: [0x3C, 0x40, 0x44]}, 0, 3, ["count: a result appeared before its operands were accepted"]),
        # A reset removes operations in flight and nothing else.
        ([0, 1], {0: [0x3C], 1: [0x3C, 0x40, 0x44]}, 1, 4, []),
        ([0, 1], {0: [0x40], 1: [0x3C, 0x40, 0x44]}, 1, 4, ["mismatch"]),
    ],
)
def test_scoreboard_counts_and_compares(
    made: Callable[..., Any],
    epochs: list[int],
    results: dict[int, list[int]],
    cycle: int,
    checked: int,
    found: list[str],
) -> None:
    unit = build("mul", "e5m2")
    board = made(Scoreboard, unit)
    compared = Heard(board.compared)
    for epoch in epochs:
        board.predictions.write(prediction(unit, epoch=epoch))
    for epoch, codes in results.items():
        for code in codes:
            board.results.write(operation(Ports.of(unit.outputs), code, epoch=epoch, cycle=cycle))
    board.check_phase()
    assert board.check.checked == checked
    assert board.check.failed == len(found)
    texts = [f"{failure.kind}: {failure.text}" for failure in board.check.failures]
    assert [text[: len(wanted)] for text, wanted in zip(texts, found, strict=True)] == found
    assert sum(len(batch.got["o"]) for batch in compared.found) == checked


def test_broken_rule_fails_run(made: Callable[..., Any]) -> None:
    board = made(Scoreboard, build("mul", "e5m2"))
    for _ in range(20):
        board.broken.write(("stall", "it moved"))
    board.check_phase()
    assert board.check.failed == 20
    assert [failure.kind for failure in board.check.failures] == ["stall"] * 8


def test_reference_restarts_at_reset(made: Callable[..., Any]) -> None:
    """Sum 1 * 1 three times, and once after a reset; the golden sums restart at the reset."""
    unit = build("mac", "e5m2")
    reference = made(Reference, unit)
    heard = Heard(reference.ap)
    for epoch in (1, 1, 1, 3):
        reference.write(operation(Ports.inputs_of(unit), 0x3C, 0x3C, 0, 0, 0, epoch=epoch, cycle=epoch))
    reference.extract_phase()
    assert [(part.epoch, part.first, part.cycles, part.chained) for part in heard.found] == [
        (1, 0, [1, 1, 1], True),
        (3, 0, [3], True),
    ]
    assert [[E6M5.decode(code) for code in part.want["o"].tolist()] for part in heard.found] == [[1, 2, 3], [1]]


def test_reference_computes_in_chunks(made: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfulp.sim.uvm.reference.CHUNK", 2)
    unit = build("mul", "e5m2")
    reference = made(Reference, unit)
    heard = Heard(reference.ap)
    for code in (0x3C, 0x40, 0x44):
        reference.write(operation(Ports.inputs_of(unit), code, 0x3C))
    reference.extract_phase()
    assert [(part.first, part.want["o"].tolist()) for part in heard.found] == [(0, [0x3C, 0x40]), (2, [0x44])]


def test_tile_reference_predicts_from_streams(made: Callable[..., Any]) -> None:
    """Two tiles of 2 by 1; the second has a term less than it needs."""
    array = Grid(mac="int3*int3+int9.rn", n=2, m=1)
    reference = made(TileReference, array)
    heard = Heard(reference.ap)
    sent = {"tile": [(2,), (1,)], "a": [(1, 2), (3, 7), (1, 1)], "b": [(1,), (2,)]}
    for name, payloads in sent.items():
        for payload in payloads:
            reference.exports[name].write(operation(ports_of(array, name), *payload))
    reference.extract_phase()
    (part,) = heard.found
    # 1 * 1 + 3 * 2, and 2 * 1 - 1 * 2.
    assert part.want["c0"].tolist() == [7, 0]
    assert reference.due(0) == 4
    board = made(TileScoreboard, array)
    board.predictions.write(part)
    for code in (7, 1):
        board.results.write(operation(ports_of(array, "c"), code))
    board.check_phase()
    assert (board.check.checked, board.check.failed) == (2, 1)
    text = board.check.failures[0].text
    assert text.startswith("row 1, column 0 of a tile of 2 terms, 1 vectors after reset")
    assert "save:  halfulp save 'mac int3*int3+int9.rn' --vector '0x2,0x1,0x000,0x0,0x1;0x7,0x2,0x000,0x0,0x0'" in text


def test_coverage_collector_counts_compared_operations(made: Callable[..., Any]) -> None:
    unit = build("mul", "e5m2")
    collector = made(CoverageCollector, unit)
    part = prediction(unit)
    assert hits([collector.coverage]).startswith("coverage    0 of ")
    collector.write(Compared(part.codes, part.want, False))
    # A unit without registers never stalls, so it has no bins for stalls.
    collector.handshakes.write(("plain", {"en": np.ones(3, dtype=np.uint8), "valid": np.ones(3, dtype=np.uint8)}))
    collector.handshakes.write(("input", {"valid": np.array([1, 1, 0]), "ready": np.array([0, 1, 1])}))
    assert (collector.coverage.vectors, collector.coverage.cycles) == (3, 3)
    assert not hits([collector.coverage]).startswith("coverage    0 of ")


@pytest.mark.slow
def test_random_operations_meet_constraint(made: Callable[..., Any]) -> None:
    """Operations satisfy `AroundOne`; there are none if no code satisfies the constraint."""
    sequencer = made(uvm_sequencer, build("mul", "fp16"))
    overrides = module_of(str(OVERRIDES))
    sequence = overrides.AroundOne("sequence")
    sequence.sequencer = sequencer
    codes = sequence.vectors()
    assert len(codes["a"]) == len(codes["b"]) == 300
    assert (codes["a"] & codes["b"] & np.uint64(1)).all()
    ConfigDB().set(None, "*", "limit", 16)
    impossible = RandomSequence("sequence")
    impossible.sequencer = sequencer
    impossible.constraint = lambda codes: np.zeros(len(codes["a"]), dtype=bool)  # type: ignore[method-assign]  # replaced
    with pytest.raises(ValueError, match=r"only 0 of .* the constraint"):
        impossible.vectors()


def test_biased_pairs_have_close_exponents(made: Callable[..., Any]) -> None:
    """Exponents of biased pairs are closer than those of uniform codes."""
    sequencer = made(uvm_sequencer, build("add", "bf16"))

    def near(bias: float) -> float:
        sequence = RandomSequence("sequence")
        sequence.sequencer = sequencer
        sequence.bias = bias  # type: ignore[misc]  # replaced
        codes = sequence.vectors()
        a, b = ((codes[name] >> np.uint64(7) & np.uint64(0xFF)).astype(np.int64) for name in "ab")
        return float(np.mean(np.abs(a - b) < 12))

    assert near(0.0) < 0.15
    assert near(1.0) > 0.4
