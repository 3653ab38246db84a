"""Wrapper of a pipelined unit whose results come with what its operands had."""

from typing import Any

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from halfulp.hdl.formats.checks import check_bool, check_int
from halfulp.hdl.specs.build import MAX_BESIDE

from .base import Unit


class Tracked(wiring.Component):
    """Unit with register stages whose results have a valid bit and a tag, those of their operands.

    Parameters
    ----------
    unit : Unit
        Unit to wrap; it becomes a submodule.
    valid : bool
        Add ``valid`` and ``o_valid``.
    tag : int
        Bits of ``tag`` and ``o_tag``; 0 omits them.

    Members
    -------
    valid : In(1)
        Operands are present in this cycle. Those of an accumulator or a random source count only then.
    tag : In(tag)
        Any bits, sampled with the operands.
    o_valid : Out(1)
        The result is that of operands with ``valid``; 0 after reset.
    o_tag : Out(tag)
        Tag of the operands of the result.
    en : In(1, init=1)
        Clock enable of all registers, those of ``valid`` and ``tag`` too.

    Other members are the inputs and outputs of the unit.

    Latency
    -------
    ``unit.latency`` cycles in which ``en`` is 1, from operands, ``valid`` and ``tag`` to result, ``o_valid`` and
    ``o_tag``.

    Raises
    ------
    TypeError, ValueError
        If ``unit`` is no unit, a parameter has the wrong type or is out of range, both are omitted, or the unit is
        combinational or iterative.
    """

    def __init__(self, unit: Unit, *, valid: bool = False, tag: int = 0) -> None:
        if not isinstance(unit, Unit):
            raise TypeError(f"Tracked takes a Unit, not {type(unit).__name__}")
        check_bool("valid", valid, "pipeline")
        check_int("tag", tag, "pipeline", 0, MAX_BESIDE)
        if not (valid or tag):
            raise ValueError(f"neither valid nor tag of {unit.name} is given; expected one of them")
        if unit.build.iterations:
            raise ValueError(f"{unit.name} is iterative and has valid and ready already; omit valid and tag")
        if not unit.latency:
            raise ValueError(
                f"the results of {unit.name} are in the cycle of their operands; valid and tag need register stages"
            )
        self.unit, self.tag_bits = unit, tag
        travels = {"valid": int(valid), "tag": tag}
        self.travels = {name: bits for name, bits in travels.items() if bits}
        self.words = ["--valid"] * valid + (["--tag", str(tag)] if tag else [])
        self.name = "_".join([unit.name, *["valid"] * valid, *[f"tag{tag}"] * bool(tag)])
        members: dict[str, Any] = {"en": In(1, init=1)}
        if unit.has_valid or valid:
            members["valid"] = In(1, init=1)
        members |= {name: In(shape) for name, shape in unit.inputs.items()}
        members |= {"tag": In(tag)} if tag else {}
        members |= {name: Out(shape) for name, shape in unit.outputs.items()}
        super().__init__(members | {f"o_{name}": Out(bits) for name, bits in self.travels.items()})

    @property
    def title(self) -> str:
        """Text of the unit, with what travels with its operands."""
        return f"{self.unit.title}, with {' and '.join(self.travels)}"

    @property
    def latency(self) -> int:
        """Clock cycles from operands to result."""
        return self.unit.latency

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        m.d.comb += unit.en.eq(self.en)
        if unit.has_valid:
            m.d.comb += unit.valid.eq(self.valid)
        for names, to in ((unit.inputs, True), (unit.outputs, False)):
            for name in names:
                pair = Value.cast(getattr(unit, name)), Value.cast(getattr(self, name))
                m.d.comb += pair[0].eq(pair[1]) if to else pair[1].eq(pair[0])
        for name, bits in self.travels.items():
            value = getattr(self, name)
            for stage in range(1, self.latency + 1):
                # A tag counts only with its valid bit, which a reset clears.
                reset_less = unit.build.reset_less and name == "tag"
                register = Signal(bits, name=f"{name}_stage{stage}", reset_less=reset_less)
                with m.If(self.en):
                    m.d.sync += register.eq(value)
                value = register
            m.d.comb += getattr(self, f"o_{name}").eq(value)
        return m
