"""Devices that units are synthesised for."""

from dataclasses import dataclass, replace
from typing import Any

NONE = "(?!)"
"""No type of cell; a regular expression that nothing matches."""


@dataclass(frozen=True)
class Family:
    """Devices that Yosys makes the same cells for.

    Parameters
    ----------
    name : str
    command : str
        Yosys' command for them. Buffers and clock nets belong to the design around a unit, so it makes none.
    memories : str
        Label of the step of that command that maps memories.
    lut, ff, carry, mux, dsp, bram, uram, memory : str
        Which types of cells are what, as regular expressions.
    carry_bits : int
        Bits of the carry chain cell that the device has.
    half_carry, half_bram : str
        Cells of half the size, of which two make one.
    luts_per_carry : int
        Lookup tables that are next to one such cell.
    carry_takes : int
        How many of these it takes away.
    bram_kbit : int
        Size of a block memory, parity included.
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
    carry_bits: int
    luts_per_carry: int
    bram_kbit: int
    half_carry: str = NONE
    half_bram: str = NONE
    uram: str = NONE
    carry_takes: int = 0

    def recipe(self, dsp: bool = False) -> str:
        """Yosys' command, with or without DSP blocks."""
        return self.command if dsp else f"{self.command} -nodsp"

    def job(self, dsp: bool = False) -> dict[str, Any]:
        """The family as `halfulp.fpga.synth.yosys` takes it."""
        return {"command": self.recipe(dsp), "memories": self.memories, "ff": self.ff}


def _xilinx(name: str, **own: object) -> Family:
    return Family(
        name=name,
        command=f"synth_xilinx -family {name} -flatten -noiopad -noclkbuf",
        memories="map_memory",
        lut="LUT[1-6]",
        ff="FD.*",
        mux="MUXF[789]",
        dsp="DSP.*",
        bram="RAMB36.*",
        half_bram="RAMB18.*",
        uram="URAM.*",
        memory="SRL.*|RAM[0-9].*",
        bram_kbit=36,
        **own,  # type: ignore[arg-type]
    )


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        # One carry chain of a slice beside its eight tables (UG574), or four (UG474).
        _xilinx("xcup", carry="CARRY8", half_carry="CARRY4", carry_bits=8, luts_per_carry=8),
        _xilinx("xc7", carry="CARRY4", carry_bits=4, luts_per_carry=4),
        # A slice is two tables, which are the adder of its carry chain where it has one (FPGA-DS-02012, 2.2).
        Family(
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
            carry_bits=2,
            luts_per_carry=2,
            carry_takes=2,
            bram_kbit=18,
        ),
    )
}


@dataclass(frozen=True)
class Target:
    """A device.

    Parameters
    ----------
    name : str
        What people call it, or the board or machine that it is on.
    family : Family
    part : str
        What the vendor's tools call it.
    lut, ff, dsp, bram, uram : int
        Lookup tables, flip-flops, DSP blocks or multipliers, block memories and large memories that it has. A shell
        that a board's maker puts beside the design takes of them.
    source : str
        Where these figures are from.
    nextpnr : tuple of str
        What tells nextpnr the device, where it can be placed and routed for here.
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
        """Carry chain cells that it has: one in every slice."""
        return self.lut // self.family.luts_per_carry

    @property
    def recipe(self) -> str:
        """Yosys' command where there is to be no DSP block."""
        return self.family.recipe()


def _vu9p(name: str, part: str) -> Target:
    return Target(
        name=name,
        family=FAMILIES["xcup"],
        part=part,
        lut=1_182_240,
        ff=2_364_480,
        dsp=6_840,
        bram=2_160,
        uram=960,
        source="AMD, UltraScale Architecture and Product Data Sheet: Overview (DS890)",
    )


_U200_U250 = "AMD, Alveo U200 and U250 Data Center Accelerator Cards Data Sheet (DS962)"

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        _vu9p("vu9p", "xcvu9p-flga2104-2L-e"),
        Target(
            name="u55c",
            family=FAMILIES["xcup"],
            part="xcu55c-fsvh2892-2L-e",
            lut=1_303_680,
            ff=2_607_360,
            dsp=9_024,
            bram=2_016,
            uram=960,
            source="AMD, Alveo U55C Data Center Accelerator Cards Data Sheet (DS978)",
        ),
        Target(
            name="u250",
            family=FAMILIES["xcup"],
            part="xcu250-figd2104-2L-e",
            lut=1_728_000,
            ff=3_456_000,
            dsp=12_288,
            bram=2_688,
            uram=1_280,
            source=_U200_U250,
        ),
        Target(
            name="u280",
            family=FAMILIES["xcup"],
            part="xcu280-fsvh2892-2L-e",
            lut=1_303_680,
            ff=2_607_360,
            dsp=9_024,
            bram=2_016,
            uram=960,
            source="AMD, Alveo U280 Data Center Accelerator Card Data Sheet (DS963)",
        ),
        replace(_vu9p("u200", "xcu200-fsgd2104-2-e"), source=_U200_U250),
        _vu9p("vcu1525", "xcvu9p-fsgd2104-2L-e"),
        _vu9p("vcu118", "xcvu9p-flga2104-2L-e"),
        _vu9p("aws-f1", "xcvu9p-flgb2104-2-i"),
        Target(
            name="artix100t",
            family=FAMILIES["xc7"],
            part="xc7a100tcsg324-1",
            lut=63_400,
            ff=126_800,
            dsp=240,
            bram=135,
            uram=0,
            source="AMD, 7 Series FPGAs Data Sheet: Overview (DS180)",
        ),
        Target(
            name="ecp5-85k",
            family=FAMILIES["ecp5"],
            part="LFE5U-85F-6BG381C",
            lut=83_640,
            ff=83_640,
            dsp=156,
            bram=208,
            uram=0,
            source="Lattice, ECP5 and ECP5-5G Family Data Sheet (FPGA-DS-02012)",
            nextpnr=("--85k", "--package", "CABGA381", "--speed", "6"),
        ),
    )
}


def target_of(name: str) -> Target:
    """The device of a name.

    Raises
    ------
    ValueError
        If there is none.
    """
    if name not in TARGETS:
        raise ValueError(f"unknown target {name!r}; the targets are {', '.join(TARGETS)}")
    return TARGETS[name]


def check_route(target: Target) -> Target:
    """The device, refused unless it can be placed and routed for here.

    Raises
    ------
    ValueError
        If the vendor's tools would be needed.
    """
    if not target.nextpnr:
        able = ", ".join(name for name, other in TARGETS.items() if other.nextpnr)
        raise ValueError(f"{target.name} cannot be placed and routed for without its vendor's tools; {able} can")
    return target


def listing() -> list[str]:
    """The devices, as lines."""
    kinds = ("lut", "ff", "carry", "dsp", "bram", "uram")
    heads = "".join(f"{kind.upper():>11}" for kind in kinds)
    lines = [f"{'target':11}{'part':22}{'family':6}{heads}"]
    for target in TARGETS.values():
        totals = "".join(f"{getattr(target, kind):11,d}" for kind in kinds)
        lines.append(f"{target.name:11}{target.part:22}{target.family.name:6}{totals}")
    sizes = ", ".join(f"{family.bram_kbit} kbit ({family.name})" for family in FAMILIES.values())
    carries = ", ".join(f"{family.carry} ({family.name})" for family in FAMILIES.values())
    sources = dict.fromkeys(target.source for target in TARGETS.values())
    return [*lines, "", f"BRAM: blocks of {sizes}.", f"Carry: {carries}.", "Sources:"] + [
        f"  {source}: {', '.join(target.name for target in TARGETS.values() if target.source == source)}"
        for source in sources
    ]
