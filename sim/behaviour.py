"""Fixed vectors of a unit, and a digest of its golden results."""

import hashlib
from typing import Any

import numpy as np

from halfulp.tools.digests import digest

from .ports import STATE, Codes, Ports, is_random
from .reference import reference
from .space import Space

VECTORS = 1 << 10
"""Number of fixed vectors."""


def results(unit: Any) -> str:
    """Return a digest of the golden results of a unit on the fixed vectors, also as steps of a unit with state."""
    codes = vectors(Ports.of(unit.inputs))
    columns = dict(reference(unit, codes))
    if unit.stateful:
        steps = codes | {name: (_words(name, 3) == 0).astype(np.uint64) for name in STATE if name in codes}
        columns |= {f"{name} in steps": column for name, column in reference(unit, steps, chained=True).items()}
    return digest(*((name, column.astype("<u8").tobytes().hex()) for name, column in columns.items()))[:12]


def vectors(inputs: Ports) -> dict[str, Codes]:
    """Return the fixed vectors. They depend on the names and widths of ports only, not on any generator of vectors.

    A quarter of the codes have a pattern of bits at the ends of ranges, or next to them; a quarter differ from the
    first operand in low bits only, so that sums cancel; the others are uniform. Random words are uniform.
    """
    codes = {name: np.full(VECTORS, fixed, dtype=np.uint64) for name, fixed in Space.of(inputs).fixed.items()}
    first: Codes | None = None
    for port in inputs:
        if port.name in codes:
            continue
        full, uniform = (1 << port.width) - 1, _words(port.name, port.width)
        if not is_random(port.name):
            ends = np.array([0, 1, full, full >> 1, *(full ^ full >> n for n in (1, 2, 3))], dtype=np.uint64)
            kind, choice, near = (_words(f"{port.name} {what}", 8) for what in ("kind", "choice", "near"))
            pattern = (ends[choice % len(ends)] + (near & np.uint64(3)) - np.uint64(1)) & np.uint64(full)
            first = uniform if first is None else first
            close = (first ^ uniform >> np.uint64(port.width - port.width // 3)) & np.uint64(full)
            uniform = np.select([kind % 4 == 0, kind % 4 == 1], [pattern, close], uniform)
        codes[port.name] = uniform
    return codes


def _words(name: str, width: int) -> Codes:
    """Return words from a hash of a name, which no version of a library changes."""
    words = np.frombuffer(hashlib.shake_128(name.encode()).digest(8 * VECTORS), dtype="<u8")
    return words.astype(np.uint64) >> np.uint64(64 - width)
