"""Alveo U55C: HBM2; the card of the arrays of Ben Ali et al., DATE 2025."""

from .board import Board
from .memories import HBM_SLRS, hbm
from .targets import TARGETS

U55C = Board(
    title="AMD Alveo U55C",
    target=TARGETS["u55c"],
    slrs=HBM_SLRS,
    memories=(hbm(512),),
    platform="xilinx_u55c_gen3x16_xdma_3_202210_1",
    kernel_mhz=300,
    sources=("AMD, UG1469 (card), UG1120 (platform), UG1393 (HBM)",),
)
