"""Wrapper that registers all ports of a component, to measure its clock."""

from typing import Any

from amaranth.hdl import Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In


class Registered(wiring.Component):
    """Component with registers at all ports, which add two cycles of latency."""

    def __init__(self, component: Any) -> None:
        self.component = component
        self.name = f"{component.name}_registered"
        super().__init__(component.signature)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.component = self.component
        inside = self.component.signature.flatten(self.component)
        for (_, member, inner), (_, _, outer) in zip(inside, self.signature.flatten(self), strict=True):
            to, of = (inner, outer) if member.flow == In else (outer, inner)
            m.d.sync += Value.cast(to).eq(Value.cast(of))
        return m
