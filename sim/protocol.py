"""Cocotb tests for every unit: reset, stalls, latency, and streams with back-pressure.

This module runs inside the simulator, on packed words. The process that starts the simulator writes the words and the
reference results to the job's folder.
"""

import json
import os
import random
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, Timer

from .rules import BUBBLE, BUBBLES, MOVED, SHOWN, STALLED, Broken, Entry, Pace, Registered, Waiting, wrong_latency

REPORTED = 512
"""Number of results between two progress reports."""

PERIOD = 10
"""Clock period in nanoseconds."""

_QUIET = 2000
"""Number of clock cycles without a transfer after which a stream is stuck."""


class Job:
    """Files of a `UnitSimulation`: the unit's interface, and the input and output words of each test."""

    def __init__(self) -> None:
        self.folder = Path(os.environ["HALFULP_JOB"])
        known = json.loads((self.folder / "job.json").read_text())
        self.latency: int = known["latency"]
        self.initiation: int = known["initiation"]
        self.clocked: bool = known["clocked"]
        self.bubbles: bool = known["bubbles"]
        self.holds: bool = known["holds"]
        self.seed: int = known["seed"]
        self.widths: dict[str, list[int]] = {"inputs": known["inputs"], "outputs": known["outputs"]}

    def words(self, test: str, side: str) -> list[int]:
        """Return the packed words of a test."""
        table = np.load(self.folder / f"{test}-{side}.npy")
        lows = np.cumsum([0, *self.widths[side][:-1]])
        if sum(self.widths[side]) <= 64:
            packed = np.zeros(len(table), dtype=np.uint64)
            for column, low in enumerate(lows):
                packed |= table[:, column] << np.uint64(low)
            return packed.tolist()
        return [sum(code << int(low) for code, low in zip(row, lows, strict=True)) for row in table.tolist()]


def report_progress(count: int) -> None:
    """Report ``count`` more vectors to the process that runs the simulator."""
    os.write(int(os.environ["HALFULP_PROGRESS"]), b"%d\n" % count)


class Outcome:
    """Counts and failures of one test, for the process that runs the simulator."""

    def __init__(self, job: Job, test: str) -> None:
        self.job, self.test = job, test
        self.checked = self.failed = 0
        self.shown: list[dict[str, Any]] = []
        self.cycles: dict[str, list[tuple[int, int]]] = {}

    def fail(self, kind: str, text: str, index: int | None = None, got: int | None = None) -> None:
        """Record a failure, with the index of the vector and the packed result."""
        self.failed += 1
        if len(self.shown) < SHOWN:
            self.shown.append({"kind": kind, "text": text, "index": index, "got": hex(got or 0)})

    def cycle(self, side: str, first: int, second: int) -> None:
        """Record the two signals of a handshake at a clock edge."""
        self.cycles.setdefault(side, []).append((first, second))

    def result(self, index: int, got: int, expected: int) -> None:
        """Compare one result with its expected word."""
        self.checked += 1
        if self.checked % REPORTED == 0:
            report_progress(REPORTED)
        if got != expected:
            self.fail("mismatch", "", index, got)

    def finish(self) -> None:
        """Write the outcome, and fail the cocotb test if a check failed."""
        report_progress(self.checked % REPORTED)
        known = {"test": self.test, "checked": self.checked, "failed": self.failed, "failures": self.shown}
        for side, cycles in self.cycles.items():
            np.save(self.job.folder / f"{self.test}-{side}-cycles.npy", np.array(cycles, dtype=np.uint8))
        (self.job.folder / f"{self.test}-outcome.json").write_text(json.dumps(known))
        assert self.checked > 0, "nothing was checked"
        assert self.failed == 0, f"{self.failed} failures; the first: {self.shown[0]}"


async def start(dut: Any) -> None:
    """Set all inputs to zero, start the clock and reset."""
    for name in ("rst", "plain_en", "plain_valid", "plain_inputs", "stream_inputs", "stream_i_valid", "stream_o_ready"):
        getattr(dut, name).value = 0
    Clock(dut.clk, PERIOD, "ns").start()
    await reset(dut)


async def reset(dut: Any) -> None:
    """Hold reset for two clock edges; afterwards the plain unit is stalled."""
    await FallingEdge(dut.clk)
    dut.rst.value = 1
    await FallingEdge(dut.clk)
    await FallingEdge(dut.clk)
    dut.rst.value = dut.plain_en.value = dut.plain_valid.value = 0


@cocotb.test()
async def plain(dut: Any) -> None:
    """Test the unit on independent vectors."""
    job = Job()
    await start(dut)
    if job.latency:
        await feed(dut, job, "plain")
    elif job.clocked:
        await beside(dut, job)
    else:
        await settle(dut, job)


@cocotb.test()
async def chain(dut: Any) -> None:
    """Test the unit on chained steps from reset, after a reset that clears earlier steps."""
    job = Job()
    await start(dut)
    noise = random.Random(job.seed)
    dut.plain_en.value = dut.plain_valid.value = 1
    for _ in range(8):
        await FallingEdge(dut.clk)
        dut.plain_inputs.value = noise.getrandbits(sum(job.widths["inputs"]))
    await reset(dut)
    await feed(dut, job, "chain")


async def settle(dut: Any, job: Job) -> None:
    """Test a combinational unit: the result appears without a clock edge."""
    outcome = Outcome(job, "plain")
    dut.plain_en.value = dut.plain_valid.value = 1
    operand, output, pause = dut.plain_inputs, dut.plain_outputs, Timer(1, "ns")
    for index, (word, expected) in enumerate(
        zip(job.words("plain", "inputs"), job.words("plain", "outputs"), strict=True)
    ):
        operand.value = word
        await pause
        outcome.result(index, int(output.value), expected)
    outcome.finish()


async def beside(dut: Any, job: Job) -> None:
    """Test a unit with state but without latency: results appear in the cycle of their operands, also in a stall.

    A cycle without operands carries noise and does not change the state.
    """
    outcome = Outcome(job, "plain")
    noise, width = random.Random(job.seed), sum(job.widths["inputs"])
    middle, clock = Timer(PERIOD // 4, "ns"), FallingEdge(dut.clk)
    for index, (word, expected) in enumerate(
        zip(job.words("plain", "inputs"), job.words("plain", "outputs"), strict=True)
    ):
        accepted = False
        while not accepted:
            await clock
            enabled, valid = noise.random() < 0.75, noise.random() < 0.85
            accepted = enabled and valid
            dut.plain_en.value, dut.plain_valid.value = int(enabled), int(valid)
            outcome.cycle("plain", int(enabled), int(valid))
            dut.plain_inputs.value = word if valid else noise.getrandbits(width)
            await middle
            if accepted:
                outcome.result(index, int(dut.plain_outputs.value), expected)
            elif valid and int(dut.plain_outputs.value) != expected:
                outcome.fail(*MOVED, index)
    outcome.finish()


async def feed(dut: Any, job: Job, test: str) -> None:
    """Test a registered unit: results appear exactly ``latency`` enabled edges after their operands and hold in stalls.

    The first quarter runs without stalls, to detect failures that need a stall. Inputs carry noise while the unit is
    stalled or its operands are invalid. A unit that is not ready for ``initiation`` - 1 enabled cycles after operands
    ignores others meanwhile.
    """
    outcome, watch = Outcome(job, test), Registered(job.latency, job.holds)
    noise, width = random.Random(job.seed), sum(job.widths["inputs"])
    words, expected = job.words(test, "inputs"), job.words(test, "outputs")
    enable, valid, operand, output, clock = (
        dut.plain_en,
        dut.plain_valid,
        dut.plain_inputs,
        dut.plain_outputs,
        FallingEdge(dut.clk),
    )
    count, unstalled = len(words), len(words) // 4
    index, flushed, failed_unstalled, busy = 0, 0, 0, 0
    while flushed <= job.latency:
        await clock
        check(outcome, watch.see(word := int(output.value)), word, expected, max(index - 1, 0))
        if index <= unstalled:
            failed_unstalled = outcome.failed
        stalls = index >= unstalled
        stepped = not stalls or noise.random() >= STALLED
        bubble = job.bubbles and (index == count or (stalls and noise.random() < BUBBLES))
        enable.value, valid.value = int(stepped), int(not bubble)
        outcome.cycle("plain", int(stepped), int(not bubble))
        if stepped and not bubble and index < count and not busy:
            operand.value = words[index]
            watch.edge(enabled=True, vector=index)
            index, busy = index + 1, job.initiation - 1
            continue
        busy -= stepped and busy > 0
        operand.value = noise.getrandbits(width)
        watch.edge(enabled=stepped, vector=None)
        flushed += stepped and index == count
    diagnose(outcome, watch, expected, failed_unstalled)
    outcome.finish()


def check(outcome: Outcome, shown: Entry | Broken | None, word: int, expected: list[int], last: int) -> None:
    """Compare the output with the reference result; ``last`` is the latest vector in the unit."""
    match shown:
        case Entry(vector=int(index), fresh=True):
            outcome.result(index, word, expected[index])
        case Entry(vector=int(index)):
            if word != expected[index]:
                outcome.fail(*BUBBLE, index, word)
        case (kind, text):
            outcome.fail(str(kind), str(text), last, word)


def diagnose(outcome: Outcome, watch: Registered, expected: list[int], failed_unstalled: int) -> None:
    """Report the cause of mismatches: a wrong latency, or a register that does not hold in a stall."""
    if not outcome.failed:
        return
    if (other := watch.other_latency(expected)) is not None:
        kind, text = wrong_latency(other, watch.latency)
        outcome.shown.insert(0, {"kind": kind, "text": text, "index": None, "got": "0x0"})
    elif not failed_unstalled and all(failure["kind"] == "mismatch" for failure in outcome.shown):
        text = "results are wrong only with stalls: a register does not hold while the clock enable is low"
        outcome.shown.insert(0, {"kind": "stall", "text": text, "index": None, "got": "0x0"})


@cocotb.test()
async def stream(dut: Any) -> None:
    """Test the stream wrapper with gaps at the input and back-pressure at the output."""
    job = Job()
    await start(dut)
    outcome = Outcome(job, "stream")
    noise, width = random.Random(job.seed), sum(job.widths["inputs"])
    words, expected = job.words("stream", "inputs"), job.words("stream", "outputs")
    count, sent, received, quiet, offered = len(words), 0, 0, 0, False
    pace, waiting = Pace(noise), Waiting()
    clock, middle = FallingEdge(dut.clk), Timer(PERIOD // 4, "ns")
    # Run some cycles after the last result, to detect extra results.
    while received < count or quiet < 16:
        pace.step()
        await clock
        # An offered payload holds until its transfer; otherwise the payload is noise.
        offered = offered or (sent < count and noise.random() < pace.offers)
        ready = noise.random() < pace.takes
        dut.stream_i_valid.value, dut.stream_o_ready.value = int(offered), int(ready)
        dut.stream_inputs.value = words[sent] if offered else noise.getrandbits(width)
        await middle
        valid, word, taken = int(dut.stream_o_valid.value), int(dut.stream_outputs.value), int(dut.stream_i_ready.value)
        outcome.cycle("input", int(offered), taken)
        outcome.cycle("output", valid, int(ready))
        quiet += 1
        if broken := waiting.see(bool(valid), ready, word):
            outcome.fail(*broken, received, word)
        if valid and ready:
            quiet = 0
            if received < count:
                outcome.result(received, word, expected[received])
            else:
                outcome.fail("count", "the stream has more results than operands", None, word)
            received += 1
        if offered and taken:
            quiet, offered = 0, False
            sent += 1
        if received > sent:
            outcome.fail("count", "the stream has a result before its operands", None, word)
        if quiet > _QUIET or received > count + 8:
            break
    if received < count:
        outcome.fail("count", f"the stream stopped after {sent} operands and {received} results")
    outcome.finish()
