"""Patterns of ``case`` items."""

import re
from collections.abc import Sequence


def patterns_of(labels: str) -> list[str]:
    """Return the patterns in binary of the labels of an item; an empty one of a default matches all."""
    if labels.startswith("default"):
        return [""]
    values = re.findall(r"(\d+)'([bh])([0-9a-f?]+)", labels)
    return [code if base == "b" else f"{int(code, 16):0{width}b}" for width, base, code in values]


def complete(patterns: Sequence[str]) -> bool:
    """Return True if the patterns match every value; ``?`` matches any bit, and no pattern is longer than the first."""
    if any(not pattern.strip("?") for pattern in patterns):
        return True
    halves = ([pattern[1:] for pattern in patterns if pattern[0] in (bit, "?")] for bit in "01")
    return bool(patterns) and all(map(complete, halves))
