"""Agents with drivers and monitors on both sides of a unit; a passive agent has only a monitor."""

import random
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from pyuvm import uvm_agent, uvm_analysis_port, uvm_driver, uvm_monitor, uvm_sequencer

from halfulp.sim.signals.interfaces import Interface, Watch, Word
from halfulp.sim.signals.rules import Broken

from .items import Operation


class Driver(uvm_driver):
    """Driver that offers each operation until the unit accepts it; without an operation the pins carry noise."""

    def build_phase(self) -> None:
        super().build_phase()
        self.interface: Interface = self.cdb_get("interface")
        self.noise = random.Random(self.cdb_get("seed"))
        self.width = self.interface.inputs.ports.width

    async def run_phase(self) -> None:
        self._rest()
        while True:
            await self.interface.edge()
            known, item = self.seq_item_port.try_next_item()
            if known:
                await self.drive(item)
                self.seq_item_port.item_done()
            else:
                self._rest()

    async def drive(self, item: Operation) -> None:
        """Drive an operation from an edge until it is accepted; the next one may follow without a gap."""
        if item.reset:
            self._rest()
            await self.interface.reset()
        for _ in range(item.gap):
            self._rest()
            await self.interface.edge()
        while True:
            self.interface.offer(item.word)
            await self.interface.middle()
            if self.interface.taken:
                return
            await self.interface.edge()

    def _rest(self) -> None:
        self.interface.offer(None, self.noise.getrandbits(self.width))


class Throttle(uvm_driver):
    """Driver of back-pressure in the patterns of `Grants`; without one, results are always accepted."""

    def build_phase(self) -> None:
        super().build_phase()
        self.interface: Interface = self.cdb_get("interface")

    async def run_phase(self) -> None:
        self.interface.grant(True)
        while True:
            known, item = self.seq_item_port.try_next_item()
            for granted in item.pattern if known else [True]:
                await self.interface.edge()
                self.interface.grant(granted)
            if known:
                self.seq_item_port.item_done()


class Monitor(uvm_monitor):
    """Monitor of every cycle after the first reset, which publishes operations.

    Members
    -------
    ap : uvm_analysis_port
        Observed operations.
    """

    def build_phase(self) -> None:
        super().build_phase()
        self.ap = uvm_analysis_port("ap", self)
        self.interface: Interface = self.cdb_get("interface")
        self.epoch = self.cycle = self.published = 0

    async def run_phase(self) -> None:
        before = False
        while True:
            await self.interface.cycle()
            self.cycle += 1
            resetting = self.interface.resetting
            if not resetting:
                if before:
                    self.epoch, self.published = self.epoch + 1, 0
                    self.after_reset()
                self.look()
            before = resetting

    def after_reset(self) -> None:
        """Discard the state from before the reset."""

    @abstractmethod
    def look(self) -> None:
        """Observe one cycle."""

    def publish(self, side: Word, word: int) -> None:
        """Publish the operation of a packed word."""
        item = Operation.create(self.get_name()).set_word(side.ports, word)
        item.epoch, item.cycle = self.epoch, self.cycle
        self.published += 1
        self.ap.write(item)


class OperandMonitor(Monitor):
    """Monitor of the operands that a unit accepts."""

    def look(self) -> None:
        if self.interface.taken:
            self.publish(self.interface.inputs, self.interface.inputs.read())


class ResultMonitor(Monitor):
    """Monitor of the results of a unit and of violated rules.

    Members
    -------
    broken : uvm_analysis_port
        Violated rules: kind of failure, and a sentence about it.
    handshakes : uvm_analysis_port
        At the end of each epoch: name of each side with the levels of its signals in each cycle.
    """

    def build_phase(self) -> None:
        super().build_phase()
        self.broken = uvm_analysis_port("broken", self)
        self.handshakes = uvm_analysis_port("handshakes", self)
        self._cycles: dict[str, dict[str, list[bool]]] = {}
        self.watch: Watch = self.interface.watch()

    def explain(self, expected: Sequence[int]) -> Broken | None:
        """Return a cause of wrong results other than arithmetic; ``expected`` are all words since the last reset."""
        return self.watch.explain(expected)

    def after_reset(self) -> None:
        self._publish_handshakes()
        self.watch = self.interface.watch()

    def look(self) -> None:
        for seen in self.watch.see():
            if isinstance(seen, int):
                self.publish(self.interface.outputs, seen)
            else:
                self.broken.write(seen)
        self.watch.step()
        for side, signals in self.interface.handshakes().items():
            columns = self._cycles.setdefault(side, {name: [] for name in signals})
            for name, level in signals.items():
                columns[name].append(level)

    def extract_phase(self) -> None:
        self._publish_handshakes()

    def _publish_handshakes(self) -> None:
        for side, signals in self._cycles.items():
            arrays = {name: np.array(levels, dtype=np.uint8) for name, levels in signals.items()}
            self.handshakes.write((side, arrays))
        self._cycles = {}


class SideAgent(uvm_agent):
    """Agent of one side of a unit.

    Members
    -------
    monitor : Monitor
    sequencer, driver
        Only in an active agent.
    """

    MONITOR: ClassVar[type[Any]]
    DRIVER: ClassVar[type[Any]]

    def build_phase(self) -> None:
        super().build_phase()
        self.monitor = self.MONITOR.create("monitor", self)
        if self.active():
            self.sequencer = uvm_sequencer.create("sequencer", self)
            self.driver = self.DRIVER.create("driver", self)

    def connect_phase(self) -> None:
        if self.active():
            self.driver.seq_item_port.connect(self.sequencer.seq_item_export)


class OperandAgent(SideAgent):
    """Agent of the operands; its sequencer takes `Operation` items."""

    MONITOR, DRIVER = OperandMonitor, Driver


class ResultAgent(SideAgent):
    """Agent of the results; its sequencer takes `Grants` items."""

    MONITOR, DRIVER = ResultMonitor, Throttle


class UnitAgent(uvm_agent):
    """Agent of both sides of a unit, with their ConfigDB entries.

    Members
    -------
    source : OperandAgent
    sink : ResultAgent
    """

    def build_phase(self) -> None:
        super().build_phase()
        self.source = OperandAgent.create("source", self)
        self.sink = ResultAgent.create("sink", self)

    def connect_phase(self) -> None:
        if self.active():
            # Sequences of operations also control the back-pressure of results.
            self.cdb_set("pacer", self.sink.sequencer)

    @property
    def under_way(self) -> int:
        """Number of accepted operations since the last reset without a result."""
        return int(self.source.monitor.published - self.sink.monitor.published)
