# amaranth: UnusedElaboratable=no
"""Constructors of arrays and kernels, with their timing and costs.

The first line disables Amaranth's warning about components that are never elaborated.
"""

import functools
from dataclasses import replace
from typing import Any

from halfulp.boards.targets import Target
from halfulp.hdl.formats.source import parse_source
from halfulp.hdl.specs import Build, RunningSumSpec
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.progress import Progress, silent
from halfulp.units.systolic import Chain
from halfulp.units.systolic.chain import DEPTH

from .cost_model import SMALL, CostModel, cost_model, recorded_model
from .kernel import Kernel
from .timing import Memory, Timing

KERNEL = "halfulp_gemm"
"""Name of a kernel. XRT limits this name and that of an instance to 63 letters together."""


def with_source(mac: RunningSumSpec) -> RunningSumSpec:
    """Add an LFSR of 16 bits or more to a description that takes random words and names no source."""
    if mac.random is not None or not mac.words:
        return mac
    return replace(mac, random=parse_source(f"lfsr{max(16, *mac.words.values())}"))


@functools.cache
def array(mac: RunningSumSpec, n: int, m: int, depth: int = DEPTH, build: Build = Build(), rows: int = 1) -> Any:
    """Build a chain of n elements with m multiply-accumulates each."""
    return Chain(mac=mac, n=n, m=m, depth=depth, rows=rows, build=build)


def kernel(
    mac: RunningSumSpec,
    n: int,
    m: int,
    depth: int = DEPTH,
    build: Build = Build(),
    name: str | None = None,
    *,
    rows: int = 1,
) -> Any:
    """Build a kernel around a chain of n elements with m multiply-accumulates each."""
    return Kernel(array=array(mac, n, m, depth, build, rows), name=name)


@functools.cache
def timing(mac: RunningSumSpec, n: int, m: int, memory: Memory, depth: int = DEPTH, build: Build = Build()) -> Timing:
    """Derive the timing of a kernel from that of the smallest one, because a large one takes long to build."""
    small = Timing.of(kernel(mac, 1, 1, depth, build), memory)
    return small.resized(replace(small.tiling, n=n, m=m))


def cores_cost_model(
    mac: RunningSumSpec,
    target: Target,
    progress: Progress = silent,
    pool: JobPool = LOCAL,
    *,
    depth: int = DEPTH,
    build: Build = Build(),
    rows: int = 1,
) -> CostModel:
    """Return the cost model of kernels around chains on a device."""
    return cost_model(lambda n, m: kernel(mac, n, m, depth, build, rows=rows), target, progress, pool)


def recorded_cost_model(
    mac: RunningSumSpec, target: Target, *, depth: int = DEPTH, build: Build = Build(), rows: int = 1
) -> CostModel | None:
    """Return the cost model of kernels from records; None if there are none."""
    return recorded_model([kernel(mac, n, m, depth, build, rows=rows) for n, m in SMALL], target)
