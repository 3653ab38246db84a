"""The test bench: builds a unit, drives it, and compares its results with the golden model."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from halfulp.hdl.formats import Format
from halfulp.hdl.specs import ComposedSpec
from halfulp.implementation import Implementation
from halfulp.tools.jobs import beside
from halfulp.tools.paths import saved_on_failure, work_root
from halfulp.tools.progress import Progress, silent
from halfulp.tools.threads import threads

from . import regressions
from .build import design, models
from .compare import compare, full_reports
from .corner_cases import corner_cases
from .model import CompiledModel
from .ports import Codes, Columns, Ports
from .reference import CHUNK, reference
from .report import Check, Failure, Result, describe, write_junit
from .signals.rules import SHOWN, Fault
from .simulate import Outcome, UnitSimulation
from .vectors import DEFAULT, Vectors, chains, make, with_corner_words
from .wave import decode_wave

if TYPE_CHECKING:
    from halfulp.units import Unit

PLAIN, CHAIN, STREAM = 1 << 13, 1 << 12, 1 << 12
"""Number of vectors that cocotb runs through the unit, as a chain of steps, and through the stream wrapper."""

FEWEST = 1 << 10
"""Exhaustive sets below this size are repeated through the stream wrapper, so that every kind of stall occurs."""

ALL = 1 << 17
"""Largest exhaustive set that cocotb runs completely."""

TRACED = 1 << 11
"""Number of vectors per test while a waveform is recorded."""

LOOP_CHAIN = 1 << 16
"""Number of chained steps in the compiled loop."""

WIDE = 1 << 9
"""Width of an exact accumulator in bits from which default numbers of vectors shrink in proportion."""


class Watch(Protocol):
    """Observer of the vectors, results and clock cycles of a run."""

    def sample(self, inputs: Columns, outputs: Columns, *, chained: bool = False) -> None:
        """Record a batch of vectors; with ``chained``, they are consecutive steps from reset."""

    def stalls(self, side: str, cycles: Mapping[str, Any]) -> None:
        """Record the handshake signals of one side in every clock cycle of a test."""


@dataclass(frozen=True)
class Plan:
    """Vectors of a run.

    Attributes
    ----------
    vectors : Vectors
        Independent vectors for the compiled loop.
    plain, stream : dict
        Subsets of them for cocotb.
    chain : dict, optional
        Consecutive steps of a unit with state.
    """

    vectors: Vectors
    plain: dict[str, Codes]
    stream: dict[str, Codes]
    chain: dict[str, Codes] | None


def plan(
    unit: "Unit", *, seed: int, limit: int | None = None, vector: Mapping[str, int] | None = None, traced: bool = False
) -> Plan:
    """Choose the vectors of a run.

    Parameters
    ----------
    unit : Unit
    seed : int
    limit : int, optional
        Maximum number of independent vectors.
    vector : mapping, optional
        Single vector to run instead.
    traced : bool
        Record a waveform.
    """
    inputs, stateful = Ports.inputs_of(unit), unit.stateful
    share = _share(unit)
    if vector is not None:
        codes = {name: np.array([code], dtype=np.uint64) for name, code in vector.items()}
        return Plan(Vectors(codes, 1, "one vector", False), codes, codes, None)
    if limit is None and share > 1:
        limit = DEFAULT // share
    vectors = make(inputs, result_formats(unit), seed=seed, limit=limit, corners=corner_cases(unit))
    if unit.sources and vectors.exhaustive:
        vectors = _repeated(vectors, limit or DEFAULT, seed)
    if not vectors.exhaustive:
        vectors = replace(vectors, codes=with_corner_words(unit, vectors.codes))
    most = TRACED if traced else ALL if vectors.exhaustive and vectors.count <= ALL else PLAIN // share
    order = np.random.default_rng(seed).permutation(vectors.count)
    plain, few = vectors.take(np.sort(order[:most])), order[-(TRACED if traced else STREAM // share) :]
    if vectors.exhaustive and vectors.count < FEWEST:
        few = np.tile(few, -(-FEWEST // vectors.count))
    steps = None
    if stateful:
        longest = LOOP_CHAIN // share
        count = min(longest, max(limit or longest, 256))
        steps = chains(inputs, result_formats(unit), count, seed + 1, unit.spec.interleave)
    return Plan(vectors, plain, vectors.take(few), steps)


def _share(unit: "Unit") -> int:
    """Return the divisor of default numbers of vectors; above 1 for wide exact accumulators, which are slow."""
    quire = getattr(unit.spec, "quire", None)
    return 1 if quire is None else max(1, quire.width // WIDE)


def _repeated(vectors: Vectors, most: int, seed: int) -> Vectors:
    """Repeat all vectors in random order, so that each runs with several random words of the unit's source."""
    times = max(most // vectors.count, 1)
    order = np.random.default_rng(seed).permutation(vectors.count * times) % vectors.count
    return replace(
        vectors, codes=vectors.take(order), count=len(order), what=f"exhaustive, {times} times, with the source's words"
    )


def operations(unit: "Unit", count: int, seed: int = 0) -> dict[str, Codes]:
    """Choose the operands of a test outside the test bench.

    Parameters
    ----------
    unit : Unit
    count : int
        Maximum number of operations.
    seed : int

    Returns
    -------
    dict of str to array
        Codes of each input: directed and random, or all inputs if they are few; those of a unit with an accumulator are
        consecutive steps from reset.
    """
    chosen = plan(unit, seed=seed, limit=count)
    codes = chosen.vectors.codes if chosen.chain is None else chosen.chain
    return {name: column[:count] for name, column in codes.items()}


def result_formats(unit: "Unit") -> list[Format]:
    """Return the formats to which a unit rounds: the result format, and the format of a rounded product.

    A unit without a result format has that of its operand, whose numbers and middles are then tested.
    """
    shapes = [*unit.outputs.values(), *unit.inputs.values()]
    formats = [shape for shape in shapes if isinstance(shape, Format)][:1]
    product = unit.parameters.get("product")
    return [*formats, product] if product is not None else formats


def run(
    unit: "Unit",
    *,
    seed: int = 0,
    limit: int | None = None,
    vector: Mapping[str, int] | None = None,
    wave: bool = False,
    watch: Watch | None = None,
    progress: Progress = silent,
) -> Result:
    """Check one unit against the golden model.

    Parameters
    ----------
    unit : Unit
        Instance of a class in the catalogue, or of a class derived from one.
    seed : int
        Seed of vectors, stalls and gaps.
    limit : int, optional
        Maximum number of independent vectors; default: all, or half a million.
    vector : mapping, optional
        Codes of a single vector to run instead.
    wave : bool
        Write a waveform.
    watch : Watch, optional
        Observer of all vectors and clock cycles except those of regressions.
    progress : Progress

    Raises
    ------
    ToolError
        If a tool or the machine fails.
    """
    began = time.monotonic()
    if isinstance(unit.spec, ComposedSpec):
        from . import composed

        return composed.run(unit, seed=seed, limit=limit, progress=progress)
    progress.total("building and choosing vectors")
    kind = "wave" if wave else "cocotb"
    kinds = "loop", kind
    made = design(unit, kinds)
    # Verilator and the compiler run beside the import of torch, the choice of vectors and their reference results.
    with beside(models, made, kinds) as building:
        chosen = plan(unit, seed=seed, limit=limit, vector=vector, traced=wave)
        saved = regressions.of(unit) if vector is None else []
        tests = {"plain": (chosen.plain, reference(unit, chosen.plain))}
        stream = chosen.stream
        if chosen.chain is not None:
            # Chained steps also run through the stream wrapper.
            few = TRACED if wave else CHAIN // _share(unit)
            steps = stream = {name: column[:few] for name, column in chosen.chain.items()}
            tests["chain"] = (steps, reference(unit, steps, chained=True))
        tests["stream"] = (stream, reference(unit, stream, chained=unit.stateful))
        built = building.result()
    result = Result(str(Implementation.of(unit)), describe(unit), chosen.vectors.what)
    results = work_root() / "results" / unit.name
    total = chosen.vectors.count + sum(len(next(iter(codes.values()))) for codes, _ in tests.values())
    progress.total("checking", total)
    with saved_on_failure(unit.name) as folder:
        trace = folder / "trace.vcd" if wave else None
        with UnitSimulation(built[kind], unit, tests, folder, seed=seed, wave=trace) as simulation:
            # The simulator is a process of its own, so the loop takes one thread.
            with threads(1), CompiledModel(made) as loop:
                bulk = [regressions.replay(unit, loop, saved)] if saved else []
                bulk.append(_bulk(unit, loop, chosen.vectors, progress, watch))
                if chosen.chain is not None:
                    bulk.append(_loop_chain(unit, loop, chosen.chain, watch))
            outcomes = simulation.outcomes(progress.advance)
        if watch is not None:
            _show_cycles(watch, outcomes)
        result.checks = [*(_check(unit, outcome, *tests[outcome.test]) for outcome in outcomes), *bulk]
        if trace is not None:
            result.wave = results / "wave.vcd"
            decode_wave(trace, result.wave, unit)
    result.seconds = time.monotonic() - began
    write_junit(result, results / "results.xml")
    return result


def _show_cycles(watch: Watch, outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        for side, cycles in outcome.cycles.items():
            watch.stalls(side, cycles)


def _bulk(unit: "Unit", loop: CompiledModel, vectors: Vectors, progress: Progress, watch: Watch | None) -> Check:
    """Run all independent vectors through the compiled loop."""
    failures: list[Failure] = []
    failed = 0
    loop.reset()
    for start in range(0, vectors.count, CHUNK):
        codes = {name: column[start : start + CHUNK] for name, column in vectors.codes.items()}
        more, found = run_and_compare(unit, loop, codes, SHOWN - len(failures), watch)
        failed += more
        failures += found
        progress.advance(min(CHUNK, vectors.count - start))
    return Check("compiled loop", "plain", vectors.count, failed, failures)


def run_and_compare(
    unit: "Unit", loop: CompiledModel, codes: Columns, most: int, watch: Watch | None = None, chained: bool = False
) -> tuple[int, list[Failure]]:
    """Run vectors through the loop and the golden model; return the number of mismatches and the first ones in full."""
    if unit.sources or chained:
        loop.reset()
    want, got = reference(unit, codes, chained=chained), loop.run(codes, max(map(len, codes.values())))
    if watch is not None:
        watch.sample(codes, got, chained=chained)
    return compare(unit, codes, want, got, most, chained=chained)


def _loop_chain(unit: "Unit", loop: CompiledModel, steps: dict[str, Codes], watch: Watch | None) -> Check:
    """Run chained steps from reset through the compiled loop; one failure may cause the next ones."""
    failed, failures = run_and_compare(unit, loop, steps, SHOWN, watch, chained=True)
    return Check("compiled loop", "chain", len(steps["load"]), failed, failures)


def _check(unit: "Unit", outcome: Outcome, codes: Columns, want: Columns) -> Check:
    """Convert a cocotb outcome to a check with full failure reports."""
    chained = unit.stateful and outcome.test != "plain"
    failures = full_reports(unit, (Fault(**row) for row in outcome.failures), codes, want, chained=chained)
    return Check("cocotb", outcome.test, outcome.checked, outcome.failed, failures)
