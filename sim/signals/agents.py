"""Drivers, stall generators, monitors and a scoreboard of units, and the loop that steps them in each clock cycle."""

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Self

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import Event, FallingEdge, Timer

from .interfaces import PERIOD, Interface, Word, reset
from .rules import SHOWN, Broken, Fault, Pace

Explanation = Callable[[Sequence[int]], Broken | None]
"""Function from all expected words since the last reset to a cause of wrong results other than arithmetic."""

STUCK = 2000
"""Number of clock cycles without a transfer after which a design is stuck."""

BUSY = 100
"""Number of such times for which a design may work on, after its last operand, until its results are complete."""

SILENT = 16
"""Number of clock cycles without a transfer after the last result, to detect extra results."""


def chance(probability: float, noise: random.Random) -> Iterator[bool]:
    """Yield True with a probability: a gap or a stall in each cycle, independent of the others."""
    return iter(lambda: noise.random() < probability, None)


def paced(noise: random.Random) -> tuple[Iterator[bool], Iterator[bool]]:
    """Return the gaps and the stalls of a stream whose probabilities change every 64 cycles."""
    pace = Pace(noise)
    return iter(pace.gap, None), iter(pace.stall, None)


class Board:
    """Base of scoreboards, which receive what a `Monitor` observes: counts, and the first failures.

    Attributes
    ----------
    paired : bool
        True if each operation has one result, so that no result comes before its operands.
    checked, failed : int
        Numbers of compared results and of failures.
    shown : list
        First failures, with at least the attributes of a `Fault`.
    nothing : str
        Error of `check` if nothing was compared.
    """

    paired = True
    nothing = "nothing was checked"

    def __init__(self) -> None:
        self.checked = self.failed = 0
        self.shown: list[Any] = []

    @property
    def missing(self) -> int:
        """Number of expected results that have not been observed, at least 0."""
        return 0

    def operands(self, word: int) -> None:
        """Take operands that the design accepts."""

    def result(self, word: int) -> None:
        """Take a result."""

    def reset(self) -> None:
        """Begin again after a reset."""

    def broken(self, kind: str, text: str) -> None:
        """Take a violated rule of the protocol."""
        self.fail(Fault(kind, text))

    def fail(self, *failures: Any, count: int | None = None) -> None:
        """Record failures; ``count`` is their number if some are not given."""
        self.failed += len(failures) if count is None else count
        self.shown += failures[: max(SHOWN - len(self.shown), 0)]

    def compare(self, index: int, got: int, want: int) -> bool:
        """Compare the packed result of an operation with its expected word; return True if they are equal."""
        self.checked += 1
        if got != want:
            text = "unknown bits" if got < 0 else f"{got:#x}"
            self.fail(Fault("mismatch", f"result {index}: {text}, expected {want:#x}", index, got))
        return got == want

    def check(self, explain: Explanation = lambda expected: None, expected: Sequence[int] = ()) -> None:
        """Raise AssertionError if nothing was compared, a result is wrong, or a rule of the protocol is violated.

        Parameters
        ----------
        explain : callable
            Function from all expected words since the last reset to a cause of wrong results other than arithmetic.
        expected : sequence of int
            These words.
        """
        assert self.checked > 0, self.nothing
        if self.failed:
            causes = [cause[1] for cause in [explain(expected)] if cause]
            raise AssertionError("\n".join([f"{self.failed} failures", *causes, *(one.text for one in self.shown)]))


class Scoreboard(Board):
    """Scoreboard that compares results with expected words, in order.

    Parameters
    ----------
    expected : sequence of int
        Packed results.
    paired : bool
        Each operation has one result; False for a design with more results than operands.

    Attributes
    ----------
    first : int or None
        Index of the first wrong result.
    """

    def __init__(self, expected: Sequence[int], *, paired: bool = True) -> None:
        super().__init__()
        self.expected, self.paired = expected, paired
        self.first: int | None = None
        self._next = 0

    @property
    def missing(self) -> int:
        return len(self.expected) - self._next

    @property
    def done(self) -> bool:
        """True after all expected results."""
        return not self.missing

    def result(self, word: int) -> None:
        index = self._next
        if index == len(self.expected):
            self.broken("count", "there are more results than expected")
            return
        self._next += 1
        if not self.compare(index, word, self.expected[index]) and self.first is None:
            self.first = index

    def reset(self) -> None:
        """Expect the first result again."""
        self._next = 0

    def compare_all(self, expected: Sequence[int], results: Sequence[int]) -> None:
        """Compare all results from one reset to the next with their expected words."""
        self.expected, self._next = expected, 0
        if len(results) > len(expected):
            self.broken("count", f"there are {len(results)} results; {len(expected)} are expected")
        for word in results[: len(expected)]:
            Scoreboard.result(self, word)

    def check(self, explain: Explanation = lambda expected: None, expected: Sequence[int] = ()) -> None:
        super().check(explain, self.expected)


class Driver:
    """Driver that offers each word until the design accepts it; in gaps the pins carry noise.

    Parameters
    ----------
    interface : Interface
    words : iterable of int
        Packed operands to send first.
    gaps : iterator of bool, optional
        True for a cycle that begins no offer, and has none if the interface may withdraw it; default: no gaps.
    seed : int
        Seed of the noise.
    limit : int
        Number of clock cycles without an accepted word after which `send` stops.

    Attributes
    ----------
    sent : int
        Number of accepted words.
    gaps : iterator of bool
        Gaps of the next cycles.
    """

    def __init__(
        self,
        interface: Interface,
        words: Iterable[int] = (),
        *,
        gaps: Iterator[bool] | None = None,
        seed: int = 0,
        limit: int = STUCK,
    ) -> None:
        self.interface, self.sent, self.limit = interface, 0, limit
        self._idle = 0
        self.gaps = gaps or repeat(False)
        self._noise, self._width = random.Random(seed), interface.inputs.ports.width
        self._waiting = deque(words)
        self._offered: int | None = None
        self._empty = Event()

    @property
    def done(self) -> bool:
        """True if all words are accepted."""
        return self._offered is None and not self._waiting

    def put(self, *words: int) -> None:
        """Add packed words to those that wait for their offer."""
        self._waiting.extend(words)
        self._idle = 0
        self._empty.clear()

    async def send(self, *words: int) -> None:
        """Send packed words, and wait until the design has accepted all; AssertionError if it is stuck."""
        self.put(*words)
        if not self.done:
            await self._empty.wait()
        assert self.done, f"the design stopped after {self.sent} operands: none was accepted in {self.limit:,} cycles"

    def rest(self) -> None:
        """Drive pins without operands, before the reset."""
        self.interface.offer(None)

    def drive(self) -> None:
        """Drive the pins, at a falling edge."""
        gap = next(self.gaps)
        if self._offered is None and self._waiting and not gap:
            self._offered = self._waiting.popleft()
        noise = self._noise.getrandbits(self._width)
        self.interface.offer(None if gap and self.interface.withdraws else self._offered, noise)
        if self._offered is not None and self.interface.ignores:
            self.interface.inputs.write(noise)

    def look(self) -> None:
        """Read the handshake, before the rising edge."""
        self._idle += not self.done
        if self._offered is not None and self.interface.taken:
            self._offered, self.sent, self._idle = None, self.sent + 1, 0
        if self.done or self._idle >= self.limit:
            self._empty.set()


class Throttle:
    """Driver of the clock enable of a unit, or of ``ready`` of a stream of results.

    Parameters
    ----------
    interface : Interface
    stalls : iterator of bool, optional
        True for a cycle with a stall or with back-pressure; default: none.
    """

    def __init__(self, interface: Interface, stalls: Iterator[bool] | None = None) -> None:
        self.interface = interface
        self._stalls = stalls or repeat(False)

    def rest(self) -> None:
        """Drive a stall, before the reset."""
        self.interface.grant(False)

    def drive(self) -> None:
        """Drive the pin, at a falling edge."""
        self.interface.grant(not next(self._stalls))

    def look(self) -> None:
        """Do nothing before the rising edge."""


class Monitor:
    """Monitor of the operands that a design accepts, of its results, and of the rules of its protocol.

    Parameters
    ----------
    interface : Interface
    board : Board
        Scoreboard that receives the operations.
    late : bool
        True if the interface is read before each rising edge; False if it is read after it, at the falling edge, before
        its own driver changes the pins.
    operands, results : bool
        False to ignore one side of the interface.

    Attributes
    ----------
    cycles : dict
        Levels of the two handshake signals of each side by name, in every clock cycle; none if results are ignored.
    quiet : int
        Number of clock cycles since the last transfer.
    """

    def __init__(
        self, interface: Interface, board: Board, *, late: bool = True, operands: bool = True, results: bool = True
    ) -> None:
        self.interface, self.board, self.late = interface, board, late
        self.takes, self.results = operands and interface.takes, results
        self.cycles: dict[str, list[dict[str, bool]]] = {}
        self.quiet = 0
        self._restart()

    def _restart(self) -> None:
        self._watch = self.interface.watch() if self.results and self.interface.gives else None
        self._taken, self._given, self._resetting = 0, 0, False

    @property
    def missing(self) -> int:
        """Number of results that are expected and not observed; 0 if operands never end."""
        return self.board.missing if self.interface.ends else 0

    def explain(self, expected: Sequence[int]) -> Broken | None:
        """Return a cause of wrong results other than arithmetic; ``expected`` are all words since the last reset."""
        return None if self._watch is None else self._watch.explain(expected)

    def rest(self) -> None:
        """Do nothing before the reset."""

    def drive(self) -> None:
        """Do nothing at the falling edge."""

    def look(self) -> None:
        """Observe one cycle."""
        if self.interface.resetting:
            self._resetting = True
            return
        if self._resetting:
            self._restart()
            self.board.reset()
        if not self.late:
            self._step()
        for seen in self._watch.see() if self._watch else ():
            if isinstance(seen, int):
                self.quiet, self._given = 0, self._given + 1
                self.board.result(seen)
            else:
                self.board.broken(*seen)
        if self.late:
            self._step()

    def _step(self) -> None:
        self.quiet += 1
        if self.takes and self.interface.taken:
            self.quiet, self._taken = 0, self._taken + 1
            self.board.operands(self.interface.inputs.read())
        if self.takes and self.board.paired and self._given > self._taken:
            self.board.broken("count", "the stream has a result before its operands")
        for side, levels in self.interface.handshakes().items() if self.results else ():
            self.cycles.setdefault(side, []).append(levels)
        if self._watch:
            self._watch.step()


Agent = Driver | Throttle | Monitor


class Bench:
    """Loop that starts the clock and steps drivers and monitors in every cycle.

    Drivers change pins at the falling edge of the clock, and monitors read them a quarter of a period later. As a
    context (``async with``), the loop runs in the background, and the end of the context waits for all results and
    checks the scoreboards.

    Parameters
    ----------
    clk, rst
        Handles of clock and reset; ``rst`` may be None.
    late : bool
        False if all monitors are read at the falling edge, as `Monitor` describes; this takes half the time.
    limit : int
        Number of clock cycles without a transfer after which the design is stuck.
    """

    def __init__(self, clk: Any, rst: Any = None, *, late: bool = True, limit: int = STUCK) -> None:
        if not isinstance(limit, int) or limit < 1:
            raise ValueError(f"limit must be a positive number of clock cycles, not {limit!r}")
        self.clk, self.rst, self.late, self.limit = clk, rst, late, limit
        self.agents: list[Agent] = []
        self._edge, self._middle = FallingEdge(clk), Timer(PERIOD // 4, "ns")

    def drive(
        self,
        interface: Interface,
        words: Iterable[int] = (),
        *,
        gaps: Iterator[bool] | None = None,
        stalls: Iterator[bool] | None = None,
        seed: int = 0,
    ) -> Driver:
        """Add the drivers of both sides of an interface, and return that of the operands."""
        driver = Driver(interface, words, gaps=gaps, seed=seed, limit=self.limit)
        # The driver depends on the clock enable of the cycle.
        self.agents[:0] = [Throttle(interface, stalls), driver]
        return driver

    def watch(self, interface: Interface, board: Board) -> Monitor:
        """Add a monitor of an interface that reports to a scoreboard."""
        monitor = Monitor(interface, board, late=self.late)
        self.agents.append(monitor)
        return monitor

    async def start(self) -> None:
        """Start the clock, and reset the design."""
        Clock(self.clk, PERIOD, "ns").start()
        for agent in self.agents:
            agent.rest()
        await self._edge
        if self.rst is not None:
            await reset(self.clk, self.rst)

    async def step(self) -> None:
        """Run one clock cycle."""
        await self._edge
        if not self.late:
            for agent in self.agents:
                agent.look()
        for agent in self.agents:
            agent.drive()
        if self.late:
            await self._middle
            for agent in self.agents:
                agent.look()

    async def __aenter__(self) -> Self:
        """Start the clock, reset, and run clock cycles in the background."""
        await self.start()
        self._running = cocotb.start_soon(self.run(lambda: True))
        return self

    async def __aexit__(self, kind: Any, error: Any, where: Any) -> None:
        """Run until all operations have results, and check the scoreboards; AssertionError if the design is stuck."""
        drivers = [agent for agent in self.agents if isinstance(agent, Driver)]
        monitors = [agent for agent in self.agents if isinstance(agent, Monitor)]
        busy = await self._finish(drivers, monitors) if error is None else 0
        for _ in range(SILENT):
            await self._edge
        self._running.cancel()
        if error is None:
            for monitor in monitors:
                monitor.board.check(monitor.explain)
            for driver in drivers:
                assert driver.done, f"the design stopped after {driver.sent} operands"
            for monitor in monitors:
                assert not monitor.missing, f"{monitor.missing} results are missing after {busy:,} cycles"

    async def _finish(self, drivers: "Sequence[Driver]", monitors: "Sequence[Monitor]") -> int:
        """Wait for all results, or until the design is stuck; return the number of cycles after the last operand."""
        # Operands of an interface without `valid` never end, and are no sign of progress.
        ending = [monitor for monitor in monitors if monitor.interface.ends]
        silent, busy = 0, 0
        while silent < self.limit and busy < BUSY * self.limit:
            sent = all(driver.done for driver in drivers)
            if sent and not any(monitor.missing for monitor in monitors):
                # Extra results are a failure too.
                break
            await self._edge
            silent, busy = min((monitor.quiet for monitor in ending), default=silent + 1), busy + sent
        return busy

    async def run(self, going: Callable[[], bool]) -> None:
        """Run clock cycles while a condition holds."""
        while going():
            await self.step()


async def settle(inputs: Word, outputs: Word, words: Iterable[int], board: Board) -> None:
    """Send words to a combinational unit: each result appears without a clock edge."""
    pause = Timer(1, "ns")
    for word in words:
        inputs.write(word)
        await pause
        board.result(outputs.read())
