"""Environments: a unit with all that checks it, and the harness that has the unit twice."""

from collections.abc import Callable
from typing import Any

from pyuvm import uvm_env

from .agent import ResultMonitor, UnitAgent
from .collector import CoverageCollector
from .reference import Reference
from .scoreboard import Scoreboard

QUIET = 2000
"""Clock cycles without a result after which operations under way count as lost."""

AFTER = 16
"""Clock cycles after the last result, in which there must be no other."""


async def drain(results: ResultMonitor, done: Callable[[], bool]) -> None:
    """Wait until there have been all results and then no more, or none for so long that no more will come."""
    quiet, before = 0, -1
    while quiet < (AFTER if done() else QUIET):
        await results.interface.cycle()
        quiet = quiet + 1 if results.published == before else 0
        before = results.published


class UnitEnv(uvm_env):
    """All that checks one unit through one interface: the top of a simulation, or a part of another design.

    ConfigDB: ``unit``, ``interface``, ``channel`` (a name for reports), ``is_active``, and ``seed`` where it is active.
    """

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
        self.scoreboard.explain = results.explain
        self.scoreboard.compared.connect(self.collector.analysis_export)
        results.handshakes.connect(self.collector.handshakes)

    async def drain(self) -> None:
        """Wait until nothing is under way any more."""
        await drain(self.agent.sink.monitor, lambda: self.agent.under_way == 0)


class HarnessEnv(uvm_env):
    """The plain unit and its stream wrapper, side by side.

    ConfigDB: the entries of `UnitEnv`, and ``interfaces``, one for each of the two names.
    """

    def build_phase(self) -> None:
        self.envs: dict[str, UnitEnv] = {}
        interfaces: dict[str, Any] = self.cdb_get("interfaces")
        for name, interface in interfaces.items():
            self.cdb_set("interface", interface, f"{name}.*")
            self.cdb_set("channel", name, f"{name}.*")
            self.envs[name] = UnitEnv.create(name, self)
