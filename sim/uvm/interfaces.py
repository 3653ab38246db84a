"""Interfaces: signals of the simulator through which a unit is driven and watched, as packed words.

A driver changes pins at the falling edge of the clock, and monitors look a quarter of a period later. So monitors see
what the rising edge takes, whether the pins are driven by a driver or by the registers of a design around the unit.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from cocotb.triggers import FallingEdge, Timer

from halfulp.sim.ports import Ports
from halfulp.sim.protocol import PERIOD
from halfulp.sim.rules import BUBBLE, MOVED, Broken, Entry, Registered, Waiting, wrong_latency

Seen = list[int | Broken]
"""Results of a cycle, as packed words, and rules that it breaks."""

Handshakes = dict[str, dict[str, bool]]
"""Signals of handshakes by name, for each side of a unit: ``plain``, or ``input`` and ``output`` of streams."""


class Packed:
    """A packed word in one signal.

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
        """Drive a word."""
        self.handle.value = word


class Wires:
    """A packed word in a signal for each port.

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
        """Drive a word."""
        for handle, code in zip(self.handles, self.ports.unpack(word), strict=True):
            handle.value = code


Word = Packed | Wires


def _level(handle: Any) -> bool:
    return bool(int(handle.value))


class Watch:
    """Watches the results of every cycle from reset on."""

    def see(self) -> Seen:
        """Results and broken rules of this cycle."""
        raise NotImplementedError

    def explain(self, expected: Sequence[int]) -> Broken | None:
        """Cause of wrong results other than arithmetic; ``expected`` are those of all operations since reset."""
        return None


class Interface:
    """Inputs of a unit, or its outputs, or both.

    Parameters
    ----------
    clk, rst
        Handles; None: no reset.
    inputs, outputs : Packed or Wires, optional
    """

    def __init__(self, *, clk: Any, rst: Any = None, inputs: Word | None = None, outputs: Word | None = None) -> None:
        self.clk, self.rst = clk, rst
        self._inputs, self._outputs = inputs, outputs

    @property
    def inputs(self) -> Word:
        """The operands."""
        assert self._inputs is not None, "this interface has results only"
        return self._inputs

    @property
    def outputs(self) -> Word:
        """The results."""
        assert self._outputs is not None, "this interface has operands only"
        return self._outputs

    async def edge(self) -> None:
        """Wait until pins are driven."""
        await FallingEdge(self.clk)

    async def middle(self) -> None:
        """Wait, after `edge`, until pins are read."""
        await Timer(PERIOD // 4, "ns")

    async def cycle(self) -> None:
        """Wait until pins of the next cycle are read."""
        await self.edge()
        await self.middle()

    @property
    def resetting(self) -> bool:
        """True if the coming edge resets the unit, and takes nothing."""
        return self.rst is not None and _level(self.rst)

    async def reset(self) -> None:
        """Hold reset for two clock edges."""
        if self.rst is None:
            raise ValueError("the interface has no reset")
        self.rst.value = 1
        await self.edge()
        await self.edge()
        self.rst.value = 0

    def offer(self, word: int | None, noise: int = 0) -> None:
        """Drive operands; None: no operands, with noise on the pins."""
        raise NotImplementedError

    def grant(self, granted: bool) -> None:
        """Let results go on, or hold them up."""
        raise NotImplementedError

    @property
    def taken(self) -> bool:
        """True if the coming edge takes operands."""
        raise NotImplementedError

    def watch(self) -> Watch:
        """A watch over the results, from reset."""
        raise NotImplementedError

    def handshakes(self) -> Handshakes:
        """Signals of the handshakes in this cycle."""
        raise NotImplementedError


class Pins(Interface):
    """A unit as it is, with clock enable and ``valid``.

    Parameters
    ----------
    latency : int
    holds : bool
        The result does not change in a cycle without operands.
    en, valid
        Handles; None: always 1.
    clk, rst, inputs, outputs
        As of `Interface`. The clock of a unit without registers only sets the time of reading.
    """

    def __init__(self, *, latency: int, holds: bool = False, en: Any = None, valid: Any = None, **known: Any) -> None:
        super().__init__(**known)
        self.latency, self.holds, self.en, self.valid = latency, holds, en, valid

    def offer(self, word: int | None, noise: int = 0) -> None:
        if self.valid is not None:
            self.valid.value = int(word is not None)
        self.inputs.write(noise if word is None else word)

    def grant(self, granted: bool) -> None:
        if self.en is not None:
            self.en.value = int(granted)

    @property
    def offered(self) -> bool:
        """True if there are operands."""
        return self.valid is None or _level(self.valid)

    @property
    def enabled(self) -> bool:
        """True if the coming edge clocks the registers."""
        return self.en is None or _level(self.en)

    @property
    def taken(self) -> bool:
        return self.offered and self.enabled and not self.resetting

    def watch(self) -> Watch:
        return _Behind(self) if self.latency else _Beside(self)

    def handshakes(self) -> Handshakes:
        return {"plain": {"en": self.enabled, "valid": self.offered}}


class _Behind(Watch):
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


class _Beside(Watch):
    """Results in the same cycle as their operands, for as long as these wait."""

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


class _Stream(Interface):
    """A stream.

    Parameters
    ----------
    valid, ready
        Handles.
    side : str, optional
        Name of its handshake; default: ``input`` or ``output``.
    clk, rst, inputs, outputs
        As of `Interface`.
    """

    SIDE: ClassVar[str]

    def __init__(self, *, valid: Any, ready: Any, side: str = "", **known: Any) -> None:
        super().__init__(**known)
        self.valid, self.ready, self.side = valid, ready, side or self.SIDE

    def handshakes(self) -> Handshakes:
        return {self.side: {"valid": _level(self.valid), "ready": _level(self.ready)}}


class Source(_Stream):
    """A stream of operands, with the parameters ``valid``, ``ready`` and ``side`` beside those of `Interface`."""

    SIDE = "input"

    def offer(self, word: int | None, noise: int = 0) -> None:
        self.valid.value = int(word is not None)
        self.inputs.write(noise if word is None else word)

    @property
    def taken(self) -> bool:
        return _level(self.valid) and _level(self.ready) and not self.resetting


class Sink(_Stream):
    """A stream of results, with the parameters ``valid``, ``ready`` and ``side`` beside those of `Interface`."""

    SIDE = "output"

    def grant(self, granted: bool) -> None:
        self.ready.value = int(granted)

    def watch(self) -> Watch:
        return _Waiting(self)


class Streams(Interface):
    """A stream of operands and one of results, with one clock."""

    def __init__(self, source: Source, sink: Sink) -> None:
        super().__init__(clk=source.clk, rst=source.rst, inputs=source.inputs, outputs=sink.outputs)
        self.source, self.sink = source, sink

    def offer(self, word: int | None, noise: int = 0) -> None:
        self.source.offer(word, noise)

    def grant(self, granted: bool) -> None:
        self.sink.grant(granted)

    def watch(self) -> Watch:
        return self.sink.watch()

    @property
    def taken(self) -> bool:
        return self.source.taken

    def handshakes(self) -> Handshakes:
        return self.source.handshakes() | self.sink.handshakes()


class _Waiting(Watch):
    """Results that wait to be taken."""

    def __init__(self, sink: Sink) -> None:
        self.sink, self.rule = sink, Waiting()

    def see(self) -> Seen:
        valid, ready = _level(self.sink.valid), _level(self.sink.ready)
        word = self.sink.outputs.read()
        broken = self.rule.see(valid, ready, word)
        return [*([broken] if broken else []), *([word] if valid and ready else [])]
