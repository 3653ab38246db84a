"""Protocol rules of units and streams, checked on the signal levels of each cycle."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

PACES = ((1.0, 1.0), (1.0, 0.2), (0.2, 1.0), (0.5, 0.5), (0.9, 0.9))
"""Probabilities of valid and ready in a cycle of a stream; a test changes between these pairs."""

PACED = 64
"""Number of cycles with one pair of probabilities."""

STALLED, BUBBLES = 0.25, 0.15
"""Probabilities of a stall, and of a cycle without operands, in a registered unit."""

SHOWN = 8
"""Maximum number of full failure reports per check; further failures are only counted."""

Broken = tuple[str, str]
"""Kind of a failure, and a sentence about it."""


@dataclass(frozen=True)
class Fault:
    """Failure with the index of its operation and the packed result, if it has them."""

    kind: str
    text: str
    index: int | None = None
    got: int = 0


MOVED: Broken = ("stall", "the result changed while the clock enable was low")
BUBBLE: Broken = ("bubble", "the result changed in a cycle without valid operands")


class Pace:
    """Probabilities of a stream's handshake, in random order.

    Parameters
    ----------
    noise : random.Random
    """

    def __init__(self, noise: Random) -> None:
        self.noise, self._cycle = noise, 0
        self.offers, self.takes = PACES[0]

    def step(self) -> None:
        """Start the next cycle."""
        if self._cycle % PACED == 0:
            self.offers, self.takes = self.noise.choice(PACES)
        self._cycle += 1

    def gap(self) -> bool:
        """Start the next cycle; return True if it begins no offer."""
        self.step()
        return self.noise.random() >= self.offers

    def stall(self) -> bool:
        """Return True if the cycle has back-pressure."""
        return self.noise.random() >= self.takes


class Waiting:
    """Checker of a stream rule: a waiting result does not change."""

    def __init__(self) -> None:
        self._held: int | None = None

    def see(self, valid: bool, ready: bool, word: int) -> Broken | None:
        """Check the levels of a cycle; return the violated rule or None."""
        held, self._held = self._held, word if valid and not ready else None
        if held is None:
            return None
        if not valid:
            return "withdrawn", "valid fell before the transfer"
        return ("payload", "the result changed before its transfer") if word != held else None


class Entry(NamedTuple):
    """Vector whose result appears because of an enabled edge, or None; ``fresh`` if that edge sampled its operands."""

    vector: int | None
    fresh: bool


class Registered:
    """Checker of registered units: each result appears exactly ``latency`` enabled edges after its operands.

    Parameters
    ----------
    latency : int
    holds : bool
        True if the result holds in a cycle without operands.

    Attributes
    ----------
    entered : list of Entry
        One entry per enabled edge.
    seen : list of int
        Output after each enabled edge.
    """

    def __init__(self, latency: int, holds: bool) -> None:
        self.latency, self.holds = latency, holds
        self.entered: list[Entry] = []
        self.seen: list[int] = []
        self._stepped = False
        self._before: int | None = None

    def see(self, word: int) -> Entry | Broken | None:
        """Check the output; return its vector, a violated rule, or None if the expected output is unknown."""
        before, self._before = self._before, word
        if not self._stepped:
            return MOVED if self.seen and word != before else None
        self.seen.append(word)
        if len(self.entered) < self.latency:
            return None
        entry = self.entered[len(self.entered) - self.latency]
        return None if entry.vector is None else entry

    def edge(self, *, enabled: bool, vector: int | None) -> None:
        """Record a clock edge, with a vector or without one."""
        self._stepped = enabled
        if not enabled:
            return
        if vector is not None:
            self.entered.append(Entry(vector, fresh=True))
        else:
            # Without operands the state holds, and so does a result that is the state; noise has no known result.
            held = self.entered[-1].vector if self.holds and self.entered else None
            self.entered.append(Entry(held, fresh=False))

    def other_latency(self, expected: Sequence[int]) -> int | None:
        """Return another latency with which all results would be right, or None."""
        fresh = [(edge, entry.vector) for edge, entry in enumerate(self.entered) if entry.fresh]
        for other in range(max(self.latency - 4, 1), self.latency + 5):
            # With a longer latency the last results have not appeared yet.
            pairs = [
                (self.seen[edge + other - 1], expected[vector])
                for edge, vector in fresh
                if vector is not None and edge + other - 1 < len(self.seen)
            ]
            if other != self.latency and len(pairs) > 8 and all(got == want for got, want in pairs):
                return other
        return None


def wrong_latency(other: int, latency: int) -> Broken:
    """Return the failure of a unit whose latency is not the declared one."""
    return "latency", f"results appear {other} clock cycles after their operands, not {latency} as declared"
