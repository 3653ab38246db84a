"""Search for the arrays with the fastest step of a network, over size, number and clock."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from halfulp.boards.board import Board, Resources
from halfulp.boards.targets import used_blocks
from halfulp.fpga.kernel.arrays import array, cores_cost_model, timing, with_source
from halfulp.fpga.kernel.layout import MASTERS, element_bytes, entry_bytes
from halfulp.fpga.kernel.timing import Memory
from halfulp.hdl.specs import Build, MacSpec, RunningSumSpec
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.pareto import undominated
from halfulp.tools.progress import Progress, silent

from .performance import Arrays, Exact, Published, Total, total
from .published import PUBLISHED_LUT, TABLE_III, clock_of, clocks
from .workload import Workload

PORTS = len(MASTERS)
"""Memory ports per core."""

SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Candidate numbers of elements per array, and of multiply-accumulates per element."""


@dataclass(frozen=True)
class Option(Arrays):
    """Candidate of the search.

    Attributes
    ----------
    lut : float or None
        Lookup tables, in percent of the device; None if unknown.
    total : Total
        Time of the step.
    pairs : int
        Products that a multiply-accumulate adds per cycle.
    """

    lut: float | None
    total: Total
    pairs: int = 1

    @property
    def rank(self) -> tuple[float, int]:
        """Sort key: time, then size."""
        return self.total.seconds, self.macs

    @property
    def used(self) -> float:
        """Utilization of the multiply-accumulates, in percent."""
        return 100 * self.total.macs / (self.total.seconds * self.mhz * 1e6 * self.macs * self.pairs)


def published(board: Board, load: Workload, mac: RunningSumSpec) -> tuple[list[Option], list[str]]:
    """Return the published arrays that fit a board, and notes; ValueError if none fits."""
    if not isinstance(mac, MacSpec):
        raise ValueError(
            f"published arrays add one product of numbers in a step, not {mac.expression}; use --model exact"
        )
    bits = 8 * max(entry_bytes(mac, name) for name in ("a", "b"))
    luts = {(row.n, row.m, row.cores): row.lut * PUBLISHED_LUT / board.target.lut for row in TABLE_III}
    options = [
        Option(n, m, cores, mhz, luts.get((n, m, cores)), total(model, load.gemms))
        for (n, m, cores), mhz in clocks().items()
        if cores <= board.cores(PORTS) and luts.get((n, m, cores), 0) <= 100
        for model in [Published(n, m, cores, mhz, bits, board.pcie_gbps)]
    ]
    if not options:
        raise ValueError(f"{board.name} has ports for {board.cores(PORTS)} cores; the published arrays need more")
    return options, [
        "Clocks and lookup tables as published (Ben Ali et al., DATE 2025), on a U55C. Each size has the largest "
        "number of cores that fits; 8 x 8 has fewer too."
    ]


def searched(
    board: Board,
    load: Workload,
    mac: RunningSumSpec,
    progress: Progress = silent,
    pool: JobPool = LOCAL,
    *,
    clock: float | None = None,
) -> tuple[list[Option], list[str]]:
    """Search the arrays of this library: the fastest number of cores of each size, without dominated ones; and notes.

    Parameters
    ----------
    board : Board
    load : Workload
    mac : RunningSumSpec
        Multiply-accumulate; an LFSR is added if it is stochastic and names no source.
    progress : Progress
    pool : JobPool
        Runs the synthesis of arrays without a recorded cost.
    clock : float, optional
        Clock of all arrays in MHz, which sets the register stages of their multiply-accumulates by the delay model;
        default: that of published designs of the same size, without stages.

    Raises
    ------
    ValueError
        If no array fits, or the device or the multiply-accumulate does not reach the clock.
    ToolError
        If Yosys or the machine fails.
    """
    mac, build = with_source(mac), Build()
    if clock is not None:
        board.target.check_clock(clock)
        progress.total("register stages")
        build = array(mac, 1, 1, build=Build(clock=clock, target=board.target.family.name)).part_build
    costs = cores_cost_model(mac, board.target, progress, pool)
    progress.total("arrays", len(SIZES) ** 2)
    options = []
    for n, m in itertools.product(SIZES, repeat=2):
        options += _fastest_number(n, m, board, load, mac, costs.cells(n, m), clock, build)
        progress.advance(1)
    if not options:
        raise ValueError(f"{board.name} has no room for one core with one multiply-accumulate of {mac.expression}")
    how = (
        "MHz: clock of published designs with the same share of lookup tables (Ben Ali et al., DATE 2025)."
        if clock is None
        else f"MHz: as requested. Multiply-accumulates have {build.pipeline} register stages, as few as meet it "
        f"by the delay model of {board.target.family.name}."
    )
    # Every option has a number of lookup tables here.
    front = undominated([(option.total.seconds, option.lut) for option in options])
    return list(itertools.compress(options, front)), [
        f"Multiply-accumulates: {mac.expression}. The search has {len(SIZES) ** 2} array sizes, each with the fastest "
        "number of cores; the table has those on the Pareto front of time and lookup tables.",
        "Time: from start to done of the kernels, by their timing model, with a memory latency of "
        f"{board.memory.latency_ns:g} ns.",
        f"LUT: of the cores without the platform, extrapolated from small ones ({costs.source}).",
        how,
    ]


def _fastest_number(  # noqa: PLR0913 - the size of an array, and what bounds its cores
    n: int,
    m: int,
    board: Board,
    load: Workload,
    mac: RunningSumSpec,
    cells: Resources,
    clock: float | None,
    build: Build,
) -> list[Option]:
    """Return the option with the fastest number of cores of a size; an empty list if no core fits or has the clock."""
    fastest_mhz, _ = board.target.max_clock(used_blocks(cells))
    bits = (8 * entry_bytes(mac, "a"), 8 * entry_bytes(mac, "b"), 8 * element_bytes(mac.o.width))
    options = []
    for cores in range(1, board.cores(PORTS) + 1):
        shares = cells.share(board.target, cores)
        mhz = clock_of(shares["LUT"]) if clock is None else clock
        if mhz is None or mhz > fastest_mhz or max(shares.values()) > 100:
            break
        latency, rate = board.beats(mhz, 2 * cores)
        core = timing(mac, n, m, Memory(latency, latency, rate), build=build)
        model = Exact(core, cores, mhz, bits, board.pcie_gbps, mac.steps)
        options.append(Option(n, m, cores, mhz, shares["LUT"], total(model, load.gemms), mac.pairs_per_step))
    return [fastest(options)] if options else []


def fastest(options: Sequence[Option]) -> Option:
    """Return the fastest option; ties go to the smallest."""
    return min(options, key=lambda option: option.rank)
