"""Proofs that bins of a unit are unreachable, cached between runs; a later hit of such a bin refutes its proof."""

import contextlib

import numpy as np

from halfulp.tools.cache import Entry
from halfulp.tools.digests import code
from halfulp.tools.progress import Progress, silent

from .collect import Coverage
from .reach import Reach, hits, reach


def of(coverage: Coverage, progress: Progress = silent) -> dict[str, Reach]:
    """Return proofs for the bins without hits, from the cache or new."""
    unit = coverage.unit
    # A proof depends on the bins, the golden model and the proof methods.
    own = code("halfulp.golden", type(unit).__module__, "halfulp.sim.coverage.model", "halfulp.sim.coverage.reach")
    entry = Entry.of("coverage", (type(unit).__qualname__, unit.name, unit.parameters, own), unit.name)
    stored = _read(entry, coverage)
    waiting = {name: ~hits(coverage.counts, group) for name, group in coverage.groups.items()}
    watched = [group.name for group in coverage.model.groups]
    if stored and all(not (waiting[name] & ~stored[name].excluded).any() for name in watched):
        return stored
    reaches = reach(coverage.model, coverage.counts, progress)
    for name, known in stored.items():
        # Earlier proofs remain, even for bins that were hit since, because such a hit refutes the proof.
        both = reaches[name].excluded | known.excluded
        reaches[name] = Reach(both, reaches[name].proof or known.proof)
    texts = {
        name: {"proof": reached.proof, "bins": np.flatnonzero(reached.excluded).tolist()}
        for name, reached in reaches.items()
    }
    entry.store(texts)
    return reaches


def _read(entry: Entry, coverage: Coverage) -> dict[str, Reach]:
    """Read the proofs in the cache; return nothing if they do not match the groups."""
    with contextlib.suppress(ValueError, KeyError, IndexError):
        reaches = {}
        for name, record in (entry.value() or {}).items():
            excluded = np.zeros(coverage.groups[name].size, dtype=bool)
            excluded[record["bins"]] = True
            reaches[name] = Reach(excluded, str(record["proof"]))
        return reaches
    return {}
