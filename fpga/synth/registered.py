"""A component between registers, as it is in a design whose clock it limits."""

from typing import Any

from amaranth.hdl import Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In


class Registered(wiring.Component):
    """A component, as a submodule, between registers at all of its ports: two cycles more of latency."""

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
