"""Tests: what is built, and what runs on it."""

import os
from pathlib import Path
from typing import Any, ClassVar

import cocotb
from pyuvm import uvm_test

from halfulp.sim.ports import Ports
from halfulp.sim.protocol import start
from halfulp.sim.report import Check
from halfulp.sim.simulate import tell

from .collector import hits
from .dut import Dut
from .env import HarnessEnv, UnitEnv
from .interfaces import Interface, Packed, Pins, Sink, Source, Streams
from .job import Job, write_findings
from .scoreboard import Scoreboard
from .sequences import ITEMS, SEQUENCES


class UnitTest(uvm_test):
    """A unit of the catalogue and its stream wrapper, each with an agent on which a sequence runs.

    Derive from it to say in `overrides` what the factory makes in place of our classes, the `Dut` among them, which is
    asked for before there is a simulation.

    ConfigDB: ``job`` and ``unit``.
    """

    DUT: ClassVar[type[Any]] = Dut
    ENV: ClassVar[type[Any]] = HarnessEnv
    SEQUENCES: ClassVar[dict[str, type[Any]]] = SEQUENCES

    @classmethod
    def check(cls, job: Job, unit: Any) -> None:
        """Refuse a job that makes no sense for a unit.

        Raises
        ------
        ValueError
        """
        if job.sequence not in cls.SEQUENCES:
            raise ValueError(f"unknown sequence {job.sequence!r}; there are {', '.join(cls.SEQUENCES)}")
        cls.SEQUENCES[job.sequence].check(unit, job.limit)

    @classmethod
    def total(cls, job: Job) -> int:
        """Operations that will be told of, or so."""
        return 2 * (job.limit or ITEMS)

    @classmethod
    def overrides(cls) -> None:
        """Set overrides of the factory."""

    def build_phase(self) -> None:
        """Put what the environment needs into the ConfigDB, and build it."""
        super().build_phase()
        self.job: Job = self.cdb_get("job")
        self.unit: Any = self.cdb_get("unit")
        for label in ("seed", "limit", "vector"):
            self.cdb_set(label, getattr(self.job, label))
        self.cdb_set("told", tell)
        self.cdb_set("channel", "tile")
        self.cdb_set("interfaces", self.interfaces(cocotb.top))
        self.env = self.ENV.create("env", self)

    def interfaces(self, top: Any) -> dict[str, Interface]:
        """The two ways into the harness."""
        unit = self.unit
        inputs, outputs = Ports.of(unit.inputs), Ports.of(unit.outputs)
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
        source = Source(
            **clock,
            inputs=Packed(top.stream_inputs, inputs),
            valid=top.stream_i_valid,
            ready=top.stream_i_ready,
        )
        sink = Sink(
            **clock,
            outputs=Packed(top.stream_outputs, outputs),
            valid=top.stream_o_valid,
            ready=top.stream_o_ready,
        )
        return {"plain": plain, "stream": Streams(source, sink)}

    def stimulus(self) -> Any:
        """The sequence that runs; the factory may make another one of it."""
        kind = self.SEQUENCES[self.job.sequence]
        return kind.create(kind.__name__)

    async def begin(self, top: Any) -> None:
        """Start the clock and reset."""
        await start(top)

    async def stimulate(self) -> None:
        """Run the sequence on all agents at once, and wait until nothing is under way."""
        envs: list[UnitEnv] = list(self.env.envs.values())
        running = [cocotb.start_soon(self.stimulus().start(env.agent.sequencer)) for env in envs]
        for task in running:
            await task
        for env in envs:
            await env.drain()

    async def run_phase(self) -> None:
        """Begin, and run what there is to run."""
        self.raise_objection()
        await self.begin(cocotb.top)
        await self.stimulate()
        self.drop_objection()

    @property
    def scoreboards(self) -> list[Scoreboard]:
        """What checks."""
        return [env.scoreboard for env in self.env.envs.values()]

    @property
    def checks(self) -> list[Check]:
        """What the scoreboards found, after the check phase."""
        return [scoreboard.check for scoreboard in self.scoreboards]

    @property
    def notes(self) -> list[str]:
        """Further lines for the reader."""
        return [hits([env.collector.coverage for env in self.env.envs.values()])]

    def report_phase(self) -> None:
        """Leave what was found for the process that started the simulation."""
        super().report_phase()
        write_findings(Path(os.environ["HALFULP_JOB"]), self.checks, self.notes)

    def final_phase(self) -> None:
        """Fail the simulation's own test, too, where something is wrong or nothing was checked."""
        super().final_phase()
        for check in self.checks:
            assert check.checked > 0, f"{check.name}: nothing was checked"
            assert check.failed == 0, f"{check.name}: {check.failed} failures; the first: {check.failures[0].text}"
