# amaranth: UnusedElaboratable=no
"""Arrays and kernels around them, with their timing and their costs.

The first line stops Amaranth's warning about components that are never elaborated.
"""

import functools
from dataclasses import replace
from typing import Any

from halfulp.boards.targets import Target
from halfulp.hdl.formats.source import parse_source
from halfulp.hdl.specs import Build, MacSpec
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.progress import Progress, silent
from halfulp.units.systolic import Chain
from halfulp.units.systolic.chain import DEPTH

from .cost_model import CostModel, cost_model
from .kernel import Kernel
from .timing import Memory, Timing

KERNEL = "halfulp_gemm"
"""Name of a kernel. XRT has 63 letters for it and its instance together."""


def with_source(mac: MacSpec) -> MacSpec:
    """The description, with an LFSR of 16 bits or more if it takes random words and names no source."""
    if mac.random is not None or not mac.words:
        return mac
    return replace(mac, random=parse_source(f"lfsr{max(16, *mac.words.values())}"))


@functools.cache
def array(mac: MacSpec, n: int, m: int, depth: int = DEPTH, pipeline: int = 0, rows: int = 1) -> Any:
    """A chain of n elements of m multiply-accumulates."""
    return Chain(mac=mac, n=n, m=m, depth=depth, rows=rows, build=Build(pipeline))


def kernel(
    mac: MacSpec, n: int, m: int, depth: int = DEPTH, pipeline: int = 0, name: str | None = None, *, rows: int = 1
) -> Any:
    """A kernel around such a chain."""
    return Kernel(array=array(mac, n, m, depth, pipeline, rows), name=name)


@functools.cache
def timing(mac: MacSpec, n: int, m: int, memory: Memory, depth: int = DEPTH, pipeline: int = 0) -> Timing:
    """Timing of such a kernel, from that of the smallest one, because the ports of a large one take long to build."""
    small = Timing.of(kernel(mac, 1, 1, depth, pipeline), memory)
    return small.resized(replace(small.tiling, n=n, m=m))


def cores_cost_model(
    mac: MacSpec,
    target: Target,
    progress: Progress = silent,
    pool: JobPool = LOCAL,
    *,
    depth: int = DEPTH,
    pipeline: int = 0,
    rows: int = 1,
) -> CostModel:
    """Cost model of kernels around such chains on a device."""
    return cost_model(lambda n, m: kernel(mac, n, m, depth, pipeline, rows=rows), target, progress, pool)
