"""Sweeps: all inputs of a unit through the compiled loop, on all processors, resumable."""

import contextlib
import itertools
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from halfulp.implementation import Implementation
from halfulp.tools.cache import Entry
from halfulp.tools.digests import version
from halfulp.tools.jobs import LOCAL, Job, JobPool
from halfulp.tools.paths import work_root
from halfulp.tools.processes import check_halt
from halfulp.tools.progress import Progress, silent
from halfulp.tools.threads import threads

from .bench import result_formats, run_and_compare
from .build import design, models
from .corner_cases import corner_cases
from .model import CompiledModel
from .ports import Codes, Ports
from .reference import reference
from .report import Check, Failure, Result, describe, write_junit
from .signals.rules import SHOWN
from .space import Space
from .toolchain import verilator
from .vectors import random_words, sampled

if TYPE_CHECKING:
    from halfulp.units import Unit

CHUNK_BITS = 17
"""Log2 of the vectors per chunk: large enough to amortise overhead, small enough for the processor's caches."""

MOST_BITS = 40
"""Log2 of the largest swept space; a larger sweep takes days."""

BATCH = 8
"""Number of chunks per job, which takes about a second."""

SAVE_SECONDS = 2.0
"""Seconds between two writes of the state."""


class Interrupted(KeyboardInterrupt):
    """Interruption of a sweep whose state was saved."""


@dataclass
class State:
    """Progress of a sweep.

    Attributes
    ----------
    chunks : int
        Total number of chunks.
    done : list of [first, end]
        Finished chunks, as sorted ranges.
    failed : int
        Number of mismatches in finished chunks.
    failures : list of str
        Full reports of the first mismatches.
    seconds : float
        Elapsed time over all runs.
    """

    chunks: int
    done: list[list[int]] = field(default_factory=list)
    failed: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def count(self) -> int:
        """Return the number of finished chunks."""
        return sum(end - first for first, end in self.done)

    def waiting(self) -> list[int]:
        """Return the chunks that are not finished."""
        finished = {chunk for first, end in self.done for chunk in range(first, end)}
        return [chunk for chunk in range(self.chunks) if chunk not in finished]

    def finish(self, chunk: int) -> None:
        """Record a finished chunk and merge adjacent ranges."""
        joined: list[list[int]] = []
        for first, end in sorted([*self.done, [chunk, chunk + 1]]):
            if joined and joined[-1][1] == first:
                joined[-1][1] = end
            else:
                joined.append([first, end])
        self.done = joined


@dataclass(frozen=True)
class SweepVectors:
    """Vectors of a sweep, by chunk."""

    unit: "Unit"
    space: Space
    count: int
    seed: int
    everything: bool

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return -(-self.count >> CHUNK_BITS)

    def size(self, chunk: int) -> int:
        """Return the number of vectors in a chunk."""
        return min(1 << CHUNK_BITS, self.count - (chunk << CHUNK_BITS))

    def codes(self, chunk: int) -> dict[str, Codes]:
        """Return the vectors of a chunk, which depend only on the seed and the index, so that a sweep is resumable."""
        inputs = Ports.inputs_of(self.unit)
        rng = np.random.default_rng([self.seed, chunk])
        if not self.everything:
            return sampled(inputs, result_formats(self.unit), self.size(chunk), rng, corners=corner_cases(self.unit))
        codes = self.space.codes(chunk << CHUNK_BITS, self.size(chunk))
        return codes | random_words(inputs, self.size(chunk), rng)


def vectors_of(unit: "Unit", *, seed: int, limit: int | None = None) -> SweepVectors:
    """Return the vectors of a sweep; raises ValueError if the unit has more than 2^40 inputs and no limit is given."""
    space = Space.of(Ports.inputs_of(unit))
    if limit is None and space.bits > MOST_BITS:
        raise ValueError(
            f"{unit.name} has 2^{space.bits} inputs; a sweep takes at most 2^{MOST_BITS}, "
            "or N sampled inputs with --vectors N"
        )
    everything = limit is None or limit >= 1 << space.bits
    return SweepVectors(unit, space, 1 << space.bits if everything else int(limit or 0), seed, everything)


def sweep(
    unit: "Unit",
    *,
    seed: int = 0,
    limit: int | None = None,
    restart: bool = False,
    progress: Progress = silent,
    pool: JobPool = LOCAL,
) -> Result:
    """Compare a unit with the golden model on all inputs.

    Parameters
    ----------
    unit : Unit
    seed : int
        Seed of random words, and of sampled vectors.
    limit : int, optional
        Number of sampled vectors; default: all inputs.
    restart : bool
        Discard an unfinished sweep.
    progress : Progress
    pool : JobPool
        Pool that runs the chunks.

    Raises
    ------
    Interrupted
        On Ctrl-C, after the state was saved.
    ToolError
        If a tool or the machine fails.
    ValueError
        If `vectors_of` rejects the unit.
    """
    vectors = vectors_of(unit, seed=seed, limit=limit)
    progress.total("building")
    made = design(unit)
    models(made, ("loop",))
    entry = Entry.of("sweeps", (made.key, unit.parameters, seed, vectors.count, CHUNK_BITS), unit.name)
    state = State(vectors.chunks) if restart else _load(entry, vectors.chunks)
    resumed = state.count()
    began, before = time.monotonic(), state.seconds
    progress.total("sweeping", vectors.count, min(resumed << CHUNK_BITS, vectors.count))
    # The first call imports torch and compiles kernels, which the jobs then share.
    reference(unit, {name: column[:1] for name, column in vectors.codes(0).items()})

    def jobs() -> Iterator[Job]:
        waiting = iter(state.waiting())
        while chunks := list(itertools.islice(waiting, BATCH)):
            yield Job(unit.name, run_chunks, (unit, seed, limit, chunks))

    def save() -> None:
        state.seconds = before + time.monotonic() - began
        entry.store(asdict(state))

    saved = began
    try:
        with threads(1), contextlib.closing(pool.run(jobs(), versions=_versions)) as running:
            for _, rows in running:
                for chunk, failed, texts in rows:
                    state.finish(chunk)
                    state.failed += failed
                    state.failures = [*state.failures, *texts][:SHOWN]
                    progress.advance(vectors.size(chunk))
                if state.failed >= 1000 * SHOWN:
                    running.close()
                if time.monotonic() - saved > SAVE_SECONDS:
                    save()
                    saved = time.monotonic()
    except KeyboardInterrupt:
        save()
        done = state.count() / max(state.chunks, 1)
        raise Interrupted(f"{done:.0%} is done and saved; the same command resumes the sweep") from None
    save()
    if state.count() == state.chunks:
        entry.drop()
    return _result(vectors, state, resumed, entry)


def run_chunks(unit: "Unit", seed: int, limit: int | None, chunks: list[int]) -> list[tuple[int, int, list[str]]]:
    """Run chunks of a sweep; return for each its index, number of mismatches, and first mismatches in full."""
    vectors = vectors_of(unit, seed=seed, limit=limit)
    rows = []
    with threads(1), CompiledModel.of_unit(unit) as loop:
        for chunk in chunks:
            check_halt()
            failed, failures = run_and_compare(unit, loop, vectors.codes(chunk), SHOWN)
            rows.append((chunk, failed, [failure.text for failure in failures]))
    return rows


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("amaranth", "torch")} | {"verilator": verilator().version}


def _load(entry: Entry, chunks: int) -> State:
    state = State(**(entry.value() or {"chunks": chunks}))
    # A sweep with mismatches starts again, so that its failures are reported again.
    return state if state.chunks == chunks and not state.failed else State(chunks)


def _result(vectors: SweepVectors, state: State, resumed: int, entry: Entry) -> Result:
    words = ", random words sampled" if vectors.space.random else ""
    what = f"all 2^{vectors.space.bits} inputs{words}" if vectors.everything else "sampled, directed and random"
    result = Result(str(Implementation.of(vectors.unit)), describe(vectors.unit), what)
    checked = min(state.count() << CHUNK_BITS, vectors.count)
    failures = [Failure("mismatch", text) for text in state.failures]
    result.checks.append(Check("sweep", "plain", checked, state.failed, failures))
    if resumed:
        result.notes.append(f"resumed at {min(resumed << CHUNK_BITS, vectors.count):,}")
    if state.count() < state.chunks:
        result.notes.append("stopped early because of many mismatches")
        entry.drop()
    result.seconds = state.seconds
    write_junit(result, work_root() / "results" / vectors.unit.name / "sweep.xml")
    return result
