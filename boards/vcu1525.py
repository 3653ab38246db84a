"""VCU1525: the predecessor of the U200; all pins are available to the user."""

from typing import Any, ClassVar

from amaranth.build import Attrs, Clock, DiffPairs, Pins, Resource
from amaranth.vendor import XilinxPlatform

from .board import Board, equal_dies, fields_of
from .memories import ddr
from .targets import TARGETS

VCU1525 = Board(
    title="Xilinx VCU1525",
    target=TARGETS["vcu1525"],
    slrs=equal_dies(TARGETS["vcu1525"], 3),
    memories=(ddr((0, 1, 1, 2)),),
    platform="xilinx_vcu1525_xdma_201830_1",
    kernel_mhz=300,
    amaranth="halfulp.boards.vcu1525:VCU1525Platform",
    sources=("Xilinx, VCU1525 Reconfigurable Acceleration Platform User Guide (UG1268)",),
)


class VCU1525Platform(XilinxPlatform):
    """LEDs of the board and the reference clocks of its four memories (UG1268)."""

    device, package, speed = fields_of(VCU1525.target.part)
    default_clk = "clk300"
    resources: ClassVar[list[Any]] = [
        *(
            Resource("clk300", number, DiffPairs(p, n, dir="i"), Clock(300e6), Attrs(IOSTANDARD="LVDS"))
            for number, (p, n) in enumerate((("AY37", "AY38"), ("AW20", "AW19"), ("F32", "E32"), ("J16", "H16")))
        ),
        *(
            Resource("led", number, Pins(pin, dir="o"), Attrs(IOSTANDARD="LVCMOS12"))
            for number, pin in enumerate(("BC21", "BB21", "BA20"))
        ),
    ]
    connectors: ClassVar[list[Any]] = []
