"""AXI4-Stream wrappers of packaged units, which instantiate the module of their unit."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from amaranth.hdl import ClockSignal, Instance, ResetSignal, Shape, Value

from halfulp.sim.build import verilog
from halfulp.units.axi_stream import ALIGNMENT, AxiStream
from halfulp.units.verilog import ASYNC, SYNC, VerilogPort, verilog_ports


@dataclass(frozen=True)
class StreamField:
    """Field of the payload of an AXI4-Stream.

    Attributes
    ----------
    port : PackagedPort
        Port of the unit with this value.
    low : int
        Position of its lowest bit.
    """

    port: Any
    low: int

    @property
    def padding(self) -> int:
        """Bits above the value up to the next byte."""
        return -self.port.width % ALIGNMENT

    @property
    def byte_range(self) -> str:
        """Range of the value and its padding in Verilog."""
        return f"[{self.low + self.port.width + self.padding - 1}:{self.low}]"


@dataclass(frozen=True)
class Channel:
    """One stream of a wrapper.

    Attributes
    ----------
    prefix : str
        Prefix of its signals, such as ``s_axis``.
    fields : list of StreamField
    beside : dict of str to int
        Signals beside the payload, ``tlast``, ``tuser`` or ``tkeep``, and their bits.
    """

    prefix: str
    fields: list[StreamField]
    beside: dict[str, int]

    @property
    def bits(self) -> int:
        """Bits of the payload, whole bytes."""
        return sum(field.port.width + field.padding for field in self.fields)

    @property
    def signals(self) -> list[str]:
        """Names of its signals without the prefix."""
        return ["tdata", *self.beside, "tvalid", "tready"]


class PackagedStream(AxiStream):
    """AXI4-Stream wrapper that instantiates the module of a packaged unit.

    Parameters
    ----------
    packaged : PackagedUnit
    **options
        Parameters of `AxiStream`.
    """

    def __init__(self, packaged: Any, **options: Any) -> None:
        super().__init__(packaged.component, **options)
        self._packaged = packaged
        self.name = self.name.replace(packaged.component.name, packaged.module, 1)

    @property
    def words(self) -> None:
        return None

    def submodule(self) -> Instance:
        unit = self._packaged.component
        # Amaranth warns of components that are never elaborated.
        unit._MustUse__used = True
        signals: dict[str, Any] = {}
        for port in self._packaged.ports:
            own = {"clk": ClockSignal(), "rst": ResetSignal()}
            name = port.name if port.role == "data" else port.role
            value = own[name] if name in own else Value.cast(getattr(unit, name))
            signals[f"{port.direction[0]}_{port.name}"] = ~value if port.active_low else value
        return Instance(self._packaged.module, **signals)

    @cached_property
    def text(self) -> str:
        """Verilog of the wrapper."""
        options = self.emit_options(ASYNC if self._packaged.async_reset and self.clocked else SYNC)
        initial = self._packaged.initial or not (self.latency or self.registered)
        return verilog(self, self.name, initial=initial, **options)

    @cached_property
    def ports(self) -> list[VerilogPort]:
        """Ports of the module."""
        places = {port: place for place, port in enumerate(["aclk", "aresetn", *self.signature.members])}
        return sorted(verilog_ports(self.text, self.name), key=lambda port: places[port.name])

    @property
    def described(self) -> list[tuple[str, str, str, str]]:
        """Direction, name, bits and contents of each port, as the comment in the Verilog has them."""
        return re.findall(r"^// (input|output) +(\S+) +(\d+) +(.*)$", self.text, re.M)

    @property
    def turns(self) -> int:
        """Number of sums that take turns on an accumulator."""
        return int(self.unit.spec.interleave)

    @property
    def restarts(self) -> list[Any]:
        """Ports of the unit that start a sum."""
        return [port for port in self._packaged.ports if port.name in ("load", "clear")]

    @property
    def plain(self) -> bool:
        """True if operands have one stream, and nothing beside the payload."""
        return not (self.side or self.separate)

    @property
    def sources(self) -> list[Channel]:
        """Streams of operands."""
        return [self._channel(self.prefix(name), self.data_of(name), fields) for name, fields in self.channels.items()]

    @property
    def result(self) -> Channel:
        """Stream of results."""
        return self._channel("m_axis", self.data_of(), self.side)

    def _channel(self, prefix: str, layout: Any, fields: Mapping[str, Any]) -> Channel:
        ports = {port.name: port for port in self._packaged.ports}
        beside = {
            f"t{name}": Shape.cast(self.signature.members[f"{prefix}_t{name}"].shape).width
            for name in self.side
            if name in fields
        }
        return Channel(prefix, [StreamField(ports[str(name)], field.offset) for name, field in layout], beside)


def options_of(components: Sequence[Any], options: Mapping[str, int]) -> list[dict[str, int]]:
    """Return the parameters of `AxiStream` that have an effect on each unit.

    Raises ValueError if one has no effect on any unit.
    """
    given = {name: value for name, value in options.items() if value}
    effects = [AxiStream.effects(unit) if given else set() for unit in components]
    for name in given:
        if not any(name in own for own in effects):
            raise ValueError(f"{name} has no effect on the streams of any unit of the package; omit it")
    return [{name: value for name, value in given.items() if name in own} for own in effects]
