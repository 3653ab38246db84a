"""Simulation of composed units: random vectors of all lengths through their streams, compared with the golden model."""

import random
import time
from typing import Any

import numpy as np
import torch

from halfulp.golden.composed import OPERATIONS
from halfulp.hdl.formats import OFF, Format
from halfulp.hdl.formats.base import floor_log2
from halfulp.implementation import Implementation
from halfulp.tools.paths import work_root
from halfulp.tools.progress import Progress, silent
from halfulp.units.composed import Composed

from .model import ALWAYS, CompiledModel, pack, unpack
from .report import Check, Failure, Result, write_junit

VECTORS = 200
"""Default number of vectors."""

PATTERN = 997
"""Cycles of the pattern of gaps and of back-pressure."""

SHARES = (1.0, 0.6, 0.25)
"""Shares of cycles in which a stream is ready or offers: none waits, both wait, both wait long."""


def run(unit: Composed, *, seed: int = 0, limit: int | None = None, progress: Progress = silent) -> Result:
    """Run random vectors through a composed unit, without waits and with gaps and back-pressure."""
    started, count = time.monotonic(), limit or VECTORS
    spec = unit.spec
    cases = vectors(spec, count, seed)
    expected = reference(spec, cases)
    beats = np.concatenate([beside_last(case) for case in cases])
    results = np.concatenate([beside_last(codes[None]) for codes in expected])
    what = f"vectors of 1 to {spec.length} elements, {unit.passes} passes, formula {spec.formula}"
    result = Result(str(Implementation.of(unit)), what, f"{count} random vectors, {len(beats)} elements, seed {seed}")
    progress.total("building")
    with CompiledModel.of_streams(unit) as model:
        progress.total("checking", len(SHARES) * len(results))
        for share in SHARES:
            result.checks.append(_check(model, unit, (beats, results), share, seed))
            progress.advance(len(results))
    result.seconds = time.monotonic() - started
    write_junit(result, work_root() / "results" / unit.name / "results.xml")
    return result


def _check(model: Any, unit: Composed, codes: tuple[Any, Any], share: float, seed: int) -> Check:
    """Run all vectors with one share of cycles in which streams go on."""
    noise, (sent, wanted) = np.random.default_rng(seed), codes
    go = {} if share == 1 else {name: (noise.random(PATTERN) < share).astype(np.uint8) for name in ("i", "o")}
    model.reset()
    widths = {"i": [*(fmt.width for fmt in unit.spec.operands.values()), 1], "o": [unit.spec.o.width, 1]}
    most = int((unit.cycles(1) + unit.passes) * len(sent) / share**2) + 1000
    passed = model.stream({"i": pack(sent, widths["i"])}, {"o": len(wanted)}, go=go, limit=most, more=20)
    got = unpack(passed.words["o"], widths["o"])[: passed.given["o"]]
    failures = []
    if passed.given["o"] != len(wanted) or passed.faults["o"]:
        text = f"{passed.given['o']} results of {len(wanted)}, and {passed.faults['o']} that changed while they waited"
        failures.append(Failure("count", text))
    else:
        wrong = np.flatnonzero((got != wanted).any(axis=1))
        for at in wrong[:3]:
            text = f"element {at}: {got[at].tolist()}, expected {wanted[at].tolist()} (code, last)"
            failures.append(Failure("mismatch", text))
        return Check("compiled loop", _name(share), len(wanted), len(wrong), failures)
    return Check("compiled loop", _name(share), len(wanted), len(failures), failures)


def _name(share: float) -> str:
    return "one per cycle" if share == ALWAYS[0] else f"with gaps and back-pressure, going on in {share:.0%} of cycles"


def vectors(spec: Any, count: int, seed: int) -> list[Any]:
    """Return random vectors, as arrays of an operand in each row; the first ones have all lengths."""
    noise = random.Random(seed)
    lengths = list(range(1, min(spec.length, count // 2) + 1)) + [spec.length]
    lengths += [noise.randint(1, spec.length) for _ in range(count - len(lengths))]
    return [
        np.array([codes(fmt, length, at, noise) for fmt in spec.operands.values()], dtype=np.uint64)
        for at, length in enumerate(lengths[:count])
    ]


def codes(fmt: Format, length: int, kind: int, noise: random.Random) -> list[int]:
    """Return the codes of a vector: of all kinds, of near numbers, of one number, or with a few special values."""
    top = floor_log2(max(fmt.largest, -fmt.lowest))
    scale = 2.0 ** noise.uniform(max(-6, floor_log2(fmt.smallest)), min(4, top))
    near = [fmt.encode(noise.gauss(0, 1) * scale) for _ in range(length)]
    special = [0, fmt.encode(0.0), fmt.encode(fmt.lowest), fmt.encode(fmt.largest)]
    special += [fmt.nan_code] if fmt.has_nan else []
    special += [fmt.infinite(negative, OFF) for negative in (False, True)] if fmt.has_inf else []
    if kind % 4 == 0:
        return [noise.getrandbits(fmt.width) for _ in range(length)]
    if kind % 4 == 1:
        return [noise.choice(special)] * length
    if kind % 4 == 2:
        return [noise.choice(special) if noise.random() < 0.1 else code for code in near]
    return near


def reference(spec: Any, cases: list[Any]) -> list[Any]:
    """Return the results of the golden model; vectors of one length are computed together."""
    operation, results = OPERATIONS[spec.form.unit], [None] * len(cases)
    for length in {case.shape[1] for case in cases}:
        places = [place for place, case in enumerate(cases) if case.shape[1] == length]
        batch = torch.from_numpy(np.stack([cases[place] for place in places]).astype(np.int64))
        rows = operation(*batch.unbind(1), **spec.parameters).numpy().astype(np.uint64)
        for place, row in zip(places, rows, strict=True):
            results[place] = row
    return results


def beside_last(case: Any) -> Any:
    """Return the beats of a vector: a row for each element, with ``last``."""
    last = np.arange(case.shape[1]) == case.shape[1] - 1
    return np.concatenate([case.T, last[:, None].astype(np.uint64)], axis=1)
