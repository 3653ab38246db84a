"""VCU118: evaluation board with a VU9P, without an XRT platform."""

from dataclasses import replace
from typing import Any, ClassVar

from amaranth.build import Attrs, Clock, DiffPairs, Pins, Resource
from amaranth.vendor import XilinxPlatform

from .board import Board, equal_dies, fields_of
from .memories import ddr
from .targets import TARGETS

VCU118 = Board(
    title="AMD VCU118",
    target=TARGETS["vcu118"],
    slrs=equal_dies(TARGETS["vcu118"], 3),
    memories=(replace(ddr(), kind="DDR4-2400, 80 bits", banks=2, bank_mib=2_560, bank_gbps=24.0),),
    amaranth="halfulp.boards.vcu118:VCU118Platform",
    sources=(
        "AMD, VCU118 Evaluation Board User Guide (UG1224): 80 bits",
        "AWSteria (github.com/bluespec/AWSteria_Infra), Chipyard (VCU118DDRSize): 2 GiB on 64 of the 80 bits",
    ),
)


class VCU118Platform(XilinxPlatform):
    """Clocks, button and LEDs of the board (UG1224)."""

    device, package, speed = fields_of(VCU118.target.part)
    default_clk = "clk125"
    default_rst = "button_reset"
    resources: ClassVar[list[Any]] = [
        Resource("clk125", 0, DiffPairs("AY24", "AY23", dir="i"), Clock(125e6), Attrs(IOSTANDARD="LVDS")),
        Resource("clk300", 0, DiffPairs("G31", "F31", dir="i"), Clock(300e6), Attrs(IOSTANDARD="DIFF_SSTL12")),
        *(
            Resource("clk250", number, DiffPairs(p, n, dir="i"), Clock(250e6), Attrs(IOSTANDARD="DIFF_SSTL12"))
            for number, (p, n) in enumerate((("E12", "D12"), ("AW26", "AW27")))
        ),
        Resource("button_reset", 0, Pins("L19", dir="i"), Attrs(IOSTANDARD="LVCMOS12")),
        *(
            Resource("led", number, Pins(pin, dir="o"), Attrs(IOSTANDARD="LVCMOS12"))
            for number, pin in enumerate(("AT32", "AV34", "AY30", "BB32", "BF32", "AU37", "AV36", "BA37"))
        ),
    ]
    connectors: ClassVar[list[Any]] = []
