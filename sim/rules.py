"""What a unit and a stream must not do, whatever their results: rules that every bench watches over.

Nothing here knows of a simulator: each cycle is told what the pins show.
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

PACES = ((1.0, 1.0), (1.0, 0.2), (0.2, 1.0), (0.5, 0.5), (0.9, 0.9))
"""How likely a stream has a payload to offer, and is ready to take one, in a cycle: a storm is one after the other."""

PACED = 64
"""Cycles of one pace."""

STALLED, BUBBLES = 0.25, 0.15
"""How often a registered unit is stalled, and how often an operation is held back."""

SHOWN = 8
"""Failures of one check that are reported in full; the others are counted."""

Broken = tuple[str, str]
"""The kind of a failure, and a sentence about it."""

MOVED: Broken = ("stall", "the result moved while the clock enable was low")
BUBBLE: Broken = ("bubble", "the result moved although the operands were not valid")


class Pace:
    """Who waits for whom in a stream: paces in random order.

    Parameters
    ----------
    noise : random.Random
    """

    def __init__(self, noise: Random) -> None:
        self.noise, self._cycle = noise, 0
        self.offers, self.takes = PACES[0]

    def step(self) -> None:
        """The next cycle begins."""
        if self._cycle % PACED == 0:
            self.offers, self.takes = self.noise.choice(PACES)
        self._cycle += 1


class Waiting:
    """A result that waits to be taken stays, and stays what it is."""

    def __init__(self) -> None:
        self._held: int | None = None

    def see(self, valid: bool, ready: bool, word: int) -> Broken | None:
        """What is wrong in a cycle that shows this, if anything."""
        held, self._held = self._held, word if valid and not ready else None
        if held is None:
            return None
        if not valid:
            return "withdrawn", "valid fell before the result was taken"
        return ("payload", "the result changed while it waited to be taken") if word != held else None


class Entry(NamedTuple):
    """What an enabled edge took in: the operation whose result is due for it, and whether it was that operation."""

    vector: int | None
    fresh: bool


class Registered:
    """The results of a registered unit: each appears exactly ``latency`` enabled edges after its operands.

    Parameters
    ----------
    latency : int
    holds : bool
        Whether the result stays what it was in a cycle without operands.

    Attributes
    ----------
    entered : list of Entry
        One for each enabled edge.
    seen : list of int
        What the output showed after each of them.
    """

    def __init__(self, latency: int, holds: bool) -> None:
        self.latency, self.holds = latency, holds
        self.entered: list[Entry] = []
        self.seen: list[int] = []
        self._stepped = False
        self._before: int | None = None

    def see(self, word: int) -> Entry | Broken | None:
        """What the output shows now: the result that is due, or a broken rule, or nothing that is known."""
        before, self._before = self._before, word
        if not self._stepped:
            return MOVED if self.seen and word != before else None
        self.seen.append(word)
        if len(self.entered) < self.latency:
            return None
        entry = self.entered[len(self.entered) - self.latency]
        return None if entry.vector is None else entry

    def edge(self, *, enabled: bool, vector: int | None) -> None:
        """A clock edge follows, with an operation or without one."""
        self._stepped = enabled
        if not enabled:
            return
        if vector is not None:
            self.entered.append(Entry(vector, fresh=True))
        else:
            # Where nothing enters, the state stays, and so does a result that is the state; nothing is known of noise.
            held = self.entered[-1].vector if self.holds and self.entered else None
            self.entered.append(Entry(held, fresh=False))

    def other_latency(self, expected: Sequence[int]) -> int | None:
        """A latency with which all results would be right, where the unit's own is wrong."""
        fresh = [(edge, entry.vector) for edge, entry in enumerate(self.entered) if entry.fresh]
        for other in range(max(self.latency - 4, 1), self.latency + 5):
            # The last results may still be inside the unit when its latency is longer than it says.
            pairs = [
                (self.seen[edge + other - 1], expected[vector])
                for edge, vector in fresh
                if vector is not None and edge + other - 1 < len(self.seen)
            ]
            if other != self.latency and len(pairs) > 8 and all(got == want for got, want in pairs):
                return other
        return None


def wrong_latency(other: int, latency: int) -> Broken:
    """Sentence about a unit whose results come at another time than it says."""
    return (
        "latency",
        f"results appear {other} clock cycles after their operands, but the latency is said to be {latency}",
    )
