"""Devices for which units are synthesised."""

from collections.abc import Collection
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


BLOCKS = {"dsp": "DSP block", "bram": "block RAM", "uram": "UltraRAM"}
"""Names of the blocks with a maximum clock of their own, by field of `Target` and `ClockLimits`."""


def used_blocks(counts: Any) -> tuple[str, ...]:
    """Return the fields of `BLOCKS` that a design uses, for an object with the numbers of its blocks."""
    return tuple(kind for kind in BLOCKS if getattr(counts, kind))


@dataclass(frozen=True)
class ClockLimits:
    """Maximum clocks in MHz of the parts of a device at its speed grade.

    Parameters
    ----------
    network : int
        Global clock network.
    dsp, bram, uram : int
        DSP blocks, block memories and UltraRAM, with all their registers in use.
    source : str
        Tables of the data sheet.
    """

    network: int
    dsp: int
    bram: int
    uram: int
    source: str

    def __str__(self) -> str:
        blocks = [f"{name} {getattr(self, kind)}" for kind, name in BLOCKS.items() if getattr(self, kind)]
        return f"{', '.join([f'clock network {self.network}', *blocks])} ({self.source})"


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
    limits : ClockLimits
        Maximum clocks.
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
    limits: ClockLimits
    nextpnr: tuple[str, ...] = ()

    @property
    def carry(self) -> int:
        """Number of carry chain cells: one in every slice."""
        return self.lut // self.family.luts_per_carry

    @property
    def max_mhz(self) -> int:
        """Maximum clock of the global clock network in MHz, which no design exceeds."""
        return self.limits.network

    def max_clock(self, used: Collection[str] = ()) -> tuple[int, str]:
        """Return the maximum clock in MHz of a design that uses some of `BLOCKS`, and the part that limits it."""
        parts = [(self.max_mhz, "clock network"), *((getattr(self.limits, kind), BLOCKS[kind]) for kind in used)]
        return min(parts, key=lambda part: part[0])

    def check_clock(self, mhz: float, used: Collection[str] = ()) -> None:
        """Raise ValueError if the device does not support a clock of a design that uses some of `BLOCKS`."""
        limit, part = self.max_clock(used)
        if not 1 <= mhz <= limit:
            raise ValueError(
                f"a clock of {mhz:g} MHz is out of range; the {part} of {self.name} supports 1 to {limit} MHz "
                f"({self.limits.source})"
            )


_VU9P = 1_182_240, 2_364_480, 6_840, 2_160, 960
_HBM_CARD = 1_303_680, 2_607_360, 9_024, 2_016, 960
_DS890 = "AMD, UltraScale Architecture and Product Data Sheet: Overview (DS890)"
_DS962 = "AMD, Alveo U200 and U250 Data Center Accelerator Cards Data Sheet (DS962)"
_DS963 = "AMD, Alveo U280 Data Center Accelerator Card Data Sheet (DS963)"
_DS978 = "AMD, Alveo U55C Data Center Accelerator Cards Data Sheet (DS978)"
_DS180 = "AMD, 7 Series FPGAs Data Sheet: Overview (DS180)"
_DS02012 = "Lattice, ECP5 and ECP5-5G Family Data Sheet (FPGA-DS-02012)"
# Speed grade -2 at 0.85 V, as all boards have it. FMAX of BUFG, of DSP48E2 with all registers used, of block RAM in the
# modes WRITE_FIRST and NO_CHANGE, and of UltraRAM. A DSP48E2 without inner registers reaches 410 MHz; the delay model
# has a longer delay for it.
_XCUP_2 = ClockLimits(
    775, 775, 738, 600, "AMD, DS923: Clock Buffers and Networks, DSP48 Slice, Block RAM, UltraRAM; grade -2 at 0.85 V"
)
# FMAX_BUFG; FMAX of DSP48E1 with all registers used; FMAX_BRAM_WF_NC.
_XC7_1 = ClockLimits(464, 464, 388, 0, "AMD, DS181: table 32, DSP48E1, Block RAM; grade -1")
# The data sheet has DSP and block memories, with output registers, at its fastest speed grade only, 8, so that these
# figures are upper bounds. There fMAX_PRI is 370 MHz.
_ECP5_6 = ClockLimits(257, 225, 272, 0, "Lattice, FPGA-DS-02012: fMAX_PRI of table 3.22, grade 6; table 3.20, grade 8")
_ECP5_85K = ("--85k", "--package", "CABGA381", "--speed", "6")

TARGETS = {
    target.name: target
    for target in (
        # Name, family, part, LUT, FF, DSP, BRAM, URAM, source, maximum clocks.
        Target("vu9p", XCUP, "xcvu9p-flga2104-2L-e", *_VU9P, _DS890, _XCUP_2),
        Target("u55c", XCUP, "xcu55c-fsvh2892-2L-e", *_HBM_CARD, _DS978, _XCUP_2),
        Target("u250", XCUP, "xcu250-figd2104-2L-e", 1_728_000, 3_456_000, 12_288, 2_688, 1_280, _DS962, _XCUP_2),
        Target("u280", XCUP, "xcu280-fsvh2892-2L-e", *_HBM_CARD, _DS963, _XCUP_2),
        Target("u200", XCUP, "xcu200-fsgd2104-2-e", *_VU9P, _DS962, _XCUP_2),
        Target("vcu1525", XCUP, "xcvu9p-fsgd2104-2L-e", *_VU9P, _DS890, _XCUP_2),
        Target("vcu118", XCUP, "xcvu9p-flga2104-2L-e", *_VU9P, _DS890, _XCUP_2),
        Target("aws_f1", XCUP, "xcvu9p-flgb2104-2-i", *_VU9P, _DS890, _XCUP_2),
        Target("artix100t", XC7, "xc7a100tcsg324-1", 63_400, 126_800, 240, 135, 0, _DS180, _XC7_1),
        Target("ecp5-85k", ECP5, "LFE5U-85F-6BG381C", 83_640, 83_640, 156, 208, 0, _DS02012, _ECP5_6, _ECP5_85K),
    )
}


DEVICES = (*TARGETS, *FAMILIES)
"""Names that `target_of` takes."""


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
        families = f"{', '.join(FAMILIES)} for the first device of a family"
        raise ValueError(f"unknown target {name!r}; the targets are {', '.join(TARGETS)}, or {families}")
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
    lines = [f"{'target':11}{'part':22}{'family':6}{heads}{'MHz':>6}"]
    for target in TARGETS.values():
        totals = "".join(f"{getattr(target, kind):11,d}" for kind in kinds)
        lines.append(f"{target.name:11}{target.part:22}{target.family.name:6}{totals}{target.max_mhz:6}")
    sizes = ", ".join(f"{family.bram_kbit} kbit ({family.name})" for family in FAMILIES.values())
    carries = ", ".join(f"{family.carry} ({family.name})" for family in FAMILIES.values())
    sources = dict.fromkeys(target.source for target in TARGETS.values())
    limits = dict.fromkeys((target.family.name, target.limits) for target in TARGETS.values())
    cells = f"Not a device: {ASIC}, the standard cells of a Liberty file, for halfulp synth and studies."
    return [
        *lines,
        "",
        f"BRAM: blocks of {sizes}.",
        f"Carry: {carries}.",
        "MHz: maximum clock of any design. By family:",
        *(f"  {family}: {limit}" for family, limit in limits),
        cells,
        "Sources:",
    ] + [
        f"  {source}: {', '.join(target.name for target in TARGETS.values() if target.source == source)}"
        for source in sources
    ]
