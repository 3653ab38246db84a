"""Parts of `halfulp.sim.kit`: its example, scoreboards, drivers and interfaces."""

import itertools
import random
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from amaranth.hdl import unsigned
from amaranth.lib import data

from halfulp.hdl.formats import E4M3FN, E5M2
from halfulp.hdl.specs import Build
from halfulp.hdl.specs.formula import Port
from halfulp.sim import kit
from halfulp.sim.kit import simulate
from halfulp.sim.ports import Ports
from halfulp.sim.reference import reference
from halfulp.units import Mac, Mul, Streamed
from halfulp.units.catalogue import component
from tests.settings import ROOT

EXAMPLE = ROOT / "examples/dot_product_kit.py"


class Handle:
    """Stub of a simulator handle."""

    def __init__(self, value: Any = 0) -> None:
        self.value = value


def test_kit_example_on_page_is_the_file() -> None:
    text = EXAMPLE.read_text()
    shown = text[text.index("import random") : text.index("\n\nif __name__")]
    assert f"```python\n{shown.rstrip()}\n```" in (ROOT / "docs/simulation.md").read_text()


@pytest.mark.slow
def test_kit_example_passes() -> None:
    answer = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, cwd=ROOT)
    assert (answer.returncode, answer.stdout) == (0, "PASS steps_and_totals_are_bit_exact\n"), answer.stderr


def scoreboard(unit: Any, words: list[int], change: int = 0) -> kit.Reference:
    """Return a scoreboard with operands and the results of the golden model, the last one with other bits."""
    board, ports = kit.Reference(unit, coverage=True), Ports.inputs_of(unit)
    results = reference(unit, ports.columns(words), chained=unit.stateful)["o"].tolist()
    results[-1] ^= change
    for word, result in zip(words, results, strict=True):
        board.operands(word)
        board.result(result)
    return board


@pytest.mark.parametrize("unit", [Mul(a=E5M2, b=E5M2, o=E5M2), Mac(a=E5M2, b=E5M2, acc=E5M2)])
def test_kit_reference_compares_results(unit: Any) -> None:
    words = kit.vectors(unit, 64)
    assert len(words) == 64
    board = scoreboard(unit, words)
    board.check()
    assert board.report.startswith(f"64 operations of {unit.name} compared, coverage")
    with pytest.raises(AssertionError, match="1 failures"):
        scoreboard(unit, words, change=1).check()


def test_kit_reference_begins_again_after_reset() -> None:
    """An accumulator starts from zero; the operation that the reset interrupts has no result."""
    unit = Mac(a=E5M2, b=E5M2, acc=E5M2)
    words = kit.vectors(unit, 32)
    board = scoreboard(unit, words)
    board.operands(words[0])
    board.reset()
    for part in zip(*scoreboard(unit, words)._parts[0], strict=True):
        board.operands(part[0])
        board.result(part[1])
    board.check()
    assert board.checked == 64


def test_kit_reference_requires_operations() -> None:
    board = kit.Reference(Mul(a=E5M2, b=E5M2, o=E5M2))
    with pytest.raises(AssertionError, match="no operation"):
        board.check()
    board.result(0)
    with pytest.raises(AssertionError, match="no operation"):
        board.check()


def test_kit_scoreboard_counts_failures() -> None:
    board = kit.Scoreboard([1, 2])
    with pytest.raises(AssertionError, match="nothing was checked"):
        board.check()
    board.result(1)
    board.check()
    board.result(3)
    board.result(0)
    assert (board.checked, board.failed, board.first, board.done) == (2, 2, 1, True)
    assert [failure.kind for failure in board.shown] == ["mismatch", "count"]
    with pytest.raises(AssertionError, match="2 failures"):
        board.check()


OF_ITERATIVE = """
import random

import cocotb

from halfulp.hdl.specs import Build
from halfulp.sim import kit
from halfulp.units.catalogue import component

UNIT = component("{text}", Build(iterations={bits}))


@cocotb.test()
async def every_result_is_bit_exact(dut):
    gaps, stalls = kit.paced(random.Random(2))
    board, bench = kit.Reference(UNIT, coverage=True), kit.Bench(dut.clk, dut.rst)
    interface = kit.{interface}(UNIT, dut)
    driver = bench.drive(interface, gaps=gaps, stalls=stalls)
    bench.watch(interface, board)
    async with bench:
        await driver.send(*kit.vectors(UNIT, 500))
    assert board.checked == 500
"""
"""Cocotb test of an iterative unit."""


@pytest.mark.slow
@pytest.mark.sampled(4, 4)
@pytest.mark.parametrize("text", ["div e4m3/e4m3=e5m2.port flags", "sqrt fp16.sr4@lfsr16", "remainder posit8,posit8"])
@pytest.mark.parametrize("interface", ["pins", "streams"])
def test_kit_drives_and_watches_iterative_units(text: str, interface: str, tmp_path: Path) -> None:
    """Operands wait for ``ready``, and results appear after the latency, with gaps and stalls on both sides."""
    unit = component(text, Build(iterations=3))
    file = tmp_path / f"kit_of_{unit.name}_{interface}.py"
    file.write_text(OF_ITERATIVE.format(text=text, bits=3, interface=interface))
    assert simulate(unit if interface == "pins" else Streamed(unit), file) == ["every_result_is_bit_exact"]
    if interface == "pins":
        # Results of a unit with another latency are in the wrong cycles, or none of them fit.
        file = tmp_path / f"wrong_kit_of_{unit.name}.py"
        file.write_text(OF_ITERATIVE.format(text=text, bits=2, interface=interface))
        with pytest.raises(AssertionError, match=r"cycles|failures"):
            simulate(unit, file)


def pins_of(ports: Ports, latency: int) -> kit.Pins:
    """Return pins with stubs of signals, which a driver drives."""
    known = {name: Handle() for name in ("en", "valid")}
    words = kit.Packed(Handle(), ports), kit.Packed(Handle(), ports)
    return kit.Pins(clk=Handle(), inputs=words[0], outputs=words[1], latency=latency, **known)


def test_kit_driver_hides_operands_in_stalls() -> None:
    """Operands are on the pins in each cycle that accepts them, and noise is on them in a stall."""
    pins = pins_of(Ports((Port("a", 64),)), latency=1)
    stalls = itertools.cycle([False, True])
    driver, throttle = kit.Driver(pins, [5, 6], gaps=iter([True] + [False] * 9)), kit.Throttle(pins, stalls)
    seen = []
    for _ in range(6):
        throttle.drive()
        driver.drive()
        seen.append((pins.enabled, pins.offered, pins.inputs.read() in (5, 6)))
        driver.look()
    assert seen == [
        (True, False, False),
        (False, True, False),
        (True, True, True),
        (False, True, False),
        (True, True, True),
        (False, False, False),
    ]
    assert (driver.done, driver.sent) == (True, 2)


def test_kit_pins_accept_no_operands_while_busy() -> None:
    pins = pins_of(Ports((Port("a", 8),)), latency=3)
    pins.initiation = 3
    watch, accepted = pins.watch(), []
    pins.grant(True)
    for _ in range(7):
        pins.offer(1)
        accepted.append(pins.taken)
        watch.step()
    assert accepted == [True, False, False, True, False, False, True]


def test_kit_words_align_to_bytes_and_detect_padding() -> None:
    ports, handle = Ports((Port("a", 3), Port("b", 9), Port("c", 8))), Handle()
    word = kit.Aligned(handle, ports)
    word.write(ports.pack([5, 0x155, 0xFF]))
    assert handle.value == 5 | 0x155 << 8 | 0xFF << 24
    assert ports.unpack(word.read()) == [5, 0x155, 0xFF]
    handle.value |= 1 << 7
    assert word.read() == -1


def test_kit_words_with_unknown_bits_equal_no_result() -> None:
    ports = Ports((Port("a", 8), Port("b", 8)))
    assert kit.Packed(Handle("X"), ports).read() == -1
    assert kit.Wires({"a": Handle(3), "b": Handle("X")}, ports).read() == -1


def test_kit_inverts_active_low_signals() -> None:
    handle = Handle(0)
    reset = kit.ActiveLow(handle)
    assert reset.value == 1
    reset.value = 0
    assert handle.value == 1


def test_kit_gaps_and_stalls_vary() -> None:
    gaps, stalls = kit.paced(random.Random(1))
    pairs = [(next(stalls), next(gaps)) for _ in range(4000)]
    assert set(pairs) == set(itertools.product((False, True), repeat=2))
    chances = kit.chance(0.25, random.Random(1))
    assert 900 < sum(next(chances) for _ in range(4000)) < 1100


def test_kit_expected_compares_fewer_results_than_operands() -> None:
    """One result for three operands; ``missing`` is never negative, and a reset interrupts a sum."""
    board = kit.Expected(lambda words: [sum(words[i : i + 3]) for i in range(0, len(words) - 2, 3)])
    for word in (1, 2, 3, 4, 5):
        board.operands(word)
    assert board.missing == 1
    board.result(6)
    assert board.missing == 0
    board.reset()
    for word in (7, 8, 9):
        board.operands(word)
    assert board.missing == 1
    board.result(24)
    board.result(25)
    assert board.missing == 0
    with pytest.raises(AssertionError, match="2 results; 1 are expected"):
        board.check()
    with pytest.raises(AssertionError, match="no result was observed"):
        kit.Expected(lambda words: words).check()
    wrong = kit.Expected(lambda words: [word + 1 for word in words])
    for word in (1, 2):
        wrong.operands(word)
        wrong.result(2)
    with pytest.raises(AssertionError, match="result 1: 0x2, expected 0x3"):
        wrong.check()


def test_kit_monitors_of_separate_streams_share_a_scoreboard() -> None:
    """A monitor of results alone counted each of them as one operation less."""
    ports, board = Ports.of({"x": E5M2}), kit.Reference(Mul(a=E5M2, b=E5M2, o=E5M2))
    levels = {"valid": Handle(1), "ready": Handle(1)}
    sink = kit.Sink(clk=Handle(), outputs=kit.Packed(Handle(5), ports), **levels)
    monitor = kit.Monitor(sink, board)
    monitor.look()
    assert monitor.missing == 0


def test_kit_driver_stops_at_stuck_designs() -> None:
    levels = {"valid": Handle(0), "ready": Handle(0)}
    stuck = kit.Source(clk=Handle(), inputs=kit.Packed(Handle(), Ports.of({"x": E5M2})), **levels)
    driver = kit.Driver(stuck, limit=10)
    sending = driver.send(1, 2)
    sending.send(None)
    for _ in range(10):
        driver.drive()
        driver.look()
    with pytest.raises(AssertionError, match="stopped after 0 operands"):
        sending.send(None)


def test_kit_takes_layouts_of_amaranth() -> None:
    class Term(data.Struct):
        x: E4M3FN
        last: unsigned(1)

    def widths(shapes: Any) -> dict[str, int]:
        handle = SimpleNamespace(clk=0, rst=0, i__payload=0, i__valid=0, i__ready=0)
        return {port.name: port.width for port in kit.source(handle, "i", shapes).inputs.ports}

    assert widths({"x": E4M3FN, "last": 1}) == widths(Term) == widths(data.StructLayout({"x": E4M3FN, "last": 1}))
    assert widths(Term) == {"x": 8, "last": 1}
    assert widths(data.ArrayLayout(E5M2, 2)) == {"0": 8, "1": 8}
    assert widths(E5M2) == {"payload": 8}
    assert widths(unsigned(3)) == widths(3) == {"payload": 3}
    assert widths(data.StructLayout({"pair": data.ArrayLayout(E5M2, 2), "n": range(5)})) == {"pair": 16, "n": 3}
    with pytest.raises(ValueError, match=r"field b of .* begins at bit 0"):
        widths(data.UnionLayout({"a": 3, "b": 4}))
    with pytest.raises(ValueError, match="3 of its 8 bits"):
        widths(data.FlexibleLayout(8, {"a": data.Field(unsigned(3), 0)}))


FAILING = """
import cocotb
from halfulp.sim import kit
from halfulp.hdl.specs import Build
from halfulp.units.catalogue import component

UNIT = component("mul e5m2*e5m2=e5m2", Build(pipeline=1))


@cocotb.test()
async def another_result_is_expected(dut):
    bench = kit.Bench(dut.clk, dut.rst)
    streams = kit.streams(UNIT, dut)
    driver = bench.drive(streams)
    bench.watch(streams, kit.Expected(lambda words: [0x11] * (len(words) // 2)))
    async with bench:
        await driver.send(*kit.vectors(UNIT, 20))
"""


@pytest.mark.slow
def test_kit_keeps_the_log_that_a_failure_names(tmp_path: Path) -> None:
    file = tmp_path / "kit_that_fails.py"
    file.write_text(FAILING)
    with pytest.raises(AssertionError, match="20 results; 10 are expected") as failure:
        simulate(Streamed(component("mul e5m2*e5m2=e5m2", Build(pipeline=1))), file)
    log = re.search(r"whole log: (.*)\)", str(failure.value))
    assert log is not None
    assert "another_result_is_expected" in Path(log[1]).read_text()


def test_kit_rejects_files_without_tests_and_units_without_clock(tmp_path: Path) -> None:
    file = tmp_path / "no_kit_tests.py"
    file.write_text("x = 1\n")
    unit = Mul(a=E4M3FN, b=E4M3FN, o=E4M3FN)
    with pytest.raises(ValueError, match="no cocotb test"):
        simulate(unit, file)
    with pytest.raises(ValueError, match="clk="):
        kit.pins(unit, object())


def test_kit_bench_refuses_limits_that_are_no_cycles() -> None:
    for limit in (0, -1, 2.5):
        with pytest.raises(ValueError, match="positive number of clock cycles"):
            kit.Bench(Handle(), limit=limit)  # type: ignore[arg-type]
