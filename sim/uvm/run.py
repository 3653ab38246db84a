"""Runs of tests: build of the model, and start and result of the simulation."""

import pickle
import time
from collections.abc import Mapping
from typing import Any

from halfulp.sim.build import models
from halfulp.sim.report import Result, write_junit
from halfulp.sim.simulate import LOG, Simulation
from halfulp.sim.wave import decode_wave
from halfulp.tools.errors import ToolError
from halfulp.tools.paths import machine_errors, saved_on_failure, work_root
from halfulp.tools.progress import Progress, silent

from .job import FOUND, JOB, Job, class_of, name_of, prepare
from .tests import UnitTest


def run(  # noqa: PLR0913 - options of a public function, by name
    request: Any,
    *,
    test: type[UnitTest] | str = UnitTest,
    seed: int = 0,
    limit: int | None = None,
    vector: Mapping[str, int] | None = None,
    sequence: str = "campaign",
    wave: bool = False,
    progress: Progress = silent,
) -> Result:
    """Check a unit in a pyuvm environment.

    Parameters
    ----------
    request : Implementation
        Request for the factory's `Dut`.
    test : type or str
        Class derived from `UnitTest`, or its text.
    seed : int
        Seed of all random choices.
    limit : int, optional
        Maximum number of operations of a sequence.
    vector : mapping, optional
        Codes of a single vector to run instead.
    sequence : str
        Key of `SEQUENCES`.
    wave : bool
        Write a waveform.
    progress : Progress

    Raises
    ------
    ValueError, TypeError
        If the unit, test or sequence is unknown, or the sequence does not fit the unit.
    ToolError
        If a tool or the environment fails.
    """
    began = time.monotonic()
    name = name_of(test)
    kind: Any = class_of(name)
    dut, unit = prepare(kind, request)
    job = Job(name, request, seed, limit, sequence, vector)
    kind.check(job, unit)
    progress.total("building")
    if wave and dut.INSIDE:
        raise ValueError(f"there is no waveform of {unit.name}, which has agents inside; remove --wave")
    model = "wave" if wave else "inside" if dut.INSIDE else "cocotb"
    made = dut.design(unit, model)
    built = models(made, (model,))[model]
    what = f"sequence {sequence}" + ("" if vector is None else " of one vector")
    result = Result(dut.title(unit), dut.describe(unit), what)
    results = work_root() / "results" / unit.name
    progress.total("running", kind.total(job))
    with saved_on_failure(f"uvm-{unit.name}") as folder:
        trace = folder / "trace.vcd" if wave else None
        with machine_errors("the job of the simulation"):
            (folder / JOB).write_bytes(pickle.dumps(job))
        with Simulation(built, made.top, "halfulp.sim.uvm.tests", ["uvm"], folder, wave=trace) as simulation:
            found = simulation.finish(progress.advance)
        if not (folder / FOUND).is_file():
            raise ToolError(f"the environment of {unit.name} has no result: {found['uvm']} (whole log: {folder / LOG})")
        result.checks, result.notes = pickle.loads((folder / FOUND).read_bytes())
        if found["uvm"] and result.passed:
            raise ToolError(f"the environment of {unit.name} failed: {found['uvm']} (whole log: {folder / LOG})")
        if trace is not None:
            result.wave = results / "uvm.vcd"
            decode_wave(trace, result.wave, unit)
    result.seconds = time.monotonic() - began
    write_junit(result, results / "uvm.xml")
    return result
