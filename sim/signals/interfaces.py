"""Interfaces: signals of the simulator that drive and observe a unit, as packed words.

Drivers change pins at the falling edge of the clock, and monitors read them a quarter of a period later. So monitors
see the levels at the rising edge, driven by a driver or by registers of a surrounding design.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from cocotb.triggers import FallingEdge, Timer

from .layout import Layout
from .rules import BUBBLE, MOVED, Broken, Entry, Registered, Waiting, wrong_latency

PERIOD = 10
"""Clock period in nanoseconds."""

Seen = list[int | Broken]
"""Results of a cycle as packed words, and violated rules."""

Handshakes = dict[str, dict[str, bool]]
"""Handshake signals by name, for each side: ``plain``, or ``input`` and ``output`` of streams."""


UNKNOWN = -1
"""Word with unknown bits, which no result equals."""


def _number(handle: Any) -> int:
    """Return the value of a signal; `UNKNOWN` if a bit is neither 0 nor 1."""
    try:
        return int(handle.value)
    except ValueError:
        return UNKNOWN


class ActiveLow:
    """Handle of a signal that is active low, with the values of one that is active high.

    Parameters
    ----------
    handle
        Handle of the signal.
    """

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    @property
    def value(self) -> int:
        """1 if the signal is active."""
        return 1 - int(self.handle.value)

    @value.setter
    def value(self, level: int) -> None:
        self.handle.value = 1 - level


class Packed:
    """Packed word in one signal.

    Parameters
    ----------
    handle
        Handle of the signal.
    ports : Layout
    """

    def __init__(self, handle: Any, ports: Layout) -> None:
        self.handle, self.ports = handle, ports

    def read(self) -> int:
        """Read the word."""
        return _number(self.handle)

    def write(self, word: int) -> None:
        """Drive a word."""
        self.handle.value = word


class Aligned(Packed):
    """Packed word in one signal, in which each port begins at a byte; the bits between the ports are 0.

    Parameters
    ----------
    handle
        Handle of the signal.
    ports : Layout
    """

    def read(self) -> int:
        """Read the word; `UNKNOWN` if a bit between the ports is not 0."""
        payload = _number(self.handle)
        codes = [(payload >> place) & ((1 << port.width) - 1) for port, place in self.ports.slices(8)]
        word = self.ports.pack(codes)
        return word if self._payload(word) == payload else UNKNOWN

    def write(self, word: int) -> None:
        """Drive a word."""
        self.handle.value = self._payload(word)

    def _payload(self, word: int) -> int:
        codes = self.ports.unpack(word)
        return sum(code << place for code, (_, place) in zip(codes, self.ports.slices(8), strict=True))


class Wires:
    """Packed word in one signal per port.

    Parameters
    ----------
    handles : mapping
        Handles by port name.
    ports : Layout
    """

    def __init__(self, handles: Mapping[str, Any], ports: Layout) -> None:
        self.handles, self.ports = [handles[name] for name in ports.names], ports

    def read(self) -> int:
        """Read the word."""
        codes = [_number(handle) for handle in self.handles]
        return UNKNOWN if UNKNOWN in codes else self.ports.pack(codes)

    def write(self, word: int) -> None:
        """Drive a word."""
        for handle, code in zip(self.handles, self.ports.unpack(word), strict=True):
            handle.value = code


async def reset(clk: Any, rst: Any) -> None:
    """Hold reset for two clock edges, from a falling edge."""
    rst.value = 1
    await FallingEdge(clk)
    await FallingEdge(clk)
    rst.value = 0


Word = Packed | Aligned | Wires


def _level(handle: Any) -> bool:
    return bool(int(handle.value))


class Watch:
    """Checker of the results of every cycle since reset."""

    @abstractmethod
    def see(self) -> Seen:
        """Return the results and violated rules of this cycle."""

    def step(self) -> None:
        """Record the clock edge at the end of this cycle, after `see`."""

    def explain(self, expected: Sequence[int]) -> Broken | None:
        """Return a cause of wrong results other than arithmetic; ``expected`` are all words since reset."""
        return None


class Interface:
    """Signals of the inputs or outputs of a unit, or both.

    Parameters
    ----------
    clk, rst
        Handles of clock and reset; ``rst`` may be None.
    inputs, outputs : Packed, Aligned or Wires, optional
    """

    def __init__(self, *, clk: Any, rst: Any = None, inputs: Word | None = None, outputs: Word | None = None) -> None:
        self.clk, self.rst = clk, rst
        self._inputs, self._outputs = inputs, outputs

    @property
    def ends(self) -> bool:
        """True if there are cycles without operands."""
        return True

    @property
    def ignores(self) -> bool:
        """True if the coming edge accepts no operands, so that the driver may offer noise instead."""
        return False

    @property
    def withdraws(self) -> bool:
        """True if operands need not stay valid until they are accepted."""
        return False

    @property
    def takes(self) -> bool:
        """True if the interface has operands."""
        return self._inputs is not None

    @property
    def gives(self) -> bool:
        """True if the interface has results."""
        return self._outputs is not None

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
        await reset(self.clk, self.rst)

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
    en, valid, ready
        Handles; None for constant 1.
    initiation : int
        Clock cycles from operands to the next operands; of a unit with ``ready``, the handle decides.
    clk, rst, inputs, outputs
        Parameters of `Interface`; a combinational unit uses the clock only to time reads.
    """

    def __init__(
        self,
        *,
        latency: int,
        holds: bool = False,
        en: Any = None,
        valid: Any = None,
        ready: Any = None,
        initiation: int = 1,
        **known: Any,
    ) -> None:
        super().__init__(**known)
        self.latency, self.holds, self.initiation = latency, holds, initiation
        self.en, self.valid, self.ready = en, valid, ready
        self._busy = 0
        # Levels that this interface drives; None if another design drives the pins.
        self._offered: bool | None = None
        self._granted: bool | None = None

    def offer(self, word: int | None, noise: int = 0) -> None:
        self._offered = word is not None
        if self.valid is not None:
            self.valid.value = int(self._offered)
        self.inputs.write(noise if word is None else word)

    def grant(self, granted: bool) -> None:
        if self.en is not None:
            self._granted = granted
            self.en.value = int(granted)

    @property
    def offered(self) -> bool:
        """True if operands are valid; without ``valid``, operands that another design drives always are."""
        if self._offered is not None:
            return self._offered
        return self.valid is None or _level(self.valid)

    @property
    def enabled(self) -> bool:
        """True if the coming edge clocks the registers."""
        if self._granted is not None:
            return self._granted
        return self.en is None or _level(self.en)

    @property
    def ends(self) -> bool:
        return self.valid is not None or self._offered is not None

    @property
    def ignores(self) -> bool:
        return self.latency > 0 and self.ready is None and (self._busy > 0 or not self.enabled)

    @property
    def withdraws(self) -> bool:
        return self.latency > 0 and self.valid is not None and self.ready is None

    @property
    def taken(self) -> bool:
        ready = self._busy == 0 if self.ready is None else _level(self.ready)
        return ready and self.offered and self.enabled and not self.resetting

    def step(self, taken: bool) -> None:
        """Count the cycles after operands in which a unit without ``ready`` accepts no others."""
        if self.ready is None:
            self._busy = self.initiation - 1 if taken else max(self._busy - self.enabled, 0)

    def watch(self) -> Watch:
        return _RegisteredWatch(self) if self.latency else _CombinationalWatch(self)

    def handshakes(self) -> Handshakes:
        return {"plain": {"en": self.enabled, "valid": self.valid is None or self.offered}}


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
        return found

    def step(self) -> None:
        taken = self.pins.taken
        self.rule.edge(enabled=self.pins.enabled, vector=self._count if taken else None)
        self.pins.step(taken)
        self._count += taken

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
        # Level that this interface drives; None if another design drives it.
        self._driven: bool | None = None

    def handshakes(self) -> Handshakes:
        return {self.side: {"valid": _level(self.valid), "ready": _level(self.ready)}}


class Source(_Stream):
    """Interface of a stream of operands, with the further parameters ``valid``, ``ready`` and ``side``."""

    SIDE = "input"

    def offer(self, word: int | None, noise: int = 0) -> None:
        self._driven = word is not None
        self.valid.value = int(self._driven)
        self.inputs.write(noise if word is None else word)

    @property
    def taken(self) -> bool:
        offered = _level(self.valid) if self._driven is None else self._driven
        return offered and _level(self.ready) and not self.resetting


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
