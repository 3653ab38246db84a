"""UVM test of a user's design that has a multiply-accumulate inside.

    halfulp uvm mac e4m3fn --test examples/dot_product.py:DotProductTest

The design sums products until a term is marked as the last. Agents of `halfulp.sim.uvm` drive and monitor its streams,
and a scoreboard of this file checks its totals. A passive environment monitors the ports of the multiply-accumulate
inside and compares each step with the golden model.
"""

import random
from typing import Any, ClassVar

import numpy as np
from amaranth.hdl import Module, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from cocotb.clock import Clock
from pyuvm import uvm_active_passive_enum, uvm_env, uvm_scoreboard, uvm_sequence

from halfulp.hdl.formats import E4M3FN, E6M5
from halfulp.sim.build import component_design
from halfulp.sim.coverage.collect import hits
from halfulp.sim.ports import Ports
from halfulp.sim.reference import reference
from halfulp.sim.report import Check, Failure
from halfulp.sim.signals.interfaces import PERIOD, Interface, Packed, Pins, Sink, Source, Wires
from halfulp.sim.uvm.agent import OperandAgent, ResultAgent
from halfulp.sim.uvm.dut import Dut
from halfulp.sim.uvm.env import UnitEnv, drain
from halfulp.sim.uvm.items import Operation
from halfulp.sim.uvm.reference import columns
from halfulp.sim.uvm.scoreboard import export
from halfulp.sim.uvm.tests import UnitTest
from halfulp.units import Mac

TERM = {"x": E4M3FN, "y": E4M3FN, "last": unsigned(1)}
TERMS = Ports.of(TERM)
TOTALS = Ports.of({"total": E6M5})


class DotProduct(wiring.Component):
    """Dot products of a stream of terms; a term with ``last`` set ends a sum."""

    name = "dot_product"
    i: In(stream.Signature(data.StructLayout(TERM)))
    o: Out(stream.Signature(E6M5))

    def __init__(self, mac: type[Mac] = Mac) -> None:
        self.mac = mac(a=E4M3FN, b=E4M3FN, acc=E6M5)
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.mac = mac = self.mac
        full, first, taken = Signal(), Signal(init=1), Signal()
        m.d.comb += [
            taken.eq(self.i.valid & self.i.ready),
            self.i.ready.eq(~full | self.o.ready),
            mac.a.eq(self.i.payload.x),
            mac.b.eq(self.i.payload.y),
            mac.clear.eq(first),
            mac.valid.eq(taken),
            self.o.payload.eq(mac.o),
            self.o.valid.eq(full),
        ]
        with m.If(self.o.ready):
            m.d.sync += full.eq(0)
        with m.If(taken):
            m.d.sync += [full.eq(self.i.payload.last), first.eq(self.i.payload.last)]
        return m


class DotProductDut(Dut):
    """Device under test: the design, with access to the signals inside."""

    INSIDE: ClassVar[bool] = True

    def make(self) -> Any:
        return DotProduct()

    def design(self, unit: Any, kind: str) -> Any:
        return component_design(unit)

    def describe(self, unit: Any) -> str:
        return "sums of products of two streams"


class Sums(uvm_sequence):
    """Random sums of one to twelve products."""

    async def body(self) -> None:
        noise = random.Random(self.sequencer.cdb_get("seed"))
        for _ in range(self.sequencer.cdb_get("limit") or 40):
            length = noise.randint(1, 12)
            for term in range(length):
                item = Operation.create("term")
                # Magnitudes from 1/4 to below 8, so that sums stay within the range.
                x, y = ((noise.getrandbits(8) & 0x8F) | noise.choice((0x28, 0x30, 0x38, 0x40)) for _ in range(2))
                item.set(TERMS, {"x": x, "y": y, "last": int(term == length - 1)})
                item.gap = noise.choice((0, 0, 0, 1, 5))
                await self.start_item(item)
                await self.finish_item(item)


class Totals(uvm_scoreboard):
    """Scoreboard that checks each total against the terms since the previous total."""

    def build_phase(self) -> None:
        self.terms: list[Operation] = []
        self.totals: list[Operation] = []
        self.taken = export("taken", self, self.terms.append)
        self.given = export("given", self, self.totals.append)

    @property
    def due(self) -> int:
        return sum(term["last"].code for term in self.terms)

    def check_phase(self) -> None:
        codes = columns(TERMS, self.terms)
        # A sum begins with the first term, and after each term with `last` set.
        steps = {"a": codes["x"], "b": codes["y"], "clear": np.roll(codes["last"], 1)}
        steps["clear"][:1] = 1
        steps |= {name: np.zeros_like(codes["x"]) for name in ("c", "load")}
        results = reference(Mac(a=E4M3FN, b=E4M3FN, acc=E6M5), steps, chained=True)["o"]
        wanted = results[codes["last"] == 1].tolist()
        received = [total["total"].code for total in self.totals]
        wrong = [number for number, (want, got) in enumerate(zip(wanted, received, strict=False)) if want != got]
        failures = [Failure("mismatch", f"total {number}: {self.totals[number]}") for number in wrong[:8]]
        if len(received) != len(wanted):
            failures.append(Failure("count", f"{len(wanted)} totals expected, {len(received)} received"))
        self.check = Check("pyuvm", "totals", len(received), len(wrong) + (len(received) != len(wanted)), failures)


class DotProductEnv(uvm_env):
    """Environment with an agent on each stream and a passive environment for the unit inside."""

    def build_phase(self) -> None:
        for name, interface in self.cdb_get("interfaces").items():
            self.cdb_set("interface", interface, f"{name}.*")
        self.cdb_set("is_active", uvm_active_passive_enum.UVM_PASSIVE, "inside.*")
        self.cdb_set("unit", self.cdb_get("unit").mac, "inside.*")
        self.cdb_set("channel", "steps", "inside.*")
        self.source = OperandAgent.create("source", self)
        self.sink = ResultAgent.create("sink", self)
        self.inside = UnitEnv.create("inside", self)
        self.totals = Totals.create("totals", self)

    def connect_phase(self) -> None:
        self.source.monitor.ap.connect(self.totals.taken)
        self.sink.monitor.ap.connect(self.totals.given)


class DotProductTest(UnitTest):
    """Test that runs random sums through the design."""

    DUT: ClassVar[type[Any]] = DotProductDut
    ENV: ClassVar[type[Any]] = DotProductEnv
    SEQUENCES: ClassVar[dict[str, type[Any]]] = {"campaign": Sums}

    @classmethod
    def check(cls, job: Any, unit: Any) -> None:
        if job.sequence not in cls.SEQUENCES:
            raise ValueError(f"unknown sequence {job.sequence}; the dot product has {', '.join(cls.SEQUENCES)}")

    def interfaces(self, top: Any) -> dict[str, Interface]:
        clock = {"clk": top.clk, "rst": top.rst}
        mac, unit = top.mac, self.unit.mac
        inputs, outputs = Ports.of(unit.inputs), Ports.of(unit.outputs)
        return {
            "source": Source(**clock, inputs=Packed(top.i__payload, TERMS), valid=top.i__valid, ready=top.i__ready),
            "sink": Sink(**clock, outputs=Packed(top.o__payload, TOTALS), valid=top.o__valid, ready=top.o__ready),
            "inside": Pins(
                **clock,
                inputs=Wires({name: getattr(mac, name) for name in inputs.names}, inputs),
                outputs=Wires({name: getattr(mac, name) for name in outputs.names}, outputs),
                latency=unit.latency,
                holds=unit.stateful,
                valid=mac.valid,
            ),
        }

    async def begin(self, top: Any) -> None:
        Clock(top.clk, PERIOD, "ns").start()
        source = self.env.source.monitor.interface
        await source.edge()
        await source.reset()

    async def stimulate(self) -> None:
        await self.stimulus().start(self.env.source.sequencer)
        await drain(self.env.sink.monitor, lambda: len(self.env.totals.totals) >= self.env.totals.due)

    @property
    def scoreboards(self) -> list[Any]:
        return [self.env.totals, self.env.inside.scoreboard]

    @property
    def notes(self) -> list[str]:
        return [hits([self.env.inside.collector.coverage])]
