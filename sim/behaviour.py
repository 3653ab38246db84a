"""Behaviour of a unit as digests: of its netlist without names, and of its golden results on fixed vectors."""

import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from halfulp.tools.digests import code, digest
from halfulp.tools.jobs import LOCAL, Job, JobPool
from halfulp.tools.progress import Progress, silent

from .build import design, emitter
from .implementation import Implementation
from .netlist import netlist, without_comments
from .ports import STATE, Codes, Ports, is_random
from .reference import reference, row_of
from .space import Space

DIGESTS = ("sources", "verilog", "netlist", "results")
"""Digests of an implementation: of the code that decides its behaviour, of its Verilog, netlist and golden results.

The behaviour is the last two; equal sources or equal Verilog save the time to compute them.
"""

BATCH = 16
"""Number of implementations per job."""

VECTORS = 1 << 10
"""Number of fixed vectors."""


def digests(asked: Implementation) -> dict[str, str]:
    """Return the digests of an implementation."""
    unit, verilog = asked.component(), _verilog(asked)
    values = sources(asked), digest(verilog)[:12], netlist(verilog), results(unit)
    return dict(zip(DIGESTS, values, strict=True))


@cache
def sources(asked: Implementation) -> str:
    """Return a digest of the code and the parameters that decide the behaviour of an implementation."""
    from halfulp import golden

    unit = asked.component()
    modules = type(unit).__module__, getattr(golden, row_of(unit).name).__module__
    return digest(unit.name, unit.parameters, unit.latency, code(*modules, "halfulp.units.verilog"), emitter())[:12]


def behaves(asked: Implementation, known: Mapping[str, str]) -> bool:
    """Return True if an implementation has the behaviour of known digests."""
    if sources(asked) == known["sources"]:
        return True
    if results(asked.component()) != known["results"]:
        return False
    verilog = _verilog(asked)
    return digest(verilog)[:12] == known["verilog"] or netlist(verilog) == known["netlist"]


def current(
    known: Mapping[Implementation, Mapping[str, str]],
    progress: Progress = silent,
    pool: JobPool = LOCAL,
    *,
    renew: bool = False,
) -> dict[Implementation, dict[str, str]]:
    """Return the digests of those implementations that have the behaviour of known digests.

    Parameters
    ----------
    known : mapping
        Digests by implementation.
    progress : Progress
    pool : JobPool
    renew : bool
        Return the present digests; default: the known ones, which may have other sources and Verilog.
    """
    found, rows = {}, []
    for asked, row in known.items():
        own = {name: row.get(name, "") for name in DIGESTS}
        if sources(asked) == own["sources"]:
            found[asked] = own
        else:
            rows.append((asked, own))
    progress.total("comparing behaviour", len(rows))
    starts = range(0, len(rows), BATCH)
    jobs = (Job("behaviour", _current, (rows[start : start + BATCH], renew)) for start in starts)
    # A process takes seconds to start.
    for job, same in pool.run(jobs, here="process" if len(rows) > BATCH else "call"):
        found |= same
        progress.advance(len(job.arguments[0]))
    return found


def _current(rows: list[tuple[Implementation, dict[str, str]]], renew: bool) -> dict[Implementation, dict[str, str]]:
    return {asked: digests(asked) if renew else own for asked, own in rows if behaves(asked, own)}


def _verilog(asked: Implementation) -> str:
    return without_comments(design(asked.component()).verilog)


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
