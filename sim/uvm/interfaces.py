"""Where a unit is driven and watched: handles of the simulator, read and written as packed words.

A driver changes pins at the falling edge of the clock, and monitors look a quarter of a period later. So what they see
is what the rising edge takes, whether the pins are driven by us or by the registers of a design around the unit.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from cocotb.triggers import FallingEdge, Timer

from halfulp.sim.ports import Ports
from halfulp.sim.protocol import PERIOD
from halfulp.sim.rules import BUBBLE, MOVED, Broken, Entry, Registered, Waiting, wrong_latency

Seen = list[int | Broken]
"""What a cycle shows of the results: packed words that were given, and rules that were broken."""

Handshakes = dict[str, dict[str, bool]]
"""Signals of handshakes by name, for each side of a unit: ``plain``, or ``input`` and ``output`` of streams."""


class Word(Protocol):
    """Something that holds a packed word, which is that of some ports."""

    ports: Ports

    def read(self) -> int:
        """The word."""

    def write(self, word: int) -> None:
        """Put a word there."""


class Packed:
    """All fields in one signal of the simulator.

    Parameters
    ----------
    handle
        Of the signal.
    ports : Ports
    """

    def __init__(self, handle: Any, ports: Ports) -> None:
        self.handle, self.ports = handle, ports

    def read(self) -> int:
        """The word."""
        return int(self.handle.value)

    def write(self, word: int) -> None:
        """Put a word there."""
        self.handle.value = word


class Wires:
    """A signal of the simulator for each port.

    Parameters
    ----------
    handles : mapping
        By names of ports.
    ports : Ports
    """

    def __init__(self, handles: Mapping[str, Any], ports: Ports) -> None:
        self.handles, self.ports = [handles[name] for name in ports.names], ports

    def read(self) -> int:
        """The word."""
        return self.ports.pack([int(handle.value) for handle in self.handles])

    def write(self, word: int) -> None:
        """Put a word there."""
        for handle, code in zip(self.handles, self.ports.unpack(word), strict=True):
            handle.value = code


class Interface:
    """One way into a unit, or the way out, or both.

    Parameters
    ----------
    clk, rst
        Handles; without a reset there is none.
    inputs, outputs : Word, optional
    """

    def __init__(self, *, clk: Any, rst: Any = None, inputs: Word | None = None, outputs: Word | None = None) -> None:
        self.clk, self.rst = clk, rst
        self._inputs, self._outputs = inputs, outputs

    @property
    def inputs(self) -> Word:
        """Where operands are."""
        assert self._inputs is not None, "this interface has results only"
        return self._inputs

    @property
    def outputs(self) -> Word:
        """Where results are."""
        assert self._outputs is not None, "this interface has operands only"
        return self._outputs

    async def edge(self) -> None:
        """The moment at which pins are driven."""
        await FallingEdge(self.clk)

    async def middle(self) -> None:
        """The moment after `edge` at which pins are looked at."""
        await Timer(PERIOD // 4, "ns")

    async def cycle(self) -> None:
        """The moment of the next cycle at which pins are looked at."""
        await self.edge()
        await self.middle()

    @property
    def resetting(self) -> bool:
        """Whether the coming edge resets the unit, and takes nothing."""
        return self.rst is not None and bool(int(self.rst.value))

    async def reset(self) -> None:
        """Hold reset for two clock edges."""
        if self.rst is None:
            raise ValueError("a reset was asked for, but the interface has none")
        self.rst.value = 1
        await self.edge()
        await self.edge()
        self.rst.value = 0

    def offer(self, word: int | None, noise: int = 0) -> None:
        """Drive operands, or none; without any the pins carry noise."""
        raise NotImplementedError

    def grant(self, granted: bool) -> None:
        """Let results go on, or hold them up."""
        raise NotImplementedError

    @property
    def taken(self) -> bool:
        """Whether the coming edge takes operands."""
        raise NotImplementedError

    def watch(self) -> "Watch":
        """A watch over the results, from reset."""
        raise NotImplementedError

    def handshakes(self) -> Handshakes:
        """What the signals of the handshakes are in this cycle."""
        raise NotImplementedError


class Watch(Protocol):
    """Sees every cycle from reset on."""

    def see(self) -> Seen:
        """What this cycle shows."""

    def explain(self, expected: Sequence[int]) -> Broken | None:
        """Why results are wrong, where it is not arithmetic; ``expected`` are those of all operations since reset."""


class Pins(Interface):
    """A unit as it is, with clock enable and ``valid``.

    Parameters
    ----------
    latency : int
    holds : bool
        Whether the result stays what it was in a cycle without operands.
    en, valid
        Handles; without one it is always set.
    clk, rst, inputs, outputs
        As `Interface` takes them. Of a unit without registers the clock says when it is looked at.
    """

    def __init__(self, *, latency: int, holds: bool = False, en: Any = None, valid: Any = None, **known: Any) -> None:
        super().__init__(**known)
        self.latency, self.holds, self.en, self.valid = latency, holds, en, valid

    def offer(self, word: int | None, noise: int = 0) -> None:
        """Drive operands, or none."""
        if self.valid is not None:
            self.valid.value = int(word is not None)
        self.inputs.write(noise if word is None else word)

    def grant(self, granted: bool) -> None:
        """Drive the clock enable."""
        if self.en is not None:
            self.en.value = int(granted)

    @property
    def offered(self) -> bool:
        """Whether there are operands."""
        return self.valid is None or bool(int(self.valid.value))

    @property
    def enabled(self) -> bool:
        """Whether registers take something at the coming edge."""
        return self.en is None or bool(int(self.en.value))

    @property
    def taken(self) -> bool:
        """Whether the coming edge takes operands."""
        return self.offered and self.enabled and not self.resetting

    def watch(self) -> "Watch":
        """A watch over the results, from reset."""
        return _Behind(self) if self.latency else _Beside(self)

    def handshakes(self) -> Handshakes:
        """What the signals of the handshake are in this cycle."""
        return {"plain": {"en": self.enabled, "valid": self.offered}}


class _Behind:
    """Results that come some edges after their operands."""

    def __init__(self, pins: Pins) -> None:
        self.pins, self.rule = pins, Registered(pins.latency, pins.holds)
        self._count, self._last = 0, 0

    def see(self) -> Seen:
        word, found = self.pins.outputs.read(), Seen()
        match self.rule.see(word):
            case Entry(fresh=True):
                found, self._last = [word], word
            case Entry():
                found = [BUBBLE] if word != self._last else []
            case (str(kind), str(text)):
                found = [(kind, text)]
        taken = self.pins.taken
        self.rule.edge(enabled=self.pins.enabled, vector=self._count if taken else None)
        self._count += taken
        return found

    def explain(self, expected: Sequence[int]) -> Broken | None:
        other = self.rule.other_latency(expected)
        return None if other is None else wrong_latency(other, self.pins.latency)


class _Beside:
    """Results that are there with their operands, for as long as these wait."""

    def __init__(self, pins: Pins) -> None:
        self.pins = pins
        self._waiting: tuple[int, int] | None = None

    def see(self) -> Seen:
        if not self.pins.offered:
            self._waiting = None
            return []
        now = self.pins.inputs.read(), self.pins.outputs.read()
        before, self._waiting = self._waiting, None if self.pins.taken else now
        found = Seen([now[1]] if self.pins.taken else [])
        if before is not None and before[0] == now[0] and before[1] != now[1]:
            found.append(MOVED)
        return found

    def explain(self, expected: Sequence[int]) -> Broken | None:
        return None


class Source(Interface):
    """A stream of operands.

    Parameters
    ----------
    valid, ready
        Handles.
    side : str
        What its handshake is called.
    clk, rst, inputs
        As `Interface` takes them.
    """

    def __init__(self, *, valid: Any, ready: Any, side: str = "input", **known: Any) -> None:
        super().__init__(**known)
        self.valid, self.ready, self.side = valid, ready, side

    def offer(self, word: int | None, noise: int = 0) -> None:
        """Drive operands, or none."""
        self.valid.value = int(word is not None)
        self.inputs.write(noise if word is None else word)

    @property
    def taken(self) -> bool:
        """Whether the coming edge takes operands."""
        return bool(int(self.valid.value)) and bool(int(self.ready.value)) and not self.resetting

    def handshakes(self) -> Handshakes:
        """What the signals of the handshake are in this cycle."""
        return {self.side: {"valid": bool(int(self.valid.value)), "ready": bool(int(self.ready.value))}}


class Sink(Interface):
    """A stream of results.

    Parameters
    ----------
    valid, ready
        Handles.
    side : str
        What its handshake is called.
    clk, rst, outputs
        As `Interface` takes them.
    """

    def __init__(self, *, valid: Any, ready: Any, side: str = "output", **known: Any) -> None:
        super().__init__(**known)
        self.valid, self.ready, self.side = valid, ready, side

    def grant(self, granted: bool) -> None:
        """Be ready for a result, or not."""
        self.ready.value = int(granted)

    def watch(self) -> "Watch":
        """A watch over the results, from reset."""
        return _Stream(self)

    def handshakes(self) -> Handshakes:
        """What the signals of the handshake are in this cycle."""
        return {self.side: {"valid": bool(int(self.valid.value)), "ready": bool(int(self.ready.value))}}


class Streams(Interface):
    """A stream of operands and one of results.

    Parameters
    ----------
    source : Source
    sink : Sink
        With the same clock.
    """

    def __init__(self, source: Source, sink: Sink) -> None:
        super().__init__(clk=source.clk, rst=source.rst, inputs=source.inputs, outputs=sink.outputs)
        self.source, self.sink = source, sink

    def offer(self, word: int | None, noise: int = 0) -> None:
        """Drive operands, or none."""
        self.source.offer(word, noise)

    def grant(self, granted: bool) -> None:
        """Be ready for a result, or not."""
        self.sink.grant(granted)

    @property
    def taken(self) -> bool:
        """Whether the coming edge takes operands."""
        return self.source.taken

    def watch(self) -> "Watch":
        """A watch over the results, from reset."""
        return self.sink.watch()

    def handshakes(self) -> Handshakes:
        """What the signals of the handshakes are in this cycle."""
        return self.source.handshakes() | self.sink.handshakes()


class _Stream:
    """Results that wait to be taken."""

    def __init__(self, sink: Sink) -> None:
        self.sink, self.rule = sink, Waiting()

    def see(self) -> Seen:
        valid, ready = bool(int(self.sink.valid.value)), bool(int(self.sink.ready.value))
        word = self.sink.outputs.read()
        broken = self.rule.see(valid, ready, word)
        return [*([broken] if broken else []), *([word] if valid and ready else [])]

    def explain(self, expected: Sequence[int]) -> Broken | None:
        return None
