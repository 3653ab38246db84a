"""Interfaces: signals of the simulator that drive and observe a unit, as packed words.

Drivers change pins at the falling edge of the clock, and monitors read them a quarter of a period later. So monitors
see the levels at the rising edge, driven by a driver or by registers of a surrounding design.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from cocotb.triggers import FallingEdge, Timer

from halfulp.sim.ports import Ports
from halfulp.sim.protocol import PERIOD
from halfulp.sim.rules import BUBBLE, MOVED, Broken, Entry, Registered, Waiting, wrong_latency

Seen = list[int | Broken]
"""Results of a cycle as packed words, and violated rules."""

Handshakes = dict[str, dict[str, bool]]
"""Handshake signals by name, for each side: ``plain``, or ``input`` and ``output`` of streams."""


class Packed:
    """Packed word in one signal.

    Parameters
    ----------
    handle
        Handle of the signal.
    ports : Ports
    """

    def __init__(self, handle: Any, ports: Ports) -> None:
        self.handle, self.ports = handle, ports

    def read(self) -> int:
        """Read the word."""
        return int(self.handle.value)

    def write(self, word: int) -> None:
        """Drive a word."""
        self.handle.value = word


class Wires:
    """Packed word in one signal per port.

    Parameters
    ----------
    handles : mapping
        Handles by port name.
    ports : Ports
    """

    def __init__(self, handles: Mapping[str, Any], ports: Ports) -> None:
        self.handles, self.ports = [handles[name] for name in ports.names], ports

    def read(self) -> int:
        """Read the word."""
        return self.ports.pack([int(handle.value) for handle in self.handles])

    def write(self, word: int) -> None:
        """Drive a word."""
        for handle, code in zip(self.handles, self.ports.unpack(word), strict=True):
            handle.value = code


Word = Packed | Wires


def _level(handle: Any) -> bool:
    return bool(int(handle.value))


class Watch:
    """Checker of the results of every cycle since reset."""

    @abstractmethod
    def see(self) -> Seen:
        """Return the results and violated rules of this cycle."""

    def explain(self, expected: Sequence[int]) -> Broken | None:
        """Return a cause of wrong results other than arithmetic; ``expected`` are all words since reset."""
        return None


class Interface:
    """Signals of the inputs or outputs of a unit, or both.

    Parameters
    ----------
    clk, rst
        Handles of clock and reset; ``rst`` may be None.
    inputs, outputs : Packed or Wires, optional
    """

    def __init__(self, *, clk: Any, rst: Any = None, inputs: Word | None = None, outputs: Word | None = None) -> None:
        self.clk, self.rst = clk, rst
        self._inputs, self._outputs = inputs, outputs

    @property
    def inputs(self) -> Word:
        """Signals of the operands."""
        assert self._inputs is not None, "this interface has results only"
        return self._inputs

    @property
    def outputs(self) -> Word:
        """Signals of the results."""
        assert self._outputs is not None, "this interface has operands only"
        return self._outputs

    async def edge(self) -> None:
        """Wait until pins may be driven."""
        await FallingEdge(self.clk)

    async def middle(self) -> None:
        """Wait, after `edge`, until pins may be read."""
        await Timer(PERIOD // 4, "ns")

    async def cycle(self) -> None:
        """Wait until pins of the next cycle may be read."""
        await self.edge()
        await self.middle()

    @property
    def resetting(self) -> bool:
        """True if the coming edge resets the unit and accepts no operands."""
        return self.rst is not None and _level(self.rst)

    async def reset(self) -> None:
        """Hold reset for two clock edges."""
        if self.rst is None:
            raise ValueError("the interface has no reset; give it the handle rst")
        self.rst.value = 1
        await self.edge()
        await self.edge()
        self.rst.value = 0

    def offer(self, word: int | None, noise: int = 0) -> None:
        """Drive operands, or noise without operands if ``word`` is None."""
        raise NotImplementedError  # a Sink has no operands

    def grant(self, granted: bool) -> None:
        """Accept results or apply back-pressure."""
        raise NotImplementedError  # a Source has no results

    @property
    def taken(self) -> bool:
        """True if the coming edge accepts operands."""
        raise NotImplementedError  # a Sink has no operands

    def watch(self) -> Watch:
        """Create a checker of the results, from reset."""
        raise NotImplementedError  # a Source has no results

    @abstractmethod
    def handshakes(self) -> Handshakes:
        """Return the levels of the handshake signals in this cycle."""


class Pins(Interface):
    """Interface of a unit with clock enable and ``valid``.

    Parameters
    ----------
    latency : int
    holds : bool
        True if the result holds in a cycle without operands.
    en, valid
        Handles; None for constant 1.
    clk, rst, inputs, outputs
        Parameters of `Interface`; a combinational unit uses the clock only to time reads.
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
        """True if operands are valid."""
        return self.valid is None or _level(self.valid)

    @property
    def enabled(self) -> bool:
        """True if the coming edge clocks the registers."""
        return self.en is None or _level(self.en)

    @property
    def taken(self) -> bool:
        return self.offered and self.enabled and not self.resetting

    def watch(self) -> Watch:
        return _RegisteredWatch(self) if self.latency else _CombinationalWatch(self)

    def handshakes(self) -> Handshakes:
        return {"plain": {"en": self.enabled, "valid": self.offered}}


class _RegisteredWatch(Watch):
    """Checker of a registered unit."""

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


class _CombinationalWatch(Watch):
    """Checker of a unit without latency: the result holds while its operands wait."""

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
    """Interface of a stream.

    Parameters
    ----------
    valid, ready
        Handles of the handshake.
    side : str, optional
        Name of the handshake; default: ``input`` or ``output``.
    clk, rst, inputs, outputs
        Parameters of `Interface`.
    """

    SIDE: ClassVar[str]

    def __init__(self, *, valid: Any, ready: Any, side: str = "", **known: Any) -> None:
        super().__init__(**known)
        self.valid, self.ready, self.side = valid, ready, side or self.SIDE

    def handshakes(self) -> Handshakes:
        return {self.side: {"valid": _level(self.valid), "ready": _level(self.ready)}}


class Source(_Stream):
    """Interface of a stream of operands, with the further parameters ``valid``, ``ready`` and ``side``."""

    SIDE = "input"

    def offer(self, word: int | None, noise: int = 0) -> None:
        self.valid.value = int(word is not None)
        self.inputs.write(noise if word is None else word)

    @property
    def taken(self) -> bool:
        return _level(self.valid) and _level(self.ready) and not self.resetting


class Sink(_Stream):
    """Interface of a stream of results, with the further parameters ``valid``, ``ready`` and ``side``."""

    SIDE = "output"

    def grant(self, granted: bool) -> None:
        self.ready.value = int(granted)

    def watch(self) -> Watch:
        return _StreamWatch(self)


class Streams(Interface):
    """Interface of a stream of operands and a stream of results, with one clock."""

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


class _StreamWatch(Watch):
    """Checker of a stream: a waiting result holds."""

    def __init__(self, sink: Sink) -> None:
        self.sink, self.rule = sink, Waiting()

    def see(self) -> Seen:
        valid, ready = _level(self.sink.valid), _level(self.sink.ready)
        word = self.sink.outputs.read()
        broken = self.rule.see(valid, ready, word)
        return [*([broken] if broken else []), *([word] if valid and ready else [])]
