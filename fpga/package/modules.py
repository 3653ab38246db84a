"""Modules of a package as tools read them: constraints, IP-XACT, LibreLane, SiliconCompiler and Vivado's IP catalogue.

Sources: IEEE 1685-2014, and 1685-2009, which Vivado reads; AMD, Creating and Packaging Custom IP (UG1118); LibreLane,
Common flow variables; SiliconCompiler, Design API.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from halfulp.fpga.constraints import DEFAULT_CLOCK, constraints
from halfulp.tools.digests import version

from .streams import Channel

if TYPE_CHECKING:
    from .contents import Package, PackagedUnit

_DIALOGUE = """\
# Dialogue of the core, which has no parameters.
proc init_gui {IPINST} {
    ipgui::add_param $IPINST -name Component_Name
}
"""

IP_VERSION = "1.0"
"""Version of the cores for Vivado's catalogue, which takes two numbers."""

FAMILIES = (
    *("versal", "virtexuplusHBM", "virtexuplus", "kintexuplus", "artixuplus", "zynquplusRFSOC", "zynquplus"),
    *("virtexu", "kintexu", "virtex7", "kintex7", "artix7", "spartan7", "zynq"),
)
"""Families of AMD devices on which the cores are offered."""

ASIC_CLOCK = 100
"""Clock in MHz of modules in standard cells if the build has none, the default of LibreLane."""


@dataclass(frozen=True)
class PackagedModule:
    """Module of a package: a unit or its AXI4-Stream wrapper.

    Attributes
    ----------
    unit : PackagedUnit
    name : str
    ports : sequence of PackagedPort or VerilogPort
    channels : sequence of Channel
        Streams of operands, then that of results; none for a unit.
    paths : sequence of str
        Its Verilog.
    about : str
    clock, reset : str or None
        Ports of the clock and the reset.
    """

    unit: "PackagedUnit"
    name: str
    ports: Sequence[Any]
    channels: Sequence[Channel]
    paths: Sequence[str]
    about: str
    clock: str | None
    reset: str | None

    @property
    def mhz(self) -> float | None:
        """Clock that was asked for in MHz; None if none was."""
        clock: float | None = self.unit.component.build.clock
        return clock

    def constraints(self, default: float) -> str:
        """Return constraints that SDC and XDC have in common; the clock is a default one if the build has none."""
        mhz, reason = (default, "because the build has no clock") if self.mhz is None else (self.mhz, "of the build")
        head = f"# Constraints of {self.name}, written by halfulp {version('halfulp')}. Clock: {mhz:g} MHz, {reason}.\n"
        return head + constraints(self.ports, self.clock, self.reset if self.unit.async_reset else None, mhz)


def modules(package: "Package") -> list[PackagedModule]:
    """Return each unit of a package and its AXI4-Stream wrapper."""
    found = []
    for unit in package.units:
        stream, paths = unit.stream, package.netlist_files(unit)
        clock, reset = unit.control("clk"), unit.control("rst")
        own = (clock.name if clock else None, reset.name if reset else None)
        found.append(PackagedModule(unit, unit.module, unit.ports, [], paths, unit.text, *own))
        names = ("aclk", "aresetn") if stream.clocked else (None, None)
        channels, paths = [*stream.sources, stream.result], [*paths, f"rtl/{stream.name}.v"]
        found.append(PackagedModule(unit, stream.name, stream.ports, channels, paths, stream.title, *names))
    return found


def module_files(package: "Package", rtl: Mapping[str, str]) -> dict[str, str]:
    """Return the files that tools read about the modules of a package, by path.

    Parameters
    ----------
    package : Package
    rtl : mapping of str to str
        Verilog of the package by path.
    """
    files, found = {}, modules(package)
    for module in found:
        for suffix in ("sdc", "xdc"):
            files[f"constraints/{module.name}.{suffix}"] = module.constraints(DEFAULT_CLOCK)
        files[f"ipxact/{module.name}.xml"] = package.render("component.xml.j2", module=module)
        files[f"asic/{module.name}/{module.name}.sdc"] = module.constraints(ASIC_CLOCK)
        files[f"asic/{module.name}/config.yaml"] = package.render("librelane.yaml.j2", module=module)
        if module.channels:
            files |= _core(package, module, rtl)
    files[f"asic/{package.name}_siliconcompiler.py"] = package.render("siliconcompiler.py.j2", modules=found)
    return files


def _core(package: "Package", module: PackagedModule, rtl: Mapping[str, str]) -> dict[str, str]:
    """Return the files of a stream for Vivado's IP catalogue by path, with its Verilog, as cores are copied alone."""
    folder, dialogue = f"vivado/{module.name}", f"xgui/{module.name}_v{IP_VERSION.replace('.', '_')}.tcl"
    sources = {path.replace("rtl/", "src/"): rtl[path] for path in module.paths}
    # Streams without registers may have both ports too.
    ports = {port.name for port in module.ports}
    clock, reset = (name if name in ports else None for name in ("aclk", "aresetn"))
    known: dict[str, Any] = {
        "clock": clock,
        "reset": reset,
        "ip_version": IP_VERSION,
        "families": FAMILIES,
        "sources": list(sources),
        "dialogue": dialogue,
    }
    core = {"component.xml": package.render("vivado.xml.j2", module=module, **known), dialogue: _DIALOGUE} | sources
    return {f"{folder}/{path}": text for path, text in core.items()}
