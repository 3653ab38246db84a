"""Cocotb tests for every unit: reset, stalls, latency, and streams with back-pressure.

This module runs inside the simulator, on packed words. The process that starts the simulator writes the words and the
reference results to the job's folder.
"""

import itertools
import json
import os
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
import numpy.typing as npt
from cocotb.triggers import FallingEdge

from .signals.agents import SILENT, STUCK, Bench, Monitor, Scoreboard, chance, paced, settle
from .signals.interfaces import Packed, Pins, Sink, Source, Streams, reset
from .signals.layout import Field, Layout
from .signals.rules import BUBBLES, STALLED, Fault

REPORTED = 512
"""Number of results between two progress reports."""


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
        self.layouts = {
            side: Layout(tuple(Field(str(number), width) for number, width in enumerate(known[side])))
            for side in ("inputs", "outputs")
        }

    def words(self, test: str, side: str) -> list[int]:
        """Return the packed words of a test."""
        table = np.load(self.folder / f"{test}-{side}.npy")
        lows = [low for _, low in self.layouts[side].slices()]
        if self.layouts[side].width <= 64:
            packed = np.zeros(len(table), dtype=np.uint64)
            for column, low in enumerate(lows):
                packed |= table[:, column] << np.uint64(low)
            return packed.tolist()
        return [sum(code << low for code, low in zip(row, lows, strict=True)) for row in table.tolist()]

    def word(self, dut: Any, name: str) -> Packed:
        """Return the packed word of a port of the harness, such as ``plain_inputs``."""
        return Packed(getattr(dut, name), self.layouts[name.rpartition("_")[2]])

    def plain(self, dut: Any) -> Pins:
        """Return the interface of the unit."""
        return Pins(
            clk=dut.clk,
            inputs=self.word(dut, "plain_inputs"),
            outputs=self.word(dut, "plain_outputs"),
            latency=self.latency,
            holds=self.holds,
            initiation=self.initiation,
            en=dut.plain_en,
            valid=dut.plain_valid if self.bubbles else None,
        )

    def stream(self, dut: Any) -> Streams:
        """Return the interface of the stream wrapper."""
        words = self.word(dut, "stream_inputs"), self.word(dut, "stream_outputs")
        source = Source(clk=dut.clk, inputs=words[0], valid=dut.stream_i_valid, ready=dut.stream_i_ready)
        sink = Sink(clk=dut.clk, outputs=words[1], valid=dut.stream_o_valid, ready=dut.stream_o_ready)
        return Streams(source, sink)


def levels_of(cycles: list[dict[str, bool]]) -> dict[str, npt.NDArray[np.uint8]]:
    """Return the levels of the handshake signals that a `Monitor` observed in clock cycles, one array per signal."""
    return {name: np.array([levels[name] for levels in cycles], dtype=np.uint8) for name in cycles[0]}


def report_progress(count: int) -> None:
    """Report ``count`` more vectors to the process that runs the simulator."""
    os.write(int(os.environ["HALFULP_PROGRESS"]), b"%d\n" % count)


class Outcome(Scoreboard):
    """Scoreboard of one test, whose counts and failures go to the process that runs the simulator."""

    def __init__(self, job: Job, test: str) -> None:
        super().__init__(job.words(test, "outputs"))
        self.job, self.test = job, test

    def result(self, word: int) -> None:
        super().result(word)
        if self.checked % REPORTED == 0:
            report_progress(REPORTED)

    def finish(self, monitor: Monitor | None = None) -> None:
        """Write the outcome, and fail the cocotb test if a check failed."""
        report_progress(self.checked % REPORTED)
        known = {
            "test": self.test,
            "checked": self.checked,
            "failed": self.failed,
            "failures": [asdict(fault) for fault in self.shown],
        }
        for side, cycles in (monitor.cycles if monitor else {}).items():
            np.savez(self.job.folder / f"{self.test}-{side}-cycles.npz", **levels_of(cycles))  # type: ignore[arg-type]  # names of arrays are no options
        (self.job.folder / f"{self.test}-outcome.json").write_text(json.dumps(known))
        self.check()


async def start(dut: Any) -> None:
    """Set all inputs to zero, start the clock and reset; afterwards the plain unit is stalled."""
    for name in ("rst", "plain_en", "plain_valid", "plain_inputs", "stream_inputs", "stream_i_valid", "stream_o_ready"):
        getattr(dut, name).value = 0
    await Bench(dut.clk, dut.rst).start()


@cocotb.test()
async def plain(dut: Any) -> None:
    """Test the unit on independent vectors."""
    job = Job()
    await start(dut)
    if job.clocked:
        await clocked(dut, job, "plain")
        return
    outcome, pins = Outcome(job, "plain"), job.plain(dut)
    await settle(pins.inputs, pins.outputs, job.words("plain", "inputs"), outcome)
    outcome.finish()


@cocotb.test()
async def chain(dut: Any) -> None:
    """Test the unit on chained steps from reset, after a reset that clears earlier steps."""
    job = Job()
    await start(dut)
    noise = random.Random(job.seed)
    dut.plain_en.value = dut.plain_valid.value = 1
    for _ in range(8):
        await FallingEdge(dut.clk)
        dut.plain_inputs.value = noise.getrandbits(job.layouts["inputs"].width)
    await FallingEdge(dut.clk)
    await reset(dut.clk, dut.rst)
    dut.plain_en.value = dut.plain_valid.value = 0
    await clocked(dut, job, "chain")


async def clocked(dut: Any, job: Job, test: str) -> None:
    """Test a unit with a clock.

    Results appear exactly ``latency`` enabled edges after their operands and hold in stalls; without latency, they
    appear in the cycle of their operands. The first quarter runs without stalls, to detect failures that need a stall.
    Inputs carry noise while the unit is stalled, busy, or its operands are invalid, which does not change the state.
    """
    words, outcome, noise = job.words(test, "inputs"), Outcome(job, test), random.Random(job.seed)
    calm = len(words) // 4 if job.latency else 0
    gaps = itertools.chain(itertools.repeat(False, calm * job.initiation), chance(BUBBLES, noise))
    stalls = itertools.chain(itertools.repeat(False, calm * job.initiation), chance(STALLED, noise))
    dut.plain_valid.value = int(not job.bubbles)
    # Outputs of registers are read at the falling edge too.
    bench, pins = Bench(dut.clk, late=not job.latency), job.plain(dut)
    driver = bench.drive(pins, words, gaps=gaps, stalls=stalls, seed=job.seed)
    monitor = bench.watch(pins, outcome)
    await bench.run(lambda: not outcome.done)
    assert driver.done
    diagnose(outcome, monitor, calm - job.latency)
    outcome.finish(monitor)


def diagnose(outcome: Outcome, monitor: Monitor, calm: int) -> None:
    """Report the cause of mismatches: a wrong latency, or a register that does not hold in a stall.

    Results before the index ``calm`` appear without stalls.
    """
    if not outcome.failed:
        return
    if (cause := monitor.explain(outcome.expected)) is not None:
        outcome.shown.insert(0, Fault(*cause))
    elif (outcome.first or 0) >= calm > 0 and all(failure.kind == "mismatch" for failure in outcome.shown):
        text = "results are wrong only with stalls: a register does not hold while the clock enable is low"
        outcome.shown.insert(0, Fault("stall", text))


@cocotb.test()
async def stream(dut: Any) -> None:
    """Test the stream wrapper with gaps at the input and back-pressure at the output."""
    job = Job()
    await start(dut)
    outcome, streams = Outcome(job, "stream"), job.stream(dut)
    gaps, stalls = paced(random.Random(job.seed))
    bench = Bench(dut.clk)
    driver = bench.drive(streams, job.words("stream", "inputs"), gaps=gaps, stalls=stalls, seed=job.seed)
    monitor = bench.watch(streams, outcome)

    def going() -> bool:
        most = STUCK if not outcome.done else SILENT
        return monitor.quiet < most and outcome.failed < len(outcome.expected) + 8

    await bench.run(going)
    if not outcome.done:
        text = f"the stream stopped after {driver.sent} operands and {outcome.checked} results"
        outcome.broken("count", text)
    outcome.finish(monitor)
