"""Search for the smallest unit that meets an error: few coefficient bits and coarse breakpoints.

The size is estimated in six-input LUTs: the product in rows of two slope bits, the sum, the coefficients, and the
search of the piece. The estimate only has to rank tables of the same error.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from .segmentation import Segmentation, Task

MOST_LEADING = 7
"""Maximum leading bits of an argument that address coefficients; a coefficient bit then takes one or two LUTs."""

_FEWEST_LEADING = 4


@dataclass(frozen=True)
class Key:
    """Width and fraction bits of arguments as integers."""

    bits: int
    places: int


def smallest_unit(task: Task, error: float, names: Sequence[str], key: Key | None) -> Task:
    """Return the problem whose pieces are expected to give the smallest unit for an error.

    Parameters
    ----------
    task : Task
        Problem with fine coefficients and free breakpoints that meets the error.
    error : float
    names : sequence of str
        Coefficients whose bits may be reduced: ``slopes``, ``intercepts`` or both.
    key : Key, optional
        Arguments of a unit that can select pieces by leading bits; None if the unit cannot.
    """
    even = task.breakpoints == "uniform"
    candidates = [(_fewest(task, error, names, coarsen=not even), False)]
    if key is not None and not even:
        for leading in range(_FEWEST_LEADING, min(MOST_LEADING, key.bits - 1) + 1):
            coarse = task.coarser(key.bits - leading)
            if coarse.within(error) is not None:
                candidates.append((_fewest(coarse, error, names, coarsen=False), True))
    costs = [_cost(problem, problem.fewest_pieces(error), key, leading) for problem, leading in candidates]
    return candidates[int(np.argmin(costs))][0]


def _fewest(task: Task, error: float, names: Sequence[str], *, coarsen: bool) -> Task:
    """Reduce the bits of slopes, then coarsen the breakpoints, then reduce the bits of intercepts."""
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
    """Return the problem with the fewest bits of one coefficient after the point, or significant, that meet a bound."""
    grid = getattr(task, name)

    def rounded(places: int) -> Task:
        return replace(task, **{name: grid.rounded(places)})

    most = grid.places
    fewer = bisect_left(range(most - 1, -1, -1), True, key=lambda places: rounded(places).within(bound) is None)
    return rounded(most - fewer)


def _cost(task: Task, segmentation: Segmentation, key: Key | None, leading: bool) -> float:
    """Estimate the LUTs of a unit; without a key the estimate only ranks tables."""
    slopes, intercepts = ([line[place] for _, line in segmentation.parts] for place in (0, 1))
    slope, intercept = _bits(slopes, task.slopes.step), _bits(intercepts, task.intercepts.step)
    bits, places = (key.bits, key.places) if key is not None else (2 * task.grain, 0)
    rows = -(-slope // 2)
    if not leading:
        index = len(segmentation.parts).bit_length() * (bits - task.grain)
        return rows * (bits + 2) + slope + 2 * intercept + index
    # With addresses, the intercept is the value at the start of a block, which may have more fraction bits.
    step = min(task.intercepts.step, task.slopes.step * 2.0 ** (task.grain - places))
    intercept = _bits(intercepts, step) + 1
    tables = 2.0 ** max(bits - task.grain - 6, 0)
    return rows * (task.grain + 2) + tables * (slope + intercept) + intercept


def _bits(numbers: Sequence[float], step: float) -> float:
    """Return the width of multiples of a step; for listed values, the width of an index."""
    if step == 0:
        return inf if not numbers else len(numbers).bit_length()
    top = max(abs(number) for number in numbers) / step
    return int(top).bit_length() + (min(numbers) < 0)
