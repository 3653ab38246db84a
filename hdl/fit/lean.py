"""The smallest unit for an error: coefficients of few bits, and breakpoints that few leading bits of an argument tell.

What a unit takes is estimated, in lookup tables of six inputs: the product in rows of two bits of the slope, the sum,
the coefficients, and what finds them. Among tables of one error that is good enough to tell a small one from a large.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from .segmentation import Found, Task

MOST_LEADING = 7
"""Leading bits of an argument that find its coefficients at once: a lookup table for each bit of these, or two."""

_FEWEST_LEADING = 4


@dataclass(frozen=True)
class Key:
    """Arguments as integers: how many bits these have, and how many of them are behind the point."""

    bits: int
    places: int


def leanest(task: Task, error: float, names: Sequence[str], key: Key | None) -> Task:
    """A task whose pieces for an error are expected to make the smallest unit.

    Parameters
    ----------
    task : Task
        With coefficients of many bits, and breakpoints anywhere; it reaches the error.
    error : float
    names : sequence of str
        Of ``slopes`` and ``intercepts``: those whose bits may become fewer.
    key : Key, optional
        What arguments are that a unit takes the leading bits off; None where it does not.
    """
    even = task.breakpoints == "uniform"
    candidates = [(_fewest(task, error, names, coarsen=not even), False)]
    if key is not None and not even:
        for leading in range(_FEWEST_LEADING, min(MOST_LEADING, key.bits - 1) + 1):
            coarse = task.coarser(key.bits - leading)
            if coarse.within(error) is not None:
                candidates.append((_fewest(coarse, error, names, coarsen=False), True))
    costs = [_cost(one, one.reached(error), key, leading) for one, leading in candidates]
    return candidates[int(np.argmin(costs))][0]


def _fewest(task: Task, error: float, names: Sequence[str], *, coarsen: bool) -> Task:
    """With the fewest bits of slopes, then with the coarsest breakpoints, then with the fewest bits of intercepts."""
    if "slopes" in names:
        task = fewest_places(task, "slopes", error)
    if coarsen:
        fine, coarse = 0, int(task.points.addresses[-1]).bit_length()
        while coarse - fine > 1:
            middle = (fine + coarse) // 2
            if task.coarser(middle).within(error) is None:
                coarse = middle
            else:
                fine = middle
        task = task.coarser(fine)
    return fewest_places(task, "intercepts", error) if "intercepts" in names else task


def fewest_places(task: Task, name: str, bound: float) -> Task:
    """With the fewest fraction bits of one coefficient for which the error is within a bound."""
    grid = getattr(task, name)

    def rounded(places: int) -> Task:
        return replace(task, **{name: replace(grid, step=2.0**-places)})

    most = round(-np.log2(grid.step))
    fewer = bisect_left(range(most - 1, -1, -1), True, key=lambda places: rounded(places).within(bound) is None)
    return rounded(most - fewer)


def _cost(task: Task, found: Found, key: Key | None, leading: bool) -> float:
    """About how many lookup tables a unit of these pieces takes; without a key no more than tells tables apart."""
    slopes, intercepts = ([line[place] for _, line in found.parts] for place in (0, 1))
    slope, intercept = _bits(slopes, task.slopes.step), _bits(intercepts, task.intercepts.step)
    bits, places = (key.bits, key.places) if key is not None else (2 * task.grain, 0)
    rows = -(-slope // 2)
    if not leading:
        index = len(found.parts).bit_length() * (bits - task.grain)
        return rows * (bits + 2) + slope + 2 * intercept + index
    # Each block has the value at its start, which may have more places.
    step = min(task.intercepts.step, task.slopes.step * 2.0 ** (task.grain - places))
    intercept = _bits(intercepts, step) + 1
    tables = 2.0 ** max(bits - task.grain - 6, 0)
    return rows * (task.grain + 2) + tables * (slope + intercept) + intercept


def _bits(numbers: Sequence[float], step: float) -> float:
    """Bits of multiples of a step; of numbers that are listed and not multiples, as many as there may be."""
    if step == 0:
        return inf if not numbers else len(numbers).bit_length()
    top = max(abs(number) for number in numbers) / step
    return int(top).bit_length() + (min(numbers) < 0)
