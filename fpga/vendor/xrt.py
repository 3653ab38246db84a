"""Input files of the vendor tools that package a module as a kernel and link it for a card.

Sources: AMD, Vitis Reference Guide (UG1702): RTL Kernel XML File, package_xo, v++ --connectivity and --clock; Data
Center Acceleration Using Vitis (UG1700): Packaging RTL Kernels; Vivado Design Suite Tcl Command Reference (UG835).
"""

from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as Xml

from halfulp.boards.board import Board
from halfulp.fpga.kernel.layout import (
    ARGUMENTS,
    CLOCK,
    CONTROL,
    CONTROL_ADDRESS_BITS,
    CONTROL_DATA_BITS,
    DATA_BITS,
    HOST,
    MASTERS,
    PATIENCE,
    element_bytes,
    entry_bytes,
    xclbin_name,
)
from halfulp.hdl.specs import RunningSumSpec, Tiling

from .vivado import script, word

KERNEL_XML, PACKAGE, LINK = "kernel.xml", "package.tcl", "link.cfg"

CPP_HOST, TILE = "host.cpp", "tile.h"
"""Host program in C++, which is equal for all kernels, and its constants."""


def kernel_xml(name: str) -> str:
    """Return the XML description of a kernel for the linker and the run-time system."""
    root = Xml.Element("root", versionMajor="1", versionMinor="6")
    top = Xml.SubElement(
        root,
        "kernel",
        name=name,
        language="ip_c",
        vlnv=f"halfulp:kernel:{name}:1.0",
        attributes="",
        preferredWorkGroupSizeMultiple="0",
        workGroupSize="1",
        interrupt="true",
        hwControlProtocol="ap_ctrl_hs",
    )
    ports = Xml.SubElement(top, "ports")
    common = {"portType": "addressable", "base": "0x0"}
    width = {"range": hex(1 << CONTROL_ADDRESS_BITS), "dataWidth": str(CONTROL_DATA_BITS)}
    Xml.SubElement(ports, "port", {"name": CONTROL, "mode": "slave"} | width | common)
    for master in MASTERS:
        width = {"range": "0xFFFFFFFFFFFFFFFF", "dataWidth": str(DATA_BITS)}
        Xml.SubElement(ports, "port", {"name": master, "mode": "master"} | width | common)
    args = Xml.SubElement(top, "args")
    for number, argument in enumerate(ARGUMENTS):
        Xml.SubElement(
            args,
            "arg",
            name=argument.name,
            addressQualifier="1" if argument.port else "0",
            id=str(number),
            port=argument.port or CONTROL,
            size=hex(argument.bits // 8),
            offset=hex(argument.offset),
            type="void*" if argument.port else "uint",
            hostOffset="0x0",
            hostSize=hex(argument.bits // 8),
        )
    Xml.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{Xml.tostring(root, encoding="unicode")}\n'


def package_tcl(name: str, verilog: str, part: str) -> str:
    """Return the Vivado script that packages Verilog as a kernel ``NAME.xo``, in the folder of the script."""
    buses = (CONTROL, *MASTERS)
    associate = "\n".join(
        f"    ipx::associate_bus_interfaces -busif {word(bus)} -clock {CLOCK} [ipx::current_core]" for bus in buses
    )
    body = f"""\
    set work [file join $here packaged]
    create_project -force -part {word(part)} project [file join $work project]
    add_files -norecurse [list [file join $here {word(verilog)}]]
    set_property top {word(name)} [current_fileset]
    update_compile_order -fileset sources_1
    ipx::package_project -root_dir [file join $work core] -vendor halfulp -library kernel -taxonomy /KernelIP \\
        -import_files
    set_property name {word(name)} [ipx::current_core]
    set_property version 1.0 [ipx::current_core]
    set_property sdx_kernel true [ipx::current_core]
    set_property sdx_kernel_type rtl [ipx::current_core]
{associate}
    ipx::create_xgui_files [ipx::current_core]
    ipx::update_checksums [ipx::current_core]
    ipx::save_core [ipx::current_core]
    close_project
    package_xo -force -kernel_name {word(name)} -kernel_xml [file join $here {KERNEL_XML}] \\
        -ip_directory [file join $work core] -xo_path [file join $here {word(name + ".xo")}]"""
    return script("Vivado: the Verilog as an IP core, and the core as a kernel for the linker v++.", PACKAGE, body)


@dataclass(frozen=True)
class Place:
    """Placement of a core: instance name, index of the die, and memory bank of each port."""

    name: str
    slr: int
    banks: tuple[int, ...]


def places(name: str, board: Board, cores: int) -> list[Place]:
    """Return the placement of the cores, each on the die with the fewest cores per lookup table.

    Each port has its own HBM bank. Ports share DDR banks: first those next to the die of the core, then those with the
    fewest ports.
    """
    memory = board.memory
    check_ports(board, cores)
    on_die = [0] * len(board.slrs)
    taken = [0] * memory.banks
    placed = []
    for core in range(cores):
        slr = min(range(len(on_die)), key=lambda die: ((on_die[die] + 1) / board.slrs[die].lut, die))
        on_die[slr] += 1
        banks = []
        for _port in MASTERS:
            free = [bank for bank in range(memory.banks) if taken[bank] < memory.masters]
            far = {bank: bool(memory.slrs) and memory.slrs[bank] != slr for bank in free}
            bank = min(free, key=lambda bank: (memory.masters > 1 and far[bank], taken[bank], bank))
            taken[bank] += 1
            banks.append(bank)
        placed.append(Place(f"{name}_{core + 1}", slr, tuple(banks)))
    return placed


def check_ports(board: Board, cores: int) -> None:
    """Check that the memory has enough ports for some cores; ValueError otherwise."""
    ports, memory = len(MASTERS), board.memory
    if cores < 1:
        raise ValueError(f"{cores} cores cannot be linked; expected 1 or more")
    if cores > board.cores(ports):
        raise ValueError(
            f"{cores} cores need {cores * ports} memory ports, and {board.name} has {memory.ports} of {memory.tag}; "
            f"expected at most {board.cores(ports)} cores"
        )


def link_cfg(name: str, board: Board, cores: int, mhz: float) -> str:
    """Return the configuration for ``v++ --link --config``: instances, memory banks, dies and clock."""
    placed = places(name, board, cores)
    tag = board.memory.tag
    lines = ["[connectivity]", f"nk={name}:{cores}:{'.'.join(place.name for place in placed)}"]
    for place in placed:
        lines += [f"sp={place.name}.{port}:{tag}[{bank}]" for port, bank in zip(MASTERS, place.banks, strict=True)]
    lines += [f"slr={place.name}:SLR{place.slr}" for place in placed]
    lines += ["", "[clock]"]
    lines += [f"freqHz={round(mhz * 1e6)}:{place.name}.{CLOCK}" for place in placed]
    return "\n".join(lines) + "\n"


def host_cpp() -> str:
    """Return the host program in C++."""
    return Path(__file__).with_name(CPP_HOST).read_text()


def tile_h(name: str, cores: int, mac: RunningSumSpec, tiling: Tiling) -> str:
    """Return the constants of the host program in C++."""
    sizes = {
        "CORES": (cores, "instances of the kernel"),
        "ROWS": (tiling.height, "rows of a tile"),
        "A_BYTES": (entry_bytes(mac, "a"), "bytes of an entry of a"),
        "B_BYTES": (entry_bytes(mac, "b"), "bytes of an entry of b"),
        "C_BYTES": (element_bytes(mac.o.width), "bytes of an entry of c"),
        "BEAT": (DATA_BITS // 8, "bytes of a beat of memory"),
        "PATIENCE": (PATIENCE, "timeout of a run in milliseconds"),
    }
    lines = [f"constexpr unsigned {size} = {value};  // {about}" for size, (value, about) in sizes.items()]
    return f"""\
// Constants of {CPP_HOST} for {mac}.
#pragma once

namespace tile {{

constexpr const char* KERNEL = "{name}";
{chr(10).join(lines)}

}}  // namespace tile
"""


def makefile(name: str, board: Board, source: str) -> str:
    """Return a Makefile: ``make`` packages and links the kernel, ``make run`` runs the host program."""
    xclbin = xclbin_name(name, "$(TARGET)")
    return f"""\
# make            build the kernel and link it for the card: needs Vivado, Vitis and the platform
# make run        run a matrix product on the card and check it: needs XRT, and halfulp in PYTHON
# make host       compile host.cpp, which multiplies matrices in files and needs XRT only
# make tile       place and route the array without ports by Vivado, out of context
# TARGET=hw_emu   use the vendor's emulator instead of the card

PLATFORM ?= {board.platform}
TARGET ?= hw
PYTHON ?= python3
ARGS ?=
XRT_CFLAGS ?= -I$(XILINX_XRT)/include
XRT_LIBS ?= -L$(XILINX_XRT)/lib -lxrt_coreutil -pthread

.PHONY: all run tile clean
all: {xclbin}

{name}.xo: {PACKAGE} {KERNEL_XML} {source}
	vivado -mode batch -nojournal -log package.log -source {PACKAGE}

{xclbin}: {name}.xo {LINK}
	v++ --link --target $(TARGET) --platform $(PLATFORM) --config {LINK} --temp_dir linked -o $@ {name}.xo

run: {xclbin}
	$(PYTHON) {HOST} $< $(ARGS)

host: {CPP_HOST} {TILE}
	$(CXX) -std=c++17 -O2 $(XRT_CFLAGS) -o $@ {CPP_HOST} $(XRT_LIBS)

tile:
	vivado -mode batch -nojournal -log tile.log -source tile/flow.tcl

clean:
	rm -rf packaged linked host {name}.xo {name}.*.xclbin* *.log
"""
