"""Tests of a unit in its harness, and the test that cocotb runs."""

import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import cocotb
from pyuvm import ConfigDB, uvm_root, uvm_test

from halfulp.sim.coverage.collect import hits
from halfulp.sim.ports import Ports
from halfulp.sim.protocol import report_progress, start
from halfulp.sim.report import Check
from halfulp.sim.signals.interfaces import Interface, Packed, Pins, Sink, Source, Streams

from .dut import Dut
from .env import HarnessEnv, UnitEnv
from .job import FOUND, JOB, Job, class_of, prepare
from .scoreboard import Scoreboard
from .sequences import ITEMS, SEQUENCES

if TYPE_CHECKING:
    from halfulp.units import Unit


class UnitTest(uvm_test):
    """Test of a unit and its stream wrapper, each with an agent on which a sequence runs.

    A derived class sets factory overrides in `overrides`, including that of the `Dut`, which exists before the
    simulation.

    ConfigDB: ``job`` and ``unit``.
    """

    DUT: ClassVar[type[Any]] = Dut
    ENV: ClassVar[type[Any]] = HarnessEnv
    SEQUENCES: ClassVar[dict[str, type[Any]]] = SEQUENCES

    @classmethod
    def check(cls, job: Job, unit: "Unit") -> None:
        """Raise ValueError for a job that does not fit the unit."""
        if job.sequence not in cls.SEQUENCES:
            raise ValueError(f"unknown sequence {job.sequence!r}: expected {', '.join(cls.SEQUENCES)}")
        cls.SEQUENCES[job.sequence].check(unit, job.limit)

    @classmethod
    def total(cls, job: Job) -> int:
        """Estimate the number of operations, for progress reports."""
        return 2 * (job.limit or ITEMS)

    @classmethod
    def overrides(cls) -> None:
        """Set factory overrides."""

    def build_phase(self) -> None:
        self.job: Job = self.cdb_get("job")
        self.unit: Unit = self.cdb_get("unit")
        for label in ("seed", "limit", "vector"):
            self.cdb_set(label, getattr(self.job, label))
        self.cdb_set("progress", report_progress)
        self.cdb_set("channel", "tile")
        self.cdb_set("interfaces", self.interfaces(cocotb.top))
        self.env = self.ENV.create("env", self)

    def interfaces(self, top: Any) -> dict[str, Interface]:
        """Return the interfaces of the harness, by name."""
        unit = self.unit
        inputs, outputs = Ports.inputs_of(unit), Ports.of(unit.outputs)
        clock = {"clk": top.clk, "rst": top.rst}
        plain = Pins(
            **clock,
            inputs=Packed(top.plain_inputs, inputs),
            outputs=Packed(top.plain_outputs, outputs),
            latency=unit.latency,
            holds=unit.stateful,
            en=top.plain_en,
            valid=top.plain_valid,
        )
        words = Packed(top.stream_inputs, inputs), Packed(top.stream_outputs, outputs)
        source = Source(**clock, inputs=words[0], valid=top.stream_i_valid, ready=top.stream_i_ready)
        sink = Sink(**clock, outputs=words[1], valid=top.stream_o_valid, ready=top.stream_o_ready)
        return {"plain": plain, "stream": Streams(source, sink)}

    def stimulus(self) -> Any:
        """Create the sequence of the job through the factory."""
        kind = self.SEQUENCES[self.job.sequence]
        return kind.create(kind.__name__)

    async def begin(self, top: Any) -> None:
        """Start the clock and reset."""
        await start(top)

    async def stimulate(self) -> None:
        """Run the sequence on all agents in parallel, and wait until no operation is pending."""
        envs: list[UnitEnv] = list(self.env.envs.values())
        running = [cocotb.start_soon(self.stimulus().start(env.agent.source.sequencer)) for env in envs]
        for task in running:
            await task
        for env in envs:
            await env.drain()

    async def run_phase(self) -> None:
        self.raise_objection()
        await self.begin(cocotb.top)
        await self.stimulate()
        self.drop_objection()

    @property
    def scoreboards(self) -> list[Scoreboard]:
        """All scoreboards of the environment."""
        return [env.scoreboard for env in self.env.envs.values()]

    @property
    def checks(self) -> list[Check]:
        """Checks of the scoreboards, after the check phase."""
        return [scoreboard.check for scoreboard in self.scoreboards]

    @property
    def notes(self) -> list[str]:
        """Additional lines of the report."""
        return [hits([env.collector.coverage for env in self.env.envs.values()])]

    def report_phase(self) -> None:
        (Path(os.environ["HALFULP_JOB"]) / FOUND).write_bytes(pickle.dumps((self.checks, self.notes)))

    def final_phase(self) -> None:
        # The cocotb test also fails if a check failed or compared nothing.
        for check in self.checks:
            assert check.checked > 0, f"{check.name}: nothing was checked"
            assert check.failed == 0, f"{check.name}: {check.failed} failures; the first: {check.failures[0].text}"


@cocotb.test()
async def uvm(_dut: Any) -> None:
    """Prepare the factory and the ConfigDB, and run the test of the job."""
    job: Job = pickle.loads((Path(os.environ["HALFULP_JOB"]) / JOB).read_bytes())
    test = class_of(job.test)
    _, unit = prepare(test, job.request)
    ConfigDB().set(None, "*", "job", job)
    ConfigDB().set(None, "*", "unit", unit)
    await uvm_root().run_test(test, keep_singletons=True)
