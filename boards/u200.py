"""Alveo U200: a VU9P with four DDR4 channels; two of them are next to the middle die."""

from .board import Board, equal_dies
from .memories import ddr
from .targets import TARGETS

U200 = Board(
    title="AMD Alveo U200",
    target=TARGETS["u200"],
    slrs=equal_dies(TARGETS["u200"], 3),
    memories=(ddr((0, 1, 1, 2)),),
    platform="xilinx_u200_gen3x16_xdma_2_202110_1",
    kernel_mhz=300,
    sources=("AMD, UG1289 (card), UG1702 (platforminfo: banks beside SLR0, SLR1, SLR1, SLR2)",),
)
