"""Times of functions, relative to each other."""

import statistics
import time
from collections.abc import Callable
from typing import Any

REPEATS = 7
"""Default number of measured calls of each function."""


def in_turns(
    *functions: Callable[[], Any], repeats: int = REPEATS, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Return the median seconds of functions that are called in alternation, after a warm-up call of each."""
    times: list[list[float]] = [[] for _ in functions]
    for repeat in range(repeats + 1):
        for function, taken in zip(functions, times, strict=True):
            began = clock()
            function()
            if repeat:
                taken.append(clock() - began)
    return [statistics.median(taken) for taken in times]
