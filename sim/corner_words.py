"""Random words at the very edge between rounding down and up, which random ones of many bits never hit."""

from typing import Any

import numpy as np

from .ports import Codes
from .reference import reference

ROWS = 1 << 12
"""Vectors that get such a word, at the beginning."""


def with_corner_words(unit: Any, codes: dict[str, Codes]) -> dict[str, Codes]:
    """Replace the random words of the first vectors by the least one that rounds up, or by the one before it.

    The golden model is asked for the word by bisection. Where the word does not matter, or the result has other
    reasons, some word comes out, and that is as good as any.
    """
    bits = unit.parameters["rounding"].bits
    if not bits or "random" not in codes:
        return codes
    some = {name: column[:ROWS] for name, column in codes.items()}
    count = len(some["random"])
    low, high = np.zeros(count, dtype=np.uint64), np.full(count, (1 << bits) - 1, dtype=np.uint64)
    top = _results(unit, some, high)
    for _ in range(bits):
        middle = low + (high - low) // np.uint64(2)
        reached = _results(unit, some, middle) == top
        high = np.where(reached, middle, high)
        low = np.where(reached, low, np.minimum(middle + np.uint64(1), high))
    before = np.arange(count) % 2 == 1
    words = codes["random"].copy()
    words[:count] = np.where(before & (high > 0), high - np.uint64(1), high)
    return codes | {"random": words}


def _results(unit: Any, codes: dict[str, Codes], words: Codes) -> Codes:
    results = reference(unit, codes | {"random": words})
    return results["o" if "o" in results else "maximum"]
