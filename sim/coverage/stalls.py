"""Bins of the clock cycles of a handshake: transfers, waits, gaps, and their lengths."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from halfulp.sim.classes import NONE, Places

from .bins import Axis, Group

if TYPE_CHECKING:
    from halfulp.units import Unit

LENGTHS = ("1", "2", "3", "4 or more")
PLAIN, STREAMS = "plain", ("input", "output")
SIGNALS = {PLAIN: ("en", "valid"), **dict.fromkeys(STREAMS, ("valid", "ready"))}

_PLAIN = ("works", "no operands", "stalled", "stalled without operands")
_STREAM = ("idle", "ready", "waits", "taken")
_WAITS = _STREAM.index("waits")
_TAKEN = _STREAM.index("taken")


def groups(unit: "Unit") -> dict[str, tuple[Group, ...]]:
    """Return the groups of each side of a unit, in the order of `bins`."""
    groups_of = {side: _stream_groups(side, unit.initiation) for side in STREAMS}
    if unit.clocked:
        states = _states(unit)
        pairs = tuple(f"{before}, then {after}" for before in states for after in states)
        stalls = [_lengths("plain: clock enable low")] + [_lengths("plain: no operands")] * unit.has_valid
        groups_of[PLAIN] = (Group("plain: cycle after cycle", (Axis("cycles", pairs),)), *stalls)
    return groups_of


def _states(unit: "Unit") -> tuple[str, ...]:
    return _PLAIN if unit.has_valid else _PLAIN[::2]


def _lengths(name: str) -> Group:
    return Group(name, (Axis("for cycles", LENGTHS),))


def _pairs(side: str, interval: int) -> dict[tuple[int, int], str]:
    """Return the pairs of states that may follow each other in a stream, whose offers hold until their transfer.

    At an input without an offer, ``ready`` has no effect. With more than one cycle from operands to the next ones, a
    transfer follows no other at once, nor does an offer of a result.
    """
    states = range(len(_STREAM))
    legal = [(before, after) for before in states for after in states if before != _WAITS or after in (_WAITS, _TAKEN)]
    if interval > 1:
        late = (_TAKEN,) if side == "input" else (_WAITS, _TAKEN)
        legal = [(before, after) for before, after in legal if before != _TAKEN or after not in late]
    names = {state: "nothing" if side == "input" and state < _WAITS else _STREAM[state] for state in states}
    return {(before, after): f"{names[before]}, then {names[after]}" for before, after in legal}


def _stream_groups(side: str, interval: int) -> tuple[Group, ...]:
    pairs = tuple(dict.fromkeys(_pairs(side, interval).values()))
    gaps = ("0", *LENGTHS)[_shortest_gap(side, interval) :]
    return (
        Group(f"{side} stream: cycle after cycle", (Axis("cycles", pairs),)),
        _lengths(f"{side} stream: waits"),
        Group(f"{side} stream: gaps", (Axis("cycles between transfers", gaps),)),
    )


def _shortest_gap(side: str, interval: int) -> int:
    """Return the least number of cycles between a result and the offer of the next one, at most that of `LENGTHS`.

    Operands may wait while the unit is busy, without a gap.
    """
    return min(interval - 1, len(LENGTHS)) if side == "output" else 0


def bins(unit: "Unit", side: str, cycles: Mapping[str, Any]) -> list[Places]:
    """Return the bin indices of clock cycles by group of a side; raises ValueError for an unknown side or signal."""
    if side not in SIGNALS or (side == PLAIN and not unit.clocked):
        known = ", ".join(name for name in SIGNALS if name != PLAIN or unit.clocked)
        raise ValueError(f"unknown side {side!r} of {unit.name}: expected {known}")
    if set(cycles) != set(SIGNALS[side]):
        raise ValueError(f"invalid signals {', '.join(cycles)} of side {side}: expected {' and '.join(SIGNALS[side])}")
    first, second = (np.asarray(cycles[name]).astype(bool) for name in SIGNALS[side])
    if len(first) != len(second):
        raise ValueError(
            f"{len(first)} cycles of {SIGNALS[side][0]} and {len(second)} of {SIGNALS[side][1]}: expected equal lengths"
        )
    if side == PLAIN:
        return _plain_bins(unit, first, second)
    state = 2 * first + second
    interval = unit.initiation
    pairs, labels = _pairs(side, interval), _stream_groups(side, interval)[0].axes[0].labels
    table = np.full((len(_STREAM), len(_STREAM)), NONE)
    for pair, label in pairs.items():
        table[pair] = labels.index(label)
    taken = np.flatnonzero(state == _TAKEN)
    gaps = (np.diff(taken) - 1) - _waits_before(state, taken[1:])
    places = (np.minimum(gaps, len(LENGTHS)) - _shortest_gap(side, interval)).astype(np.int64)
    return [table[state[:-1], state[1:]], _run_lengths(state == _WAITS), places]


def _plain_bins(unit: "Unit", enable: "np.ndarray", valid: "np.ndarray") -> list[Places]:
    state = 2 * ~enable + (~valid if unit.has_valid else np.zeros_like(valid))
    count = len(_states(unit))
    place = state if unit.has_valid else state // 2
    bins = [(place[:-1] * count + place[1:]).astype(np.int64), _run_lengths(~enable)]
    return [*bins, _run_lengths(~valid)] if unit.has_valid else bins


def _run_lengths(where: "np.ndarray") -> Places:
    """Return the label indices of the lengths of runs of cycles, without an unfinished run."""
    steps = np.diff(np.concatenate([[False], where]).astype(np.int8))
    begins, ends = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)
    lengths = ends - begins[: len(ends)]
    return np.minimum(lengths, len(LENGTHS)).astype(np.int64) - 1


def _waits_before(state: "np.ndarray", taken: "np.ndarray") -> Places:
    """Return the number of cycles that each transfer waited."""
    waiting = np.concatenate([[0], np.cumsum(state == _WAITS)])
    previous = np.concatenate([[0], taken[:-1]]) if len(taken) else taken
    # All waits since the previous transfer belong to this one, because an offer holds until its transfer.
    first = np.flatnonzero(state == _TAKEN)[:1]
    previous[:1] = first
    return (waiting[taken] - waiting[previous]).astype(np.int64)
