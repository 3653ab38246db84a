"""Devices for which units are synthesised."""

from dataclasses import dataclass, replace
from typing import Any

ASIC = "asic"
"""Name of the target of standard cells, which is no device: a Liberty file describes them."""

NONE = "(?!)"
"""Regular expression that matches no cell type."""


@dataclass(frozen=True)
class Family:
    """FPGA family: Yosys maps a design to the same cells on all its devices.

    Parameters
    ----------
    name : str
        Short name.
    command : str
        Synthesis command of Yosys. It inserts no I/O and clock buffers, because a unit is a part of a design.
    memories : str
        Label of the step of ``command`` that maps memories.
    lut, ff, carry, mux, dsp, bram, uram, memory : str
        Regular expression for the cell types of each kind.
    luts_per_carry : int
        Bits of a carry chain cell, which is also the number of lookup tables next to it.
    half_carry, half_bram : str
        Cell types that count as half a carry chain cell or block memory.
    carry_takes : int
        Number of lookup tables that a carry chain cell uses.
    bram_kbit : int
        Size of a block memory, including parity.
    """

    name: str
    command: str
    memories: str
    lut: str
    ff: str
    carry: str
    mux: str
    dsp: str
    bram: str
    memory: str
    luts_per_carry: int
    bram_kbit: int
    half_carry: str = NONE
    half_bram: str = NONE
    uram: str = NONE
    carry_takes: int = 0

    @property
    def recipe(self) -> str:
        """Synthesis command without DSP blocks."""
        return f"{self.command} -nodsp"

    def job(self, dsp: bool = False) -> dict[str, Any]:
        """Return the parameters of the family for `halfulp.fpga.synth.yosys`."""
        return {"command": self.command if dsp else self.recipe, "memories": self.memories, "ff": self.ff}


# A slice has one CARRY8 and eight lookup tables (UG574).
XCUP = Family(
    name="xcup",
    command="synth_xilinx -family xcup -flatten -noiopad -noclkbuf",
    memories="map_memory",
    lut="LUT[1-6]",
    ff="FD.*",
    carry="CARRY8",
    half_carry="CARRY4",
    mux="MUXF[789]",
    dsp="DSP.*",
    bram="RAMB36.*",
    half_bram="RAMB18.*",
    uram="URAM.*",
    memory="SRL.*|RAM[0-9].*",
    luts_per_carry=8,
    bram_kbit=36,
)

# A slice has one CARRY4 and four lookup tables (UG474).
XC7 = replace(
    XCUP,
    name="xc7",
    command="synth_xilinx -family xc7 -flatten -noiopad -noclkbuf",
    carry="CARRY4",
    half_carry=NONE,
    luts_per_carry=4,
)

# A slice has two lookup tables; a carry chain cell uses both (FPGA-DS-02012, 2.2).
ECP5 = Family(
    name="ecp5",
    command="synth_ecp5",
    memories="map_ram",
    lut="LUT4",
    ff="TRELLIS_FF",
    carry="CCU2C",
    mux="PFUMX|L6MUX21",
    dsp="MULT18X18D",
    bram="DP16KD|PDPW16KD",
    memory="TRELLIS_DPR16X4",
    luts_per_carry=2,
    carry_takes=2,
    bram_kbit=18,
)

FAMILIES = {family.name: family for family in (XCUP, XC7, ECP5)}


@dataclass(frozen=True)
class Target:
    """FPGA device and its resources.

    Parameters
    ----------
    name : str
        Common name of the device, or the name of its board.
    family : Family
        Family of the device.
    part : str
        The vendor's part name.
    lut, ff, dsp, bram, uram : int
        Number of lookup tables, flip-flops, DSP blocks or multipliers, block memories and UltraRAM blocks of the
        device. The shell of a board uses some of them.
    source : str
        Data sheet that gives these numbers.
    nextpnr : tuple of str
        Options of nextpnr for the device; empty if nextpnr does not support it.
    """

    name: str
    family: Family
    part: str
    lut: int
    ff: int
    dsp: int
    bram: int
    uram: int
    source: str
    nextpnr: tuple[str, ...] = ()

    @property
    def carry(self) -> int:
        """Number of carry chain cells: one in every slice."""
        return self.lut // self.family.luts_per_carry


_VU9P = 1_182_240, 2_364_480, 6_840, 2_160, 960
_HBM_CARD = 1_303_680, 2_607_360, 9_024, 2_016, 960
_DS890 = "AMD, UltraScale Architecture and Product Data Sheet: Overview (DS890)"
_DS962 = "AMD, Alveo U200 and U250 Data Center Accelerator Cards Data Sheet (DS962)"
_DS963 = "AMD, Alveo U280 Data Center Accelerator Card Data Sheet (DS963)"
_DS978 = "AMD, Alveo U55C Data Center Accelerator Cards Data Sheet (DS978)"
_DS180 = "AMD, 7 Series FPGAs Data Sheet: Overview (DS180)"
_DS02012 = "Lattice, ECP5 and ECP5-5G Family Data Sheet (FPGA-DS-02012)"
_ECP5_85K = ("--85k", "--package", "CABGA381", "--speed", "6")

TARGETS = {
    target.name: target
    for target in (
        # Name, family, part, LUT, FF, DSP, BRAM, URAM, source.
        Target("vu9p", XCUP, "xcvu9p-flga2104-2L-e", *_VU9P, _DS890),
        Target("u55c", XCUP, "xcu55c-fsvh2892-2L-e", *_HBM_CARD, _DS978),
        Target("u250", XCUP, "xcu250-figd2104-2L-e", 1_728_000, 3_456_000, 12_288, 2_688, 1_280, _DS962),
        Target("u280", XCUP, "xcu280-fsvh2892-2L-e", *_HBM_CARD, _DS963),
        Target("u200", XCUP, "xcu200-fsgd2104-2-e", *_VU9P, _DS962),
        Target("vcu1525", XCUP, "xcvu9p-fsgd2104-2L-e", *_VU9P, _DS890),
        Target("vcu118", XCUP, "xcvu9p-flga2104-2L-e", *_VU9P, _DS890),
        Target("aws_f1", XCUP, "xcvu9p-flgb2104-2-i", *_VU9P, _DS890),
        Target("artix100t", XC7, "xc7a100tcsg324-1", 63_400, 126_800, 240, 135, 0, _DS180),
        Target("ecp5-85k", ECP5, "LFE5U-85F-6BG381C", 83_640, 83_640, 156, 208, 0, _DS02012, _ECP5_85K),
    )
}


def target_of(name: str | Target) -> Target:
    """Return the device of a name, the first one of a family, or the given device.

    Raises TypeError for another type, and ValueError for an unknown name.
    """
    if isinstance(name, Target):
        return name
    if not isinstance(name, str):
        raise TypeError(f"target must be a Target or its name, not {type(name).__name__}")
    if name in FAMILIES:
        return next(target for target in TARGETS.values() if target.family.name == name)
    if name == ASIC:
        raise ValueError(f"{ASIC} is no device but standard cells, for halfulp synth and studies only")
    if name not in TARGETS:
        raise ValueError(f"unknown target {name!r}; the targets are {', '.join(TARGETS)}")
    return TARGETS[name]


def check_route(target: Target) -> Target:
    """Return the device; ValueError if nextpnr cannot place and route for it."""
    if not target.nextpnr:
        able = ", ".join(name for name, other in TARGETS.items() if other.nextpnr)
        raise ValueError(f"nextpnr cannot place and route for {target.name}; choose {able}, or use the vendor's tools")
    return target


def listing() -> list[str]:
    """Return the lines of a table of all devices, followed by their sources."""
    kinds = ("lut", "ff", "carry", "dsp", "bram", "uram")
    heads = "".join(f"{kind.upper():>11}" for kind in kinds)
    lines = [f"{'target':11}{'part':22}{'family':6}{heads}"]
    for target in TARGETS.values():
        totals = "".join(f"{getattr(target, kind):11,d}" for kind in kinds)
        lines.append(f"{target.name:11}{target.part:22}{target.family.name:6}{totals}")
    sizes = ", ".join(f"{family.bram_kbit} kbit ({family.name})" for family in FAMILIES.values())
    carries = ", ".join(f"{family.carry} ({family.name})" for family in FAMILIES.values())
    sources = dict.fromkeys(target.source for target in TARGETS.values())
    cells = f"Not a device: {ASIC}, the standard cells of a Liberty file, for halfulp synth and studies."
    return [*lines, "", f"BRAM: blocks of {sizes}.", f"Carry: {carries}.", cells, "Sources:"] + [
        f"  {source}: {', '.join(target.name for target in TARGETS.values() if target.source == source)}"
        for source in sources
    ]
