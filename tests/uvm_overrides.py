"""User overrides for `test_uvm`: tests, devices and sequences that the simulation imports from this file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from amaranth.hdl import Const, Module, Signal, Value
from pyuvm import uvm_factory

from halfulp.hdl.formats import E5M2, E6M5, parse
from halfulp.hdl.lfsr import source_word
from halfulp.hdl.specs import Build
from halfulp.implementation import Implementation
from halfulp.sim.uvm.dut import Dut
from halfulp.sim.uvm.scoreboard import Scoreboard
from halfulp.sim.uvm.sequences import Campaign, RandomSequence
from halfulp.sim.uvm.tests import UnitTest
from halfulp.sim.uvm.tile import TileDut, TileTest
from halfulp.tools.imports import module_of
from halfulp.units.arithmetic import Mul
from halfulp.units.convert import Convert
from halfulp.units.mac import Mac
from halfulp.units.stream import Streamed

RARE = {"a": 0x3C01, "b": 0x4201}
"""Operands of fp16 for which `RarelyWrong` is wrong."""


class RarelyWrong(Mul):
    """Multiplier that is off by one place for one pair of operands out of 2^32."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.right = right = Mul(a=self.spec.operands["a"], b=self.spec.operands["b"], o=self.result)
        rare = (Value.cast(self.a) == RARE["a"]) & (Value.cast(self.b) == RARE["b"])
        m.d.comb += [Value.cast(right.a).eq(Value.cast(self.a)), Value.cast(right.b).eq(Value.cast(self.b))]
        m.d.comb += Value.cast(self.o).eq(Value.cast(right.o) ^ rare)
        return m


class RarelyWrongDut(Dut):
    def make(self) -> Any:
        fmt = self.request().spec.a
        return RarelyWrong(a=fmt, b=fmt, o=fmt)


class AroundOne(RandomSequence):
    """Pairs of operands just above 1 and 3."""

    bias: ClassVar[float] = 0.0
    count = 300

    def _drawn(self, rng: np.random.Generator, count: int) -> dict[str, Any]:
        return {
            name: code + rng.integers(0, 8, count, dtype=np.uint64) for name, code in (("a", 0x3C00), ("b", 0x4200))
        }

    def constraint(self, codes: Mapping[str, Any]) -> Any:
        """Return True for odd codes."""
        return (codes["a"] & codes["b"] & np.uint64(1)) == 1


class Rare(UnitTest):
    """Test with another DUT, whose mistake the default sequence does not find."""

    @classmethod
    def overrides(cls) -> None:
        uvm_factory().set_type_override_by_type(Dut, RarelyWrongDut)


class RareAimed(Rare):
    """Test with another sequence, which finds the mistake."""

    @classmethod
    def overrides(cls) -> None:
        super().overrides()
        uvm_factory().set_type_override_by_type(Campaign, AroundOne)


class InPosits(Dut):
    def request(self) -> Implementation:
        posit = parse("posit8")
        return super().request().with_spec(a=posit, b=posit, o=E5M2)


class OtherFormat(UnitTest):
    """Test that checks the unit in another format than requested."""

    @classmethod
    def overrides(cls) -> None:
        uvm_factory().set_type_override_by_type(Dut, InPosits)


# Units that break a rule, and their tests ----------------------------------------------------------------------------


class Restless(Mul):
    """Unit whose registers move in a stall."""

    def staged(self, m: Module, **options: Any) -> Module:
        return super().staged(m, enable=Const(1, 1))


class Late(Mul):
    """Unit with one register more than its latency."""

    def staged(self, m: Module, **options: Any) -> Module:
        return super().staged(m, latency=self.latency + 1)


class Eager(Mac):
    """Accumulator that steps without valid operands."""

    def elaborate(self, platform: object) -> Module:
        valid = self.valid
        self.valid = Const(1, 1)
        try:
            return super().elaborate(platform)
        finally:
            self.valid = valid


class Impatient(Convert):
    """Unit whose source steps in every cycle, so that its result moves while its operands wait."""

    def word(self, m: Module, name: str = "random") -> Value | None:
        stream = self.sources[name]
        return source_word(m, stream.source, [stream.seed], Const(1, 1), name)[: self.words[name]]


class Buffered(Mul):
    """Correct unit; its stream wrapper, built elsewhere, ignores back-pressure."""


class Unheld(Streamed):
    """Stream wrapper that is always ready and drops results that are not accepted."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = inner = Streamed(self.unit)
        m.d.comb += [
            inner.i.payload.eq(self.i.payload),
            inner.i.valid.eq(self.i.valid),
            self.i.ready.eq(1),
            inner.o.ready.eq(1),
            self.o.payload.eq(inner.o.payload),
            self.o.valid.eq(inner.o.valid),
        ]
        return m


SAME: dict[str, Any] = {"a": E5M2, "b": E5M2, "o": E5M2}


class RestlessDut(Dut):
    def make(self) -> Any:
        return Restless(**SAME, build=Build(pipeline=2))


class LateDut(Dut):
    def make(self) -> Any:
        return Late(**SAME, build=Build(pipeline=2))


class EagerDut(Dut):
    def make(self) -> Any:
        return Eager(a=E5M2, b=E5M2, acc=E6M5)


class ImpatientDut(Dut):
    def make(self) -> Any:
        return Impatient(a="e6m5", o="e4m3", rounding="sr3", random="lfsr5")


class BufferedDut(Dut):
    def make(self) -> Any:
        return Buffered(**SAME, build=Build(pipeline=1))


class RestlessTest(UnitTest):
    DUT = RestlessDut


class LateTest(UnitTest):
    DUT = LateDut


class EagerTest(UnitTest):
    DUT = EagerDut


class ImpatientTest(UnitTest):
    DUT = ImpatientDut


class BufferedTest(UnitTest):
    DUT = BufferedDut


class SwappedSeeds(TileDut):
    """Array in which two multiply-accumulates have swapped sources."""

    def make(self) -> Any:
        made = super().make()
        made.seeds.reverse()
        return made


class SwappedSeedsTest(TileTest):
    @classmethod
    def overrides(cls) -> None:
        uvm_factory().set_type_override_by_type(TileDut, SwappedSeeds)


class Blind(Scoreboard):
    """Scoreboard that compares nothing."""

    def _add_prediction(self, prediction: Any) -> None:
        pass

    def _add_result(self, item: Any) -> None:
        pass


class BlindTest(UnitTest):
    @classmethod
    def overrides(cls) -> None:
        uvm_factory().set_type_override_by_type(Scoreboard, Blind)


# In another design ---------------------------------------------------------------------------------------------------

example = module_of(str(Path(__file__).parent.parent / "examples" / "dot_product.py"))


class OneBitOff(Mac):
    """Unit whose result is always odd."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.right = right = Mac(a=self.spec.a, b=self.spec.b, acc=self.spec.acc)
        for name in ("a", "b", "c", "load", "clear", "en", "valid"):
            m.d.comb += Value.cast(getattr(right, name)).eq(Value.cast(getattr(self, name)))
        m.d.comb += Value.cast(self.o).eq(Value.cast(right.o) | 1)
        return m


class WrongInside(example.DotProductDut):
    def make(self) -> Any:
        return example.DotProduct(OneBitOff)


class WrongInsideTest(example.DotProductTest):
    DUT = WrongInside


class Unending(example.DotProduct):
    """Unit in which every second term starts a sum."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        odd = Signal()
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += odd.eq(~odd)
        m.d.comb += self.mac.clear.eq(odd)
        return m


class WrongOutside(example.DotProductDut):
    def make(self) -> Any:
        return Unending()


class WrongOutsideTest(example.DotProductTest):
    DUT = WrongOutside
