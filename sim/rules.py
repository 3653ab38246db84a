"""Rules of the behaviour of units and streams, whatever their results, on the levels of pins in each cycle."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

PACES = ((1.0, 1.0), (1.0, 0.2), (0.2, 1.0), (0.5, 0.5), (0.9, 0.9))
"""Probabilities of an offer, and of readiness, in a cycle of a stream; a storm is a sequence of them."""

PACED = 64
"""Cycles of one pace."""

STALLED, BUBBLES = 0.25, 0.15
"""Probabilities of a stall of a registered unit, and of a cycle without an operation."""

SHOWN = 8
"""Failures of one check that are reported in full; the others are counted."""

Broken = tuple[str, str]
"""The kind of a failure, and a sentence about it."""

MOVED: Broken = ("stall", "the result moved while the clock enable was low")
BUBBLE: Broken = ("bubble", "the result moved although the operands were not valid")


class Pace:
    """Paces of a stream in random order.

    Parameters
    ----------
    noise : random.Random
    """

    def __init__(self, noise: Random) -> None:
        self.noise, self._cycle = noise, 0
        self.offers, self.takes = PACES[0]

    def step(self) -> None:
        """Begin the next cycle."""
        if self._cycle % PACED == 0:
            self.offers, self.takes = self.noise.choice(PACES)
        self._cycle += 1


class Waiting:
    """Rule of streams: a result that waits to be taken does not change."""

    def __init__(self) -> None:
        self._held: int | None = None

    def see(self, valid: bool, ready: bool, word: int) -> Broken | None:
        """Broken rule in a cycle with these levels, if any."""
        held, self._held = self._held, word if valid and not ready else None
        if held is None:
            return None
        if not valid:
            return "withdrawn", "valid fell before the result was taken"
        return ("payload", "the result changed while it waited to be taken") if word != held else None


class Entry(NamedTuple):
    """Operation whose result an enabled edge leads to, or None; ``fresh`` if that edge took it."""

    vector: int | None
    fresh: bool


class Registered:
    """Rule of registered units: each result appears exactly ``latency`` enabled edges after its operands.

    Parameters
    ----------
    latency : int
    holds : bool
        The result does not change in a cycle without operands.

    Attributes
    ----------
    entered : list of Entry
        One for each enabled edge.
    seen : list of int
        The output after each of them.
    """

    def __init__(self, latency: int, holds: bool) -> None:
        self.latency, self.holds = latency, holds
        self.entered: list[Entry] = []
        self.seen: list[int] = []
        self._stepped = False
        self._before: int | None = None

    def see(self, word: int) -> Entry | Broken | None:
        """Operation of the present output, or a broken rule, or None where nothing is known."""
        before, self._before = self._before, word
        if not self._stepped:
            return MOVED if self.seen and word != before else None
        self.seen.append(word)
        if len(self.entered) < self.latency:
            return None
        entry = self.entered[len(self.entered) - self.latency]
        return None if entry.vector is None else entry

    def edge(self, *, enabled: bool, vector: int | None) -> None:
        """Add a clock edge, with an operation or without one."""
        self._stepped = enabled
        if not enabled:
            return
        if vector is not None:
            self.entered.append(Entry(vector, fresh=True))
        else:
            # Without an operation the state stays, and so does a result that is the state; noise has no known result.
            held = self.entered[-1].vector if self.holds and self.entered else None
            self.entered.append(Entry(held, fresh=False))

    def other_latency(self, expected: Sequence[int]) -> int | None:
        """A latency with which all results would be right, other than the declared one."""
        fresh = [(edge, entry.vector) for edge, entry in enumerate(self.entered) if entry.fresh]
        for other in range(max(self.latency - 4, 1), self.latency + 5):
            # With a longer latency the last results may still be inside the unit.
            pairs = [
                (self.seen[edge + other - 1], expected[vector])
                for edge, vector in fresh
                if vector is not None and edge + other - 1 < len(self.seen)
            ]
            if other != self.latency and len(pairs) > 8 and all(got == want for got, want in pairs):
                return other
        return None


def wrong_latency(other: int, latency: int) -> Broken:
    """Failure of a unit with another latency than the declared one."""
    return "latency", f"results appear {other} clock cycles after their operands, not {latency} as declared"
