"""Alveo U280: HBM2 and two DDR4 channels."""

from dataclasses import replace

from .board import Board
from .memories import HBM_SLRS, ddr, hbm
from .targets import TARGETS

U280 = Board(
    title="AMD Alveo U280",
    target=TARGETS["u280"],
    slrs=HBM_SLRS,
    memories=(
        hbm(256),
        replace(ddr(), banks=2, slrs=(0, 1)),
    ),
    platform="xilinx_u280_gen3x16_xdma_1_202211_1",
    kernel_mhz=300,
    sources=(
        "AMD, UG1314 (card), UG1120 (platform), UG1393 (HBM)",
        "AutoBridge (github.com/UCLA-VAST/AutoBridge, DeviceManager.py): DDR beside SLR0 and SLR1",
    ),
)
