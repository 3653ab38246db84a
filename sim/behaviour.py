"""Behaviour of a unit as digests: of its netlist without names, and of its golden results on fixed vectors."""

import hashlib
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from halfulp.hdl.specs.formula import Role
from halfulp.implementation import Implementation
from halfulp.tools.digests import code, digest, version
from halfulp.tools.jobs import LOCAL, Job, JobPool
from halfulp.tools.progress import Progress, silent

from .formal.prove import circuit
from .netlist import netlist
from .ports import Codes, Ports
from .reference import reference, row_of
from .space import Space

if TYPE_CHECKING:
    from halfulp.units import Unit

DIGESTS = ("sources", "rtlil", "netlist", "results")
"""Digests of an implementation: of the code that decides its behaviour, of its RTLIL, netlist and golden results.

The behaviour is the last two; equal sources or equal RTLIL save the time to compute them. Verilog is written from the
RTLIL, and its text does not matter.
"""

BATCH = 16
"""Number of implementations per job."""

VECTORS = 1 << 10
"""Number of fixed vectors."""


def digests(asked: Implementation, known: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Return the digests of an implementation; equal known digests of its sources or RTLIL imply the others."""
    if (own := sources(asked)) == known.get("sources"):
        return {name: known[name] for name in DIGESTS}
    rtlil = circuit(asked.component())
    logic = known["netlist"] if _short(rtlil) == known.get("rtlil") else netlist(rtlil)
    return dict(zip(DIGESTS, (own, _short(rtlil), logic, results(asked.component())), strict=True))


@cache
def sources(asked: Implementation) -> str:
    """Return a digest of the code and the parameters that decide the behaviour of an implementation."""
    from halfulp import golden

    unit = asked.component()
    modules = type(unit).__module__, getattr(golden, row_of(unit).name).__module__
    own = code(*modules), code(reference.__module__, imports=False), version("amaranth")
    return _short(unit.name, unit.parameters, unit.latency, *own)


def _short(*parts: object) -> str:
    return digest(*parts)[:12]


def current(
    known: Mapping[Implementation, Mapping[str, str]], progress: Progress = silent, pool: JobPool = LOCAL
) -> dict[Implementation, dict[str, str]]:
    """Return the present digests of those implementations that have the behaviour of known digests."""
    # Equal sources need no process, which takes seconds to start.
    same = {asked: digests(asked, row) for asked, row in known.items() if sources(asked) == row["sources"]}
    rows = [(asked, dict(row)) for asked, row in known.items() if asked not in same]
    progress.total("comparing behaviour", len(rows))
    jobs = (Job("behaviour", _same, (rows[start : start + BATCH],)) for start in range(0, len(rows), BATCH))
    for job, confirmed in pool.run(jobs, here="process" if len(rows) > BATCH else "call"):
        same |= confirmed
        progress.advance(len(job.arguments[0]))
    return same


def _same(rows: list[tuple[Implementation, dict[str, str]]]) -> dict[Implementation, dict[str, str]]:
    present = {asked: (digests(asked, row), row) for asked, row in rows}
    return {asked: own for asked, (own, row) in present.items() if all(own[name] == row[name] for name in DIGESTS[-2:])}


def results(unit: "Unit") -> str:
    """Return a digest of the golden results of a unit on the fixed vectors, also as steps of a unit with state."""
    inputs = Ports.inputs_of(unit)
    codes = vectors(inputs)
    columns = dict(reference(unit, codes))
    if unit.stateful:
        steps = codes | {name: (_words(name, 3) == 0).astype(np.uint64) for name in inputs.having(Role.STATE)}
        columns |= {f"{name} in steps": column for name, column in reference(unit, steps, chained=True).items()}
    return _short(*((name, column.astype("<u8").tobytes().hex()) for name, column in columns.items()))


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
        if port.role is not Role.RANDOM:
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
