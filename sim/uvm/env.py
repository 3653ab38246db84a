"""Environments: one for a unit, and one for the harness with the unit and its stream wrapper."""

from collections.abc import Callable
from typing import Any

from pyuvm import uvm_env

from halfulp.sim.signals.agents import SILENT, STUCK

from .agent import ResultMonitor, UnitAgent
from .collector import CoverageCollector
from .reference import Reference
from .scoreboard import Scoreboard


async def drain(results: ResultMonitor, done: Callable[[], bool]) -> None:
    """Wait for all results and for the absence of extra ones, or until pending results count as lost."""
    results.pins.quiet = 0
    while results.pins.quiet < (SILENT if done() else STUCK):
        await results.interface.cycle()


class UnitEnv(uvm_env):
    """Environment that checks one unit through one interface, at the top of a simulation or inside another design."""

    def build_phase(self) -> None:
        self.agent = UnitAgent.create("agent", self)
        self.reference = Reference.create("reference", self)
        self.scoreboard = Scoreboard.create("scoreboard", self)
        self.collector = CoverageCollector.create("collector", self)

    def connect_phase(self) -> None:
        results = self.agent.sink.monitor
        self.agent.source.monitor.ap.connect(self.reference.analysis_export)
        results.ap.connect(self.scoreboard.results)
        results.broken.connect(self.scoreboard.broken)
        self.reference.ap.connect(self.scoreboard.predictions)
        self.scoreboard.explain = results.pins.explain
        self.scoreboard.compared.connect(self.collector.analysis_export)
        results.handshakes.connect(self.collector.handshakes)

    async def drain(self) -> None:
        """Wait until no operation is pending."""
        await drain(self.agent.sink.monitor, lambda: self.agent.under_way == 0)


class HarnessEnv(uvm_env):
    """Environment of the unit and its stream wrapper."""

    def build_phase(self) -> None:
        self.envs: dict[str, UnitEnv] = {}
        interfaces: dict[str, Any] = self.cdb_get("interfaces")
        for name, interface in interfaces.items():
            self.cdb_set("interface", interface, f"{name}.*")
            self.cdb_set("channel", name, f"{name}.*")
            self.envs[name] = UnitEnv.create(name, self)
