"""Search for the arrays that a network trains fastest on, over their size, their number and their clock."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from halfulp.boards.board import BUFG_MHZ, Board, Resources
from halfulp.fpga.kernel.arrays import cores_cost_model, timing, with_source
from halfulp.fpga.kernel.layout import MASTERS
from halfulp.fpga.kernel.timing import Memory
from halfulp.hdl.formats import Format
from halfulp.hdl.specs import MacSpec
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.pareto import undominated
from halfulp.tools.progress import Progress, silent

from .performance import Exact, Published, Total, total
from .products import counted
from .published import PUBLISHED_LUT, TABLE_III, clock_of, clocks
from .workload import Workload

PORTS = len(MASTERS)
"""Ports of a core to memory."""

SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Elements of an array, and multiply-accumulates of each, that are tried."""


@dataclass(frozen=True)
class Option:
    """Arrays that could be built.

    Attributes
    ----------
    n, m, cores : int
        Elements of an array, multiply-accumulates of each, and arrays.
    mhz : float
    lut : float or None
        Lookup tables, in percent of the device; None where nobody says.
    total : Total
        How long the step takes.
    """

    n: int
    m: int
    cores: int
    mhz: float
    lut: float | None
    total: Total

    @property
    def macs(self) -> int:
        """Multiply-accumulates in all."""
        return self.n * self.m * self.cores

    @property
    def used(self) -> float:
        """Share of these that do something that is wanted, on average, in percent."""
        return 100 * self.total.macs / (self.total.seconds * self.mhz * 1e6 * self.macs)


def storage(fmt: Format) -> int:
    """Bits of an element in memory: whole bytes, of which there are 1, 2, 4 or 8."""
    return next(bits for bits in (8, 16, 32, 64) if bits >= fmt.width)


def published(board: Board, load: Workload, mac: MacSpec) -> tuple[list[Option], list[str]]:
    """Those that were published, with their clocks, as far as the board has room and ports for them; and notes.

    Raises
    ------
    ValueError
        If there is room for none.
    """
    counts = counted(load.gemms)
    luts = {(row.n, row.m, row.cores): row.lut * PUBLISHED_LUT / board.target.lut for row in TABLE_III}
    found = [
        Option(n, m, cores, mhz, luts.get((n, m, cores)), total(_model(n, m, cores, mhz, board, mac), counts))
        for (n, m, cores), mhz in clocks().items()
        if cores <= board.cores(PORTS) and luts.get((n, m, cores), 0) <= 100
    ]
    if not found:
        raise ValueError(f"{board.name} has ports for {board.cores(PORTS)} cores, and the published arrays need more")
    return found, ["Clocks and lookup tables are those that were published (Ben Ali et al., DATE 2025), on a U55C."]


def _model(n: int, m: int, cores: int, mhz: float, board: Board, mac: MacSpec) -> Published:
    return Published(n, m, cores, mhz, max(storage(mac.a), storage(mac.b)), board.pcie_gbps)


def searched(
    board: Board,
    load: Workload,
    mac: MacSpec,
    progress: Progress = silent,
    pool: JobPool = LOCAL,
    *,
    clock: float | None = None,
) -> tuple[list[Option], list[str]]:
    """Arrays of this library: for each size of an array the number of cores that is the fastest; and notes.

    Parameters
    ----------
    board : Board
    load : Workload
    mac : MacSpec
        Where it is stochastic and names no source, its sources are LFSRs.
    progress : Progress
    pool : JobPool
        Runs the synthesis of arrays whose cost is not known.
    clock : float, optional
        MHz of all of them; by default what published designs reached that take as many lookup tables.

    Raises
    ------
    ValueError
        If there is room for none, or no such clock.
    ToolError
        If Yosys or the machine fails.
    """
    if clock is not None and not 1 <= clock <= BUFG_MHZ:
        raise ValueError(f"a clock of {clock:g} MHz is out of range; the device has 1 to {BUFG_MHZ}")
    mac = with_source(mac)
    costs = cores_cost_model(mac, board.target, progress, pool)
    progress.total("arrays", len(SIZES) ** 2)
    found = []
    for n, m in itertools.product(SIZES, repeat=2):
        found += _fastest_number(n, m, board, load, mac, costs.cells(n, m), clock)
        progress.advance(1)
    if not found:
        raise ValueError(f"{board.name} has no room for one core with one multiply-accumulate of {mac.formula}")
    how = (
        "MHz: what published designs reached that take as large a share of lookup tables (Ben Ali et al., DATE 2025)."
        if clock is None
        else "MHz: as was asked for."
    )
    # Cells of every option are known here.
    front = undominated([(option.total.seconds, option.lut) for option in found])
    return list(itertools.compress(found, front)), [
        f"Multiply-accumulates: {mac.formula}. Of {len(SIZES) ** 2} sizes of arrays, each with the number of "
        "cores that is the fastest, those that no other beats in time and lookup tables.",
        "Time: from start to done of the kernels, exact in cycles but for the memory, which is taken to answer after "
        f"{board.memory.latency_ns:g} ns.",
        f"LUT: of the cores, by what small ones take ({costs.source}); the platform takes some too.",
        how,
    ]


def _fastest_number(
    n: int, m: int, board: Board, load: Workload, mac: MacSpec, cells: Resources, clock: float | None
) -> list[Option]:
    """The fastest number of cores of a size, if there is room for one."""
    counts = counted(load.gemms)
    bits = (storage(mac.a), storage(mac.b), storage(mac.o))
    options = []
    for cores in range(1, board.cores(PORTS) + 1):
        shares = cells.share(board.target, cores)
        mhz = clock_of(shares["LUT"]) if clock is None else clock
        if mhz is None or max(shares.values()) > 100:
            break
        latency, rate = board.beats(mhz, 2 * cores)
        core = timing(mac, n, m, Memory(latency, latency, rate))
        model = Exact(core, cores, mhz, bits, board.pcie_gbps)
        options.append(Option(n, m, cores, mhz, shares["LUT"], total(model, counts)))
    return [fastest(options)] if options else []


def fastest(options: Sequence[Option]) -> Option:
    """The one that takes least time; of those that take as long, the smallest."""
    return min(options, key=lambda option: (option.total.seconds, option.macs))
