"""Wrapper of a unit with valid/ready streams for operands and results."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from halfulp.hdl.formats.checks import check_bool, check_int
from halfulp.hdl.specs.build import MAX_BESIDE
from halfulp.hdl.specs.formula import Port, Role

from .base import Unit
from .meanings import ACCEPTED, PRESENT

OPERANDS, OPERATION = "i", "operation"
"""Names of the stream of all operands, and of that of all other inputs if each operand has its own."""

LAST, USER, CLEAR = "last", "user", "clear"
"""Names of the fields that travel beside the operands, and of the port that starts a sum from +0."""


@dataclass(frozen=True)
class Beats:
    """Signals of a stream.

    Attributes
    ----------
    valid, ready : Value
    fields : mapping of str to Value
        Fields of its payload by name.
    """

    valid: Value
    ready: Value
    fields: Mapping[str, Value]

    @property
    def payload(self) -> Value:
        """All fields, the first of which is lowest."""
        return Cat(*self.fields.values())


class Streamed(wiring.Component):
    """Unit with valid/ready streams for operands and results.

    Parameters
    ----------
    unit : Unit
        Unit to wrap; it becomes a submodule.
    last : bool
        Operands have a field ``last``, and so have results. A unit with an accumulator gives one result for each sum,
        after the operands whose ``last`` is 1, and starts the next sum from +0, or from ``c`` if ``load`` is 1. With
        ``interleave`` n, each of the n sums that take turns has its own ``last``.
    user : int
        Bits of a field ``user`` of the operands, which the result has too; 0 omits it.
    registered : bool
        ``ready`` of operands comes from a register: a buffer holds the operands that arrive when a result waits.
    separate : bool
        Each operand has a stream of its own, with its name. Inputs that are no operands of the formula, such as random
        words, controls and the start value of a sum, are in the stream ``operation``. The fields ``last`` and ``user``
        belong to the first operand. Operands are accepted together.

    Members
    -------
    i : In(stream.Signature(StructLayout(fields)))
        Operands: the inputs of the unit, without ``clear`` if ``last`` starts its sums, then ``last`` and ``user``.
        Streams with the names of operands take its place if ``separate``.
    o : Out(stream.Signature(StructLayout(fields)))
        Results in order: the outputs of the unit, then ``last`` and ``user``; one per transfer of operands, or one per
        sum. Stable while ``valid`` is 1 and ``ready`` is 0.

    Latency
    -------
    ``unit.latency`` cycles without back-pressure, one transfer per ``unit.initiation`` cycles. ``i.ready`` depends on
    ``o.ready`` combinationally unless ``registered``: a waiting result stalls all stages.

    Raises
    ------
    TypeError, ValueError
        If ``unit`` is no unit, a parameter has the wrong type or is out of range, ``separate`` has no effect because
        the unit has one operand only, or ``last`` cannot start the sums of a unit that has state and no ``clear``.
    """

    SUFFIX = "stream"
    """Suffix of the module's name."""

    def __init__(
        self, unit: Unit, *, last: bool = False, user: int = 0, registered: bool = False, separate: bool = False
    ) -> None:
        if not isinstance(unit, Unit):
            raise TypeError(f"{type(self).__name__} takes a Unit, not {type(unit).__name__}")
        for name, value in ((LAST, last), ("registered", registered), ("separate", separate)):
            check_bool(name, value, "stream")
        check_int(USER, user, "stream", 0, MAX_BESIDE)
        if last and unit.stateful and CLEAR not in unit.inputs:
            raise ValueError(f"last cannot start a sum of {unit.name}, which has no port clear; omit it")
        self.unit, self.last, self.user, self.registered, self.separate = unit, last, user, registered, separate
        self.name = "_".join([unit.name, self.SUFFIX, *_suffixes(self.options)])
        self.channels = self._channels()
        super().__init__(self._members())

    @property
    def options(self) -> dict[str, int]:
        """Parameters beside the unit, which the module's name contains if they are not 0 or False."""
        return {LAST: self.last, USER: self.user, "registered": self.registered, "separate": self.separate}

    @property
    def side(self) -> dict[str, int]:
        """Bits of the fields that travel beside the operands, by name."""
        return {name: int(bits) for name, bits in ((LAST, self.last), (USER, self.user)) if bits}

    @property
    def sums(self) -> bool:
        """True if results are those of whole sums."""
        return self.last and self.unit.stateful

    def _channels(self) -> dict[str, dict[str, Any]]:
        """Return the shapes of the fields of each stream of operands, by its name."""
        inputs = {name: shape for name, shape in self.unit.inputs.items() if not (self.sums and name == CLEAR)}
        if not self.separate:
            return {OPERANDS: inputs | self.side}
        channels: dict[str, dict[str, Any]] = {}
        for port in self.unit.spec.ports:
            if port.name in inputs:
                channels.setdefault(_operand_of(self.unit, port), {})[port.name] = inputs[port.name]
        if not separable(self.unit):
            raise ValueError(f"separate has no effect on {self.unit.name}, which has one operand; omit it")
        channels[next(iter(channels))] |= self.side
        return channels

    def _members(self) -> dict[str, Any]:
        """Return the members of the signature."""
        members = {name: In(stream.Signature(data.StructLayout(fields))) for name, fields in self.channels.items()}
        return members | {"o": Out(stream.Signature(data.StructLayout(self.unit.outputs | self.side)))}

    @property
    def title(self) -> str:
        """Text of the unit, with its interface."""
        return f"{self.unit.title}, with valid/ready streams"

    @property
    def latency(self) -> int:
        """Clock cycles from operands to result without back-pressure."""
        return self.unit.latency

    def prefix(self, channel: str) -> str:
        """Return the prefix of the signals of a stream of operands."""
        return channel

    @property
    def meanings(self) -> dict[str, str]:
        """Meanings of ports without a format, by name."""
        return self._handshakes("o", "__")

    def _handshakes(self, sink: str, joint: str) -> dict[str, str]:
        """Return the meanings of valid and ready, whose names are that of a stream, a joint and the word."""
        known = {f"{sink}{joint}valid": "a result is present in this cycle"}
        known[f"{sink}{joint}ready"] = "the result is accepted in this cycle, if it is present"
        for source in map(self.prefix, self.channels):
            known |= {f"{source}{joint}valid": PRESENT, f"{source}{joint}ready": ACCEPTED}
        last = "these operands are the last ones of a sum" if self.sums else "comes with the result"
        return known | {LAST: last, USER: "comes with the result"}

    def source(self, name: str) -> Beats:
        """Return the signals of a stream of operands."""
        return _beats(getattr(self, name))

    def sink(self) -> Beats:
        """Return the signals of the stream of results."""
        return _beats(self.o)

    def submodule(self) -> Any:
        """Return the unit, or what stands for it, as a submodule."""
        return self.unit

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = self.submodule()
        unit, sink = self.unit, self.sink()
        offered, accept, fields = self._joined(m)
        for name in unit.inputs:
            if name in fields:
                m.d.comb += Value.cast(getattr(unit, name)).eq(fields[name])
        side = Cat(*(fields[name] for name in self.side))
        if self.sums:
            m.d.comb += unit.clear.eq(self._first(m, offered & accept, fields[LAST]))
        if unit.latency_varies:
            side = self._varying(m, offered, accept, side)
        elif unit.build.iterations:
            side = self._iterated(m, offered, accept, side)
        else:
            side = self._stages(m, offered & fields[LAST] if self.sums else offered, accept, side)
            if unit.has_valid:
                m.d.comb += unit.valid.eq(offered)
        results = [Value.cast(getattr(unit, name)) for name in unit.outputs]
        for name, bits in self.side.items():
            # A field of the results may be wider, and repeats its bit.
            results.append(side[:bits].replicate(len(sink.fields[name]) // bits))
            side = side[bits:]
        m.d.comb += sink.payload.eq(Cat(*results))
        return m

    def _joined(self, m: Module) -> tuple[Value, Signal, dict[str, Value]]:
        """Return the condition that all operands are present, the signal that accepts them, and their fields."""
        accept = Signal(name="accept")
        known = {name: self.source(name) for name in self.channels}
        if self.registered:
            known = {name: _buffered(m, name, beats) for name, beats in known.items()}
        for name, beats in known.items():
            others = (other.valid for place, other in known.items() if place != name)
            accepted = accept
            for valid in others:
                accepted = accepted & valid
            m.d.comb += beats.ready.eq(accepted)
        offered: Value = Const(1, 1)
        for beats in known.values():
            offered = beats.valid if len(known) == 1 else offered & beats.valid
        return offered, accept, {field: value for beats in known.values() for field, value in beats.fields.items()}

    def _first(self, m: Module, accepted: Value, last: Value) -> Value:
        """Return 1 if operands start a sum after another one; a reset starts all sums, which may take turns."""
        ended = Signal(self.unit.spec.interleave)
        with m.If(accepted):
            m.d.sync += ended.eq(Cat(last, ended[:-1]))
        return ended[-1]

    def _stages(self, m: Module, offered: Value, accept: Signal, side: Value) -> Value:
        """Connect a unit whose stages advance together, and return what travels with the result."""
        unit, sink = self.unit, self.sink()
        if unit.latency == 0:
            m.d.comb += [sink.valid.eq(offered), accept.eq(sink.ready)]
            if unit.clocked:
                m.d.comb += unit.en.eq(sink.ready)
            return side
        # Bit i is 1 if stage i holds operands of a transfer.
        occupied = Signal(unit.latency)
        m.d.comb += [
            accept.eq(sink.ready | ~sink.valid),
            sink.valid.eq(occupied[-1]),
            unit.en.eq(accept),
        ]
        beside = [Signal(len(side), name=f"beside_stage{stage}") for stage in range(1, unit.latency + 1)]
        with m.If(accept):
            m.d.sync += occupied.eq(Cat(offered, occupied[:-1]))
            if self.side:
                m.d.sync += [register.eq(value) for register, value in zip(beside, [side, *beside], strict=False)]
        return beside[-1] if self.side else side

    def _varying(self, m: Module, offered: Value, accept: Signal, side: Value) -> Value:
        """Connect a unit that iterates some operations before its stages; return what travels with the result."""
        unit, sink = self.unit, self.sink()
        m.d.comb += [
            unit.en.eq(sink.ready | ~sink.valid),
            unit.valid.eq(offered),
            accept.eq(unit.ready & unit.en),
            sink.valid.eq(unit.o_valid),
        ]
        if not self.side:
            return side
        # The unit accepts nothing until an operation that iterates enters the stages.
        waiting = Signal(len(side))
        stages = [Mux(unit.ready, side, waiting)]
        stages += [Signal(len(side), name=f"beside_stage{stage}") for stage in range(1, unit.latency + 1)]
        with m.If(offered & accept):
            m.d.sync += waiting.eq(side)
        with m.If(unit.en):
            m.d.sync += [register.eq(value) for value, register in itertools.pairwise(stages)]
        return stages[-1]

    def _iterated(self, m: Module, offered: Value, accept: Signal, side: Value) -> Value:
        """Connect an iterative unit, which accepts operands as soon as its result is taken."""
        unit, sink = self.unit, self.sink()
        occupied, free = Signal(name="occupied"), Signal(name="free")
        m.d.comb += [
            free.eq(~occupied | sink.ready),
            unit.valid.eq(offered & free),
            accept.eq(unit.ready & free),
            sink.valid.eq(occupied & unit.ready),
        ]
        beside = Signal(len(side))
        with m.If(unit.ready & free):
            m.d.sync += occupied.eq(offered)
            if self.side:
                m.d.sync += beside.eq(side)
        return beside if self.side else side


def _suffixes(options: Mapping[str, int]) -> list[str]:
    """Return the parts of a module's name for options that are not 0 or False."""
    return [name if value is True else f"{name}{value}" for name, value in options.items() if value]


_OPERANDS = (Role.OPERAND, Role.SCALE, Role.INDEX)
"""Roles of the inputs that are parts of an operand."""


def _operand_of(unit: Unit, port: Port) -> str:
    """Return the name of the stream of an input if each operand has its own."""
    if port.role in _OPERANDS or (port.role is Role.START and not unit.stateful):
        # A block has the stream of its elements for its scale, too.
        return (port.argument or port.name).partition("_scale")[0]
    return OPERATION


def separable(unit: Unit) -> bool:
    """Return True if a unit has inputs for several streams."""
    return len({_operand_of(unit, port) for port in unit.spec.ports if port.name in unit.inputs}) > 1


def _beats(beats: Any) -> Beats:
    """Return the signals of an Amaranth stream whose payload is a structure."""
    payload = beats.payload
    return Beats(beats.valid, beats.ready, {name: Value.cast(payload[name]) for name, _ in payload.shape()})


def _buffered(m: Module, name: str, source: Beats) -> Beats:
    """Return a stream behind a buffer of one transfer, so that ``ready`` of the source comes from a register."""
    full = Signal(name=f"{name}_full")
    held = Signal(len(source.payload), name=f"{name}_held")
    valid, ready = Signal(name=f"{name}_valid"), Signal(name=f"{name}_ready")
    payload = Signal.like(held, name=f"{name}_payload")
    m.d.comb += [
        source.ready.eq(~full),
        valid.eq(full | source.valid),
        payload.eq(Mux(full, held, source.payload)),
    ]
    with m.If(~full):
        m.d.sync += held.eq(source.payload)
    m.d.sync += full.eq(valid & ~ready)
    fields, low = {}, 0
    for field, value in source.fields.items():
        fields[field] = payload[low : low + len(value)]
        low += len(value)
    return Beats(valid, ready, fields)
