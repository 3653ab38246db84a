"""Wrapper of a unit with AXI4-Stream for operands and results."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from amaranth.hdl import Shape, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from halfulp.hdl.formats.checks import check_bool

from .base import Unit
from .stream import LAST, USER, Beats, Streamed, separable
from .verilog import ASYNC, RESETS, SYNC

ALIGNMENT = 8
"""Bits to which the fields of ``tdata`` are aligned."""

KEEP = "keep"
"""Name of the field that is 1 if all bytes of the operands are."""

_CONTROLS = {"clk": "aclk", "rst": "aresetn"}

_TRAVELS = {LAST: "tlast", USER: "tuser", KEEP: "tkeep"}
"""Signals of AXI4-Stream for what travels beside the operands."""


class AxiStream(Streamed):
    """Unit with AXI4-Stream for operands and results, as `Streamed`, in the signals of that protocol.

    Parameters
    ----------
    unit : Unit
    tlast : bool
        ``last`` of `Streamed` as TLAST.
    tuser : int
        ``user`` of `Streamed`: bits of TUSER.
    tkeep : bool
        TKEEP of operands and results. All bytes of a result are kept if all bytes of its operands are, else none. For
        units without an accumulator.
    registered, separate : bool
        See `Streamed`.

    Members
    -------
    s_axis_tdata, s_axis_tvalid, s_axis_tready
        Operands. Each field of ``tdata`` begins at a byte, and the bits between are ignored. With ``separate`` there
        are streams ``s_axis_a``, ``s_axis_b`` and so on in its place.
    m_axis_tdata, m_axis_tvalid, m_axis_tready
        Results; the bits between the fields are 0.
    s_axis_tlast, s_axis_tuser, s_axis_tkeep, m_axis_tlast, m_axis_tuser, m_axis_tkeep
        Present if a parameter asks for them; with ``separate``, in the stream of the first operand.

    Raises
    ------
    TypeError, ValueError
        As `Streamed`, and if ``tkeep`` is for a unit with an accumulator.
    """

    SUFFIX = "axis"

    def __init__(
        self,
        unit: Unit,
        *,
        tlast: bool = False,
        tuser: int = 0,
        tkeep: bool = False,
        registered: bool = False,
        separate: bool = False,
    ) -> None:
        check_bool("tkeep", tkeep, "stream")
        self.keep = tkeep
        super().__init__(unit, last=tlast, user=tuser, registered=registered, separate=separate)
        if tkeep and unit.stateful:
            raise ValueError(f"tkeep has no effect on {unit.name}, whose results are of sums; omit it")

    @staticmethod
    def effects(unit: Unit) -> set[str]:
        """Return the names of the parameters that have an effect on a unit."""
        some = {"tkeep": not unit.stateful, "separate": separable(unit)}
        return {"tlast", "tuser", "registered", *(name for name, has in some.items() if has)}

    @property
    def options(self) -> dict[str, int]:
        ports = {"tlast": self.last, "tuser": self.user, "tkeep": self.keep}
        return ports | {"registered": self.registered, "separate": self.separate}

    @property
    def words(self) -> list[str] | None:
        """Options of the command line; None if it cannot write the module."""
        words = ["--stream"]
        for name, value in self.options.items():
            words += [f"--{name}"] * bool(value) + [str(value)] * (name == "tuser" and value > 0)
        return words

    @property
    def side(self) -> dict[str, int]:
        return super().side | ({KEEP: 1} if self.keep else {})

    @property
    def title(self) -> str:
        return f"{self.unit.title}, with AXI4-Stream for operands and results"

    @property
    def clocked(self) -> bool:
        """True if the wrapper or its unit has registers."""
        return self.unit.clocked or self.registered

    def prefix(self, channel: str) -> str:
        return f"s_axis_{channel}" if self.separate else "s_axis"

    @property
    def meanings(self) -> dict[str, str]:
        known = self._handshakes("m_axis", "_t")
        known |= dict.fromkeys(_CONTROLS.values(), "not used, because the stream has no registers")
        beside = {LAST: known[LAST], USER: known[USER], KEEP: "if all bits are 1, all bytes of the result are kept"}
        for name, text in beside.items():
            known |= {f"{self.prefix(channel)}_{_TRAVELS[name]}": text for channel in self.channels}
            known[f"m_axis_{_TRAVELS[name]}"] = f"that of the{' last' * self.sums} operands of this result"
        return known

    def data_of(self, channel: str | None = None) -> data.FlexibleLayout:
        """Return the layout of ``tdata`` of a stream of operands, or of the results."""
        fields = self.unit.outputs if channel is None else self.channels[channel]
        return aligned({name: shape for name, shape in fields.items() if name not in self.side})

    def _members(self) -> dict[str, Any]:
        members = {} if self.clocked else {name: In(1) for name in _CONTROLS.values()}
        streams = {self.prefix(name): (In, Out, self.data_of(name), fields) for name, fields in self.channels.items()}
        for prefix, (to, back, layout, fields) in (streams | {"m_axis": (Out, In, self.data_of(), self.side)}).items():
            members[f"{prefix}_tdata"] = to(layout)
            for name, bits in self.side.items():
                if name in fields:
                    members[f"{prefix}_{_TRAVELS[name]}"] = to(layout.size // ALIGNMENT if name == KEEP else bits)
            members |= {f"{prefix}_tvalid": to(1), f"{prefix}_tready": back(1)}
        return members

    def source(self, name: str) -> Beats:
        beats = self._beats(self.prefix(name), self.channels[name])
        if KEEP not in beats.fields:
            return beats
        return Beats(beats.valid, beats.ready, {**beats.fields, KEEP: beats.fields[KEEP].all()})

    def sink(self) -> Beats:
        return self._beats("m_axis", self.unit.outputs | self.side)

    def _beats(self, prefix: str, fields: Mapping[str, Any]) -> Beats:
        signals = {kind: getattr(self, f"{prefix}_{kind}") for kind in ("tdata", "tvalid", "tready")}
        values = {
            name: getattr(self, f"{prefix}_{_TRAVELS[name]}")
            if name in self.side
            else Value.cast(signals["tdata"][name])
            for name in fields
        }
        return Beats(signals["tvalid"], signals["tready"], values)

    def emit_options(self, reset: str = SYNC, ports: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
        """Return the options of `halfulp.units.verilog.emit` for the clock ``aclk`` and the reset ``aresetn``.

        Parameters
        ----------
        reset : str
            ``sync`` or ``async``.
        ports : mapping of str to str
            Names of the clock and the reset in place of these.

        Raises
        ------
        ValueError
            If ``reset`` is active low as a style, which that of AXI4-Stream always is.
        """
        if reset in set(RESETS) - {SYNC, ASYNC}:
            raise ValueError(f"the reset of AXI4-Stream is active low; expected the style sync or async, not {reset}")
        if not self.clocked:
            return {"ports": dict(ports)} | ({"reset": reset} if reset != SYNC else {})
        return {"reset": f"{reset}-low", "ports": _CONTROLS | dict(ports)}

    @staticmethod
    def asked(reset: str, ports: Mapping[str, str]) -> dict[str, Any]:
        """Return the style of reset and the names of ports for which `emit_options` returns these."""
        other = {role: name for role, name in ports.items() if name != _CONTROLS.get(role)}
        return {"reset": reset.removesuffix("-low"), "ports": other}


def aligned(shapes: Mapping[str, Any]) -> data.FlexibleLayout:
    """Return a layout whose fields begin at a byte, the first one lowest."""
    fields, low = {}, 0
    for name, shape in shapes.items():
        fields[name] = data.Field(shape, low)
        low += -(-Shape.cast(shape).width // ALIGNMENT) * ALIGNMENT
    return data.FlexibleLayout(low, fields)
