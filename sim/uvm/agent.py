"""The agent: drivers and monitors on both sides of a unit. A passive one only watches."""

import random
from collections.abc import Sequence

import numpy as np
from pyuvm import uvm_agent, uvm_analysis_port, uvm_driver, uvm_monitor, uvm_sequencer

from halfulp.sim.ports import Ports
from halfulp.sim.rules import Broken

from .interfaces import Interface, Watch
from .items import Operation


class Driver(uvm_driver):
    """Offers operations to a unit, each until it is taken; between them the pins carry noise.

    ConfigDB: ``interface`` and ``seed``.
    """

    def build_phase(self) -> None:
        """Take the interface."""
        super().build_phase()
        self.interface: Interface = self.cdb_get("interface")
        self.noise = random.Random(self.cdb_get("seed"))
        self.width = self.interface.inputs.ports.width

    async def run_phase(self) -> None:
        """Drive one operation after the other."""
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
        """Drive one operation, from an edge on until it is known to be taken: the next may follow without a gap."""
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
    """Holds results up, as long as it is told to; without a word they go on.

    ConfigDB: ``interface``.
    """

    def build_phase(self) -> None:
        """Take the interface."""
        super().build_phase()
        self.interface: Interface = self.cdb_get("interface")

    async def run_phase(self) -> None:
        """Follow one pattern after the other."""
        self.interface.grant(True)
        while True:
            known, item = self.seq_item_port.try_next_item()
            if not known:
                await self.interface.edge()
                self.interface.grant(True)
                continue
            for granted in item.pattern:
                await self.interface.edge()
                self.interface.grant(granted)
            self.seq_item_port.item_done()


class Monitor(uvm_monitor):
    """Sees every cycle from the first reset on, and publishes what it shows.

    ConfigDB: ``interface``.

    Members
    -------
    ap : uvm_analysis_port
        Operations.
    """

    def build_phase(self) -> None:
        """Take the interface."""
        super().build_phase()
        self.ap = uvm_analysis_port("ap", self)
        self.interface: Interface = self.cdb_get("interface")
        self.ports = self.watched()
        self.epoch = self.cycle = self.published = 0

    def watched(self) -> Ports:
        """The ports whose codes are published."""
        raise NotImplementedError

    async def run_phase(self) -> None:
        """Look at every cycle; those of a reset part one epoch from the next."""
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
        """Forget what was before the reset."""

    def look(self) -> None:
        """Look at one cycle."""
        raise NotImplementedError

    def publish(self, word: int) -> None:
        """Publish the operation of a packed word."""
        item = Operation.create(self.get_name()).set_word(self.ports, word)
        item.epoch, item.cycle = self.epoch, self.cycle
        self.published += 1
        self.ap.write(item)


class OperandMonitor(Monitor):
    """Publishes the operands that a unit takes."""

    def watched(self) -> Ports:
        """The inputs."""
        return self.interface.inputs.ports

    def look(self) -> None:
        """Look at one cycle."""
        if self.interface.taken:
            self.publish(self.interface.inputs.read())


class ResultMonitor(Monitor):
    """Publishes the results that a unit gives, and what it does that it must not.

    Members
    -------
    broken : uvm_analysis_port
        Kind of failure, and a sentence about it.
    handshakes : uvm_analysis_port
        At its end the handshakes of each epoch: a side's name, and for each signal what it was, cycle by cycle.
    """

    def build_phase(self) -> None:
        """Begin to watch."""
        super().build_phase()
        self.broken = uvm_analysis_port("broken", self)
        self.handshakes = uvm_analysis_port("handshakes", self)
        self._cycles: dict[str, dict[str, list[bool]]] = {}
        self.watch: Watch = self.interface.watch()

    def watched(self) -> Ports:
        """The outputs."""
        return self.interface.outputs.ports

    def explain(self, expected: Sequence[int]) -> Broken | None:
        """Why results are wrong, where it is not arithmetic; ``expected`` are all since the last reset, as words."""
        return self.watch.explain(expected)

    def after_reset(self) -> None:
        """Watch anew."""
        self._tell_handshakes()
        self.watch = self.interface.watch()

    def look(self) -> None:
        """Look at one cycle."""
        for seen in self.watch.see():
            if isinstance(seen, int):
                self.publish(seen)
            else:
                self.broken.write(seen)
        for side, signals in self.interface.handshakes().items():
            columns = self._cycles.setdefault(side, {name: [] for name in signals})
            for name, level in signals.items():
                columns[name].append(level)

    def extract_phase(self) -> None:
        """Publish the handshakes of the last epoch."""
        super().extract_phase()
        self._tell_handshakes()

    def _tell_handshakes(self) -> None:
        told, self._cycles = self._cycles, {}
        for side, signals in told.items():
            arrays = {name: np.array(levels, dtype=np.uint8) for name, levels in signals.items()}
            self.handshakes.write((side, arrays))


class OperandAgent(uvm_agent):
    """The side of operands.

    ConfigDB: ``interface``, ``is_active``, and ``seed`` where it is active.

    Members
    -------
    monitor : OperandMonitor
    sequencer, driver
        Of an active one: where operations come from, and what drives them.
    """

    def build_phase(self) -> None:
        """Build the monitor, and the driver where the agent is active."""
        super().build_phase()
        self.monitor = OperandMonitor.create("monitor", self)
        if self.active():
            self.sequencer = uvm_sequencer.create("sequencer", self)
            self.driver = Driver.create("driver", self)

    def connect_phase(self) -> None:
        """Connect the driver."""
        super().connect_phase()
        if self.active():
            self.driver.seq_item_port.connect(self.sequencer.seq_item_export)


class ResultAgent(uvm_agent):
    """The side of results.

    ConfigDB: ``interface`` and ``is_active``.

    Members
    -------
    monitor : ResultMonitor
    sequencer, throttle
        Of an active one: where `Grants` come from, and what follows them.
    """

    def build_phase(self) -> None:
        """Build the monitor, and the throttle where the agent is active."""
        super().build_phase()
        self.monitor = ResultMonitor.create("monitor", self)
        if self.active():
            self.sequencer = uvm_sequencer.create("sequencer", self)
            self.throttle = Throttle.create("throttle", self)

    def connect_phase(self) -> None:
        """Connect the throttle."""
        super().connect_phase()
        if self.active():
            self.throttle.seq_item_port.connect(self.sequencer.seq_item_export)


class UnitAgent(uvm_agent):
    """Both sides of a unit.

    ConfigDB: what the two sides take.

    Members
    -------
    source : OperandAgent
    sink : ResultAgent
    """

    def build_phase(self) -> None:
        """Build both sides."""
        super().build_phase()
        self.source = OperandAgent.create("source", self)
        self.sink = ResultAgent.create("sink", self)

    def connect_phase(self) -> None:
        """Tell sequences of operations where the pace of results is set."""
        super().connect_phase()
        if self.active():
            self.cdb_set("pacer", self.sink.sequencer)

    @property
    def operands(self) -> OperandMonitor:
        """What watches the operands."""
        monitor: OperandMonitor = self.source.monitor
        return monitor

    @property
    def results(self) -> ResultMonitor:
        """What watches the results."""
        monitor: ResultMonitor = self.sink.monitor
        return monitor

    @property
    def sequencer(self) -> uvm_sequencer:
        """Where operations are sent."""
        return self.source.sequencer

    @property
    def under_way(self) -> int:
        """Operations since the last reset that were taken and have given no result yet."""
        return self.operands.published - self.results.published
