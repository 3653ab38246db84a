"""Agents with drivers and monitors on both sides of a unit; a passive agent has only a monitor."""

from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any, ClassVar

from pyuvm import uvm_agent, uvm_analysis_port, uvm_driver, uvm_monitor, uvm_sequencer

from halfulp.sim.protocol import levels_of
from halfulp.sim.signals import agents
from halfulp.sim.signals.interfaces import Interface, Word

from .items import Operation


class Driver(uvm_driver):
    """Driver that offers each operation until the unit accepts it, with the driver of `halfulp.sim.kit`."""

    def build_phase(self) -> None:
        super().build_phase()
        self.interface: Interface = self.cdb_get("interface")
        self.pins = agents.Driver(self.interface, seed=self.cdb_get("seed"))

    async def run_phase(self) -> None:
        self.pins.rest()
        # `Throttle` begins to wait for each edge before this driver, which depends on the clock enable, and runs first.
        await self.interface.middle()
        while True:
            await self.interface.edge()
            known, item = self.seq_item_port.try_next_item()
            if known:
                await self.drive(item)
                self.seq_item_port.item_done()
            else:
                self.pins.drive()
                await self.interface.middle()

    async def drive(self, item: Operation) -> None:
        """Drive an operation from an edge until it is accepted; the next one may follow without a gap."""
        if item.reset:
            self.pins.rest()
            await self.interface.reset()
        self.pins.gaps = chain(repeat(True, item.gap), repeat(False))
        self.pins.put(item.word)
        while True:
            self.pins.drive()
            await self.interface.middle()
            self.pins.look()
            if self.pins.done:
                return
            await self.interface.edge()


class Throttle(uvm_driver):
    """Driver of back-pressure in the patterns of `Grants`; without one, results are always accepted."""

    def build_phase(self) -> None:
        super().build_phase()
        self.interface: Interface = self.cdb_get("interface")
        self.pins = agents.Throttle(self.interface, self._stalls())

    async def run_phase(self) -> None:
        self.interface.grant(True)
        while True:
            await self.interface.edge()
            self.pins.drive()

    def _stalls(self) -> Iterator[bool]:
        while True:
            known, item = self.seq_item_port.try_next_item()
            yield from (not granted for granted in (item.pattern if known else [True]))
            if known:
                self.seq_item_port.item_done()


class Monitor(uvm_monitor):
    """Monitor of every cycle, which publishes operations that the monitor of `halfulp.sim.kit` observes.

    Members
    -------
    ap : uvm_analysis_port
        Observed operations.

    Attributes
    ----------
    published : int
        Number of operations since the last reset.
    """

    SIDES: ClassVar[dict[str, bool]]

    def build_phase(self) -> None:
        super().build_phase()
        self.ap = uvm_analysis_port("ap", self)
        self.interface: Interface = self.cdb_get("interface")
        self.epoch = self.cycle = self.published = 0
        self.pins = agents.Monitor(self.interface, Observed(self), **self.SIDES)

    async def run_phase(self) -> None:
        while True:
            await self.interface.cycle()
            self.cycle += 1
            self.pins.look()

    def after_reset(self) -> None:
        """Begin the next epoch."""
        self.epoch, self.published = self.epoch + 1, 0

    def publish(self, side: Word, word: int) -> None:
        """Publish the operation of a packed word."""
        item = Operation.create(self.get_name()).set_word(side.ports, word)
        item.epoch, item.cycle = self.epoch, self.cycle
        self.published += 1
        self.ap.write(item)


class Observed(agents.Board):
    """Receiver of what a monitor observes; the scoreboard is a component of its own."""

    paired = False

    def __init__(self, monitor: Any) -> None:
        super().__init__()
        self.monitor = monitor

    def operands(self, word: int) -> None:
        self.monitor.publish(self.monitor.interface.inputs, word)

    def result(self, word: int) -> None:
        self.monitor.publish(self.monitor.interface.outputs, word)

    def broken(self, kind: str, text: str) -> None:
        self.monitor.broken.write((kind, text))

    def reset(self) -> None:
        self.monitor.after_reset()


class OperandMonitor(Monitor):
    """Monitor of the operands that a unit accepts."""

    SIDES: ClassVar[dict[str, bool]] = {"results": False}


class ResultMonitor(Monitor):
    """Monitor of the results of a unit and of violated rules.

    Members
    -------
    broken : uvm_analysis_port
        Violated rules: kind of failure, and a sentence about it.
    handshakes : uvm_analysis_port
        At the end of each epoch: name of each side with the levels of its signals in each cycle.
    """

    SIDES: ClassVar[dict[str, bool]] = {"operands": False}

    def build_phase(self) -> None:
        super().build_phase()
        self.broken = uvm_analysis_port("broken", self)
        self.handshakes = uvm_analysis_port("handshakes", self)

    def after_reset(self) -> None:
        super().after_reset()
        self.extract_phase()

    def extract_phase(self) -> None:
        while self.pins.cycles:
            side, cycles = self.pins.cycles.popitem()
            self.handshakes.write((side, levels_of(cycles)))


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
