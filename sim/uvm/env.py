"""Environments: a unit with all that checks it, and the harness that has the unit twice."""

from collections.abc import Callable
from typing import Any

from pyuvm import uvm_env

from .agent import ResultMonitor, UnitAgent
from .collector import CoverageCollector
from .reference import Reference
from .scoreboard import Scoreboard

QUIET = 2000
"""Clock cycles without a result after which what is under way counts as lost."""

AFTER = 16
"""Clock cycles after the last result that show whether there are more than there should be."""


async def drain(results: ResultMonitor, done: Callable[[], bool]) -> None:
    """Wait until there have been all results and then no more, or none for so long that no more will come."""
    quiet, before = 0, -1
    while quiet < (AFTER if done() else QUIET):
        await results.interface.cycle()
        quiet = quiet + 1 if results.published == before else 0
        before = results.published


class UnitEnv(uvm_env):
    """All that checks one unit through one interface, be it the top of a simulation or inside another design.

    ConfigDB: ``unit``, ``interface``, ``channel`` (a name for reports), ``is_active``, and ``seed`` where it is active.
    """

    def build_phase(self) -> None:
        """Build the parts."""
        super().build_phase()
        self.agent = UnitAgent.create("agent", self)
        self.reference = Reference.create("reference", self)
        self.scoreboard = Scoreboard.create("scoreboard", self)
        self.collector = CoverageCollector.create("collector", self)

    def connect_phase(self) -> None:
        """Connect monitors with what listens to them."""
        super().connect_phase()
        self.agent.operands.ap.connect(self.reference.analysis_export)
        self.agent.results.ap.connect(self.scoreboard.results)
        self.agent.results.broken.connect(self.scoreboard.broken)
        self.reference.ap.connect(self.scoreboard.predictions)
        self.scoreboard.explain = self.agent.results.explain
        self.scoreboard.compared.connect(self.collector.analysis_export)
        self.agent.results.handshakes.connect(self.collector.handshakes)

    async def drain(self) -> None:
        """Wait until nothing is under way any more."""
        await drain(self.agent.results, lambda: self.agent.under_way == 0)


class HarnessEnv(uvm_env):
    """The plain unit and its stream wrapper, side by side.

    ConfigDB: what `UnitEnv` takes, and ``interfaces``, one for each of the two names.
    """

    def build_phase(self) -> None:
        """Build an environment for each interface."""
        super().build_phase()
        self.envs: dict[str, UnitEnv] = {}
        interfaces: dict[str, Any] = self.cdb_get("interfaces")
        for name, interface in interfaces.items():
            self.cdb_set("interface", interface, f"{name}.*")
            self.cdb_set("channel", name, f"{name}.*")
            self.envs[name] = UnitEnv.create(name, self)
