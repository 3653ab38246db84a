"""Alveo U280: HBM2 and two channels of DDR4."""

from halfulp.fpga.board import Board, Memory
from halfulp.fpga.targets import TARGETS

from .hbm import HBM_SLRS, hbm

U280 = Board(
    name="u280",
    title="AMD Alveo U280",
    target=TARGETS["u280"],
    slrs=HBM_SLRS,
    memories=(
        hbm(256),
        Memory(tag="DDR", kind="DDR4-2400", banks=2, bank_mib=16_384, bank_gbps=19.2, masters=15, slrs=(0, 1)),
    ),
    platform="xilinx_u280_gen3x16_xdma_1_202211_1",
    kernel_mhz=300,
    sources=("AMD, UG1314 (card), UG1120 (platform), UG1393 (HBM)",),
)
