"""Alveo U250: four dies with one DDR4 channel each."""

from .board import Board, equal_dies
from .memories import ddr
from .targets import TARGETS

U250 = Board(
    title="AMD Alveo U250",
    target=TARGETS["u250"],
    slrs=equal_dies(TARGETS["u250"], 4),
    memories=(ddr((0, 1, 2, 3)),),
    platform="xilinx_u250_gen3x16_xdma_4_1_202210_1",
    kernel_mhz=300,
    sources=(
        "AMD, UG1289 (card), UG1120 (platform)",
        "ThunderGP (github.com/Xtra-Computing/ThunderGP, automation/devices): a bank beside each die",
    ),
)
