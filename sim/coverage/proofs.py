"""What is proved of the bins of a unit, kept from run to run: who hits a bin later that was proved to be out of reach
has refuted the proof."""

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from halfulp.tools.digests import digest, sources
from halfulp.tools.paths import build_root, write_whole
from halfulp.tools.progress import Progress, silent

from .reach import Reach, hits, reach

if TYPE_CHECKING:
    from .collect import Coverage

ROOMS = ("hdl", "units", "golden", "sim.coverage")
"""What proofs are made with."""


def of(coverage: "Coverage", progress: Progress = silent) -> dict[str, Reach]:
    """Proofs for the bins that were not hit; those that are kept, where they are enough."""
    path = _path(coverage)
    kept = _read(path, coverage)
    waiting = {name: ~hits(coverage.counts, group) for name, group in coverage.groups.items()}
    watched = [group.name for group in coverage.model.groups]
    if kept and all(not (waiting[name] & ~kept[name].excluded).any() for name in watched):
        return kept
    found = reach(coverage.model, coverage.counts, progress)
    for name, known in kept.items():
        # What was proved before stands, though it may by now be hit.
        both = found[name].excluded | known.excluded
        found[name] = Reach(both, found[name].proof or known.proof)
    texts = {name: {"proof": one.proof, "bins": np.flatnonzero(one.excluded).tolist()} for name, one in found.items()}
    write_whole(path, json.dumps(texts), "what is proved of bins")
    return found


def _path(coverage: "Coverage") -> Path:
    unit = coverage.unit
    key = digest(type(unit).__qualname__, unit.name, unit.parameters, sources(ROOMS))
    return build_root() / "coverage" / f"{unit.name}-{key}.json"


def _read(path: Path, coverage: "Coverage") -> dict[str, Reach]:
    """What is kept; nothing where no file can be read that fits."""
    with contextlib.suppress(OSError, ValueError, KeyError, IndexError):
        found = {}
        for name, one in json.loads(path.read_text()).items():
            excluded = np.zeros(coverage.groups[name].size, dtype=bool)
            excluded[one["bins"]] = True
            found[name] = Reach(excluded, str(one["proof"]))
        return found
    return {}
