"""Files of a design: kernels for a board, inputs of the vendor tools, and a host program."""

from dataclasses import dataclass
from typing import Any

from halfulp.boards.board import Board, Resources
from halfulp.boards.targets import TARGETS, Target, used_blocks
from halfulp.fpga.kernel.arrays import KERNEL, array, cores_cost_model, kernel, recorded_cost_model
from halfulp.fpga.kernel.cost_model import resources
from halfulp.fpga.kernel.layout import HOST, xclbin_name
from halfulp.fpga.synth.measure import Module, measure_modules
from halfulp.hdl.specs import Build, RunningSumSpec, Tiling
from halfulp.sim.build import verilog
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.progress import Progress, silent

from .vivado import scripts
from .xrt import (
    CPP_HOST,
    KERNEL_XML,
    LINK,
    PACKAGE,
    TILE,
    check_ports,
    host_cpp,
    kernel_xml,
    link_cfg,
    makefile,
    package_tcl,
    tile_h,
)

BARE = "tile"
"""Folder of the flow of the array without ports."""

CLOCK = 300
"""Default clock in MHz on a board without one."""

URAM_KBIT = 288
"""Size of an UltraRAM (AMD, UG573)."""


def default_clock(board: Board) -> float:
    """Return the clock in MHz of kernels on a board without another request."""
    return board.kernel_mhz or CLOCK


@dataclass(frozen=True)
class Design:
    """Kernels on a board.

    Parameters
    ----------
    board : Board
    mac : RunningSumSpec
        Multiply-accumulate, with a random source if it is stochastic.
    n, m : int
        Elements per array, and multiply-accumulates per element.
    cores : int
        Number of kernels, each with an array.
    depth : int
        Maximum number of vectors per row of a tile.
    rows : int
        Rows of a tile per element.
    build : Build
        Register stages of each multiply-accumulate.
    mhz : float, optional
        Clock of the kernels; default: the board's.
    bare : Target
        Device of the flow of the array without ports.

    Raises
    ------
    TypeError, ValueError
        If the array cannot be built or is too large for the device, the board has too few ports or no platform for
        several cores, or the clock is out of range.
    """

    board: Board
    mac: RunningSumSpec
    n: int
    m: int
    cores: int
    depth: int
    rows: int = 1
    build: Build = Build()
    mhz: float | None = None
    bare: Target = TARGETS["vu9p"]

    def __post_init__(self) -> None:
        if self.board.platform is not None:
            check_ports(self.board, self.cores)
        elif self.cores != 1:
            raise ValueError(
                f"{self.board.name} has no XRT platform, so --cores is 1; halfulp list boards prints boards with "
                "a platform"
            )
        # An array that cannot fit may be too large to build: each multiply-accumulate takes a lookup table, which may
        # hold 64 bits, and two memories of results.
        tiling, target = Tiling(self.n, self.m, self.depth, self.rows), self.board.target
        blocks = 1024 * (target.family.bram_kbit * target.bram + URAM_KBIT * target.uram)
        bits = 2 * tiling.macs * self.depth * self.rows * self.mac.o.width
        self.check(Resources(lut=tiling.macs + max(bits - blocks, 0) // 64, ff=0, dsp=0, bram=0, uram=0))
        kernel(self.mac, 1, 1, self.depth, self.build, rows=self.rows)

    @property
    def clock(self) -> float:
        """Clock of the kernels, in MHz."""
        return default_clock(self.board) if self.mhz is None else self.mhz

    def array(self) -> Any:
        """Build the array of a core."""
        return array(self.mac, self.n, self.m, self.depth, self.build, self.rows)

    def recorded(self) -> Resources | None:
        """Estimate the resources of a core from records of small ones without register stages; None without records.

        Stages add flip-flops, and hardly any lookup tables.
        """
        build = self.build.with_stages(0)
        costs = recorded_cost_model(self.mac, self.board.target, depth=self.depth, build=build, rows=self.rows)
        return None if costs is None else costs.cells(self.n, self.m)

    def cells(self, progress: Progress = silent, pool: JobPool = LOCAL) -> Resources:
        """Estimate the resources of a core by the cost model, which takes minutes without records."""
        costs = cores_cost_model(
            self.mac, self.board.target, progress, pool, depth=self.depth, build=self.build, rows=self.rows
        )
        return costs.cells(self.n, self.m)

    def kernel(self) -> Any:
        """Build the kernel around the array of a core."""
        return kernel(self.mac, self.n, self.m, self.depth, self.build, KERNEL, rows=self.rows)

    def measured(self, progress: Progress = silent, pool: JobPool = LOCAL) -> Resources:
        """Measure the resources of a core by synthesis of each distinct module."""
        progress.total("synthesis", 1)
        (cost,) = measure_modules([Module.of_array(self.kernel())], self.board.target, progress, pool)
        return resources(cost)

    def check(self, cells: Resources) -> None:
        """Check that cores of ``cells`` resources each fit their die and the device, at the clock; else ValueError."""
        self.board.target.check_clock(self.clock, used_blocks(cells))
        whole = cells.share(self.board.target, self.cores)
        most = max(whole, key=whole.__getitem__)
        size = f"{self.n} x {self.m} multiply-accumulates of {self.mac.expression}"
        if whole[most] > 100:
            fit = int(100 / cells.share(self.board.target)[most])
            raise ValueError(
                f"{self.cores} cores of {size} take {whole[most]:.0f} % of the {most} of {self.board.name}"
                + (f"; {fit} fit" if fit else "; not even one fits")
            )
        largest = max(self.board.slrs, key=lambda slr: slr.lut)
        if cells.lut > largest.lut:
            raise ValueError(
                f"a core of {size} takes {cells.lut:,} LUT, and a die of {self.board.name} has {largest.lut:,}"
            )

    def files(self) -> dict[str, str]:
        """Return all files by path; without a platform, only those of the array without ports."""
        board, source = self.board, f"{KERNEL}.v"
        texts = scripts(self.array(), self.bare, clock_mhz=self.clock, dsp=False)
        bare = {f"{BARE}/{name}": text for name, text in texts.items()}
        if board.platform is None:
            return bare
        return {
            source: verilog(self.kernel(), KERNEL),
            KERNEL_XML: kernel_xml(KERNEL),
            PACKAGE: package_tcl(KERNEL, source, board.target.part),
            LINK: link_cfg(KERNEL, board, self.cores, self.clock),
            HOST: self.host(),
            CPP_HOST: host_cpp(),
            TILE: tile_h(KERNEL, self.cores, self.mac, Tiling(self.n, self.m, self.depth, self.rows)),
            "Makefile": makefile(KERNEL, board, source),
            **bare,
        }

    def host(self) -> str:
        """Return the host program."""
        return f"""\
# Runs matrix products on {self.board.title} and compares every element with the golden model:
#   python3 {HOST} {xclbin_name(KERNEL, "hw")} --n 100 --k 100 --m 100

from halfulp.fpga.kernel.host import Tile, run
from halfulp.hdl.specs import Tiling

TILE = Tile(
    kernel={KERNEL!r},
    cores={self.cores},
    mac={str(self.mac)!r},
    tiling=Tiling({self.n}, {self.m}, {self.depth}, {self.rows}),
)

if __name__ == "__main__":
    run(TILE)
"""
