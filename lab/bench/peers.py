"""Cost of units of other projects, whose Verilog or VHDL is synthesised with the settings of this library's units.

``peers.csv`` has the recorded figures. Those with a version were measured by their ``command``. The others are older
than this command: a program not in the repository measured them, with the same settings of Yosys. Their ``command``
is the form that measures such a unit now, and has not reproduced the figures. ``not recorded``: not written down when
the unit was measured.
"""

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
from amaranth.hdl import ClockSignal, Elaboratable, Instance
from amaranth.hdl import Module as Design
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from halfulp.boards.targets import Target
from halfulp.fpga.synth.measure import Cost, Module, measure_modules
from halfulp.fpga.synth.registered import Registered
from halfulp.fpga.synth.route import frequencies
from halfulp.tools.errors import ToolError
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.paths import machine_errors, scratch
from halfulp.tools.processes import Command, run_all
from halfulp.tools.progress import Progress, silent
from halfulp.tools.tables import Table

VERILOG, SYSTEM_VERILOG, VHDL = (".v",), (".sv", ".v"), (".vhd", ".vhdl")
"""Endings of files by language."""

ELABORATE = """
import sys
from pyosys import libyosys
design = libyosys.Design()
libyosys.run_pass("read_slang -f files.f", design)
libyosys.run_pass(f"hierarchy -check -top {sys.argv[1]}", design)
libyosys.run_pass("proc", design)
libyosys.run_pass("write_verilog -noattr design.v", design)
"""
"""Program that writes SystemVerilog as one module of Verilog."""

PORTS = """
import sys
from pyosys import libyosys
design = libyosys.Design()
libyosys.run_pass("read_verilog design.v", design)
libyosys.run_pass(f"hierarchy -top {sys.argv[1]}", design)
libyosys.run_pass("proc", design)
libyosys.run_pass("write_json ports.json", design)
"""
"""Program that writes the modules of ``design.v`` with their ports."""


class Peer(wiring.Component):
    """Module of another project, as a component.

    Parameters
    ----------
    name : str
        Name of the module.
    ports : dict of str to tuple of str and int
        Direction and width of each port, without the clock.
    clock : str, optional
        Port of the clock.
    """

    def __init__(self, name: str, ports: dict[str, tuple[str, int]], clock: str | None = None) -> None:
        self.name, self.clock = f"{name}_peer", clock
        self._module, self._ports = name, ports
        super().__init__({port: (In if way == "input" else Out)(width) for port, (way, width) in ports.items()})

    def elaborate(self, platform: object) -> Elaboratable:
        """Instantiate the module."""
        m = Design()
        pins = {f"{way[0]}_{port}": getattr(self, port) for port, (way, _) in self._ports.items()}
        clock = {f"i_{self.clock}": ClockSignal()} if self.clock else {}
        m.submodules.peer = Instance(self._module, **pins, **clock)
        return m


def read(files: Sequence[Path], top: str, include: Sequence[Path] = ()) -> str:
    """Return the Verilog of source files; ValueError for other files, ToolError if a converter is missing or fails."""
    endings: tuple[str, ...]
    for endings in (VERILOG, SYSTEM_VERILOG, VHDL):
        if all(file.suffix in endings for file in files):
            break
    else:
        names = ", ".join(file.name for file in files)
        raise ValueError(f"expected files of one language, .v, .sv or .vhd, not {names}")
    with machine_errors("a source file"):
        texts = [file.read_text() for file in files]
    if endings == VERILOG:
        return "\n".join(texts)
    if endings == VHDL and not shutil.which("ghdl"):
        raise ToolError(f"ghdl is not installed; it converts {files[0].name} to Verilog")
    paths = [str(file.resolve()) for file in files]
    with scratch("peer") as folder:
        if endings == VHDL:
            words = ["ghdl", "--synth", "--std=08", "--out=verilog", *paths, "-e", top]
            run_all([Command("ghdl", words, folder / "design.v", cwd=folder)])
        else:
            folders = [f"+incdir+{place.resolve()}" for place in include]
            (folder / "files.f").write_text("\n".join(["--top", top, *folders, *paths]))
            words = [sys.executable, "-c", ELABORATE, top]
            run_all([Command(f"Yosys on {top}", words, folder / "tool.log", cwd=folder)])
        return (folder / "design.v").read_text()


def ports(verilog: str, top: str) -> dict[str, tuple[str, int]]:
    """Return direction and width of each port; ValueError if no module has this name."""
    with scratch("peer") as folder, machine_errors("the files of Yosys"):
        (folder / "design.v").write_text(verilog)
        run_all([Command(f"Yosys on {top}", [sys.executable, "-c", PORTS, top], folder / "tool.log", cwd=folder)])
        described = json.loads((folder / "ports.json").read_text())["modules"][top]["ports"]
    return {name: (port["direction"], len(port["bits"])) for name, port in described.items()}


def measure(  # noqa: PLR0913 - the options of `halfulp report peers`
    files: Sequence[Path],
    top: str,
    target: Target,
    *,
    include: Sequence[Path] = (),
    clock: str | None = None,
    route: bool = False,
    progress: Progress = silent,
    pool: JobPool = LOCAL,
) -> Cost:
    """Return the cost of a module and, if ``route`` is true, its clock between registers at all ports.

    Parameters
    ----------
    files : sequence of Path
        Its sources, all in one language.
    top : str
        Name of the module; its parameters have their default values.
    target : Target
    include : sequence of Path
        Folders of included files of SystemVerilog.
    clock : str, optional
        Port of its clock, for modules with registers.
    """
    verilog = read(files, top, include)
    if f"module {top}" not in verilog:
        raise ValueError(f"{', '.join(file.name for file in files)} has no module {top}")
    progress.total("synthesis", 1)
    (cost,) = measure_modules([Module(verilog, top)], target, progress, pool)
    if not route:
        return cost
    port_of = ports(verilog, top)
    if clock is not None and clock not in port_of:
        raise ValueError(f"{top} has no port {clock}; it has {', '.join(port_of)}")
    inner = Peer(top, {name: port for name, port in port_of.items() if name != clock}, clock)
    around = Module.of(Registered(inner))
    progress.total("place and route", 1)
    (mhz,) = frequencies([replace(around, verilog=f"{around.verilog}\n{verilog}")], target, progress, pool)
    return replace(cost, fmax=mhz)


def table(top: str, cost: Cost, target: Target) -> Table:
    """Return a table with the columns of ``peers.csv`` that are measured."""
    row = {"module": top, "target": target.name, "LUT": cost.lut, "FF": cost.ff, "path": cost.path}
    row |= {} if cost.fmax is None else {"MHz": cost.fmax}
    notes = [
        f"{Cost.origin(target)}. MHz: after place and route, between registers at all ports, which are not counted."
    ]
    return Table(f"Cost of {top}", pd.DataFrame([row]), {"MHz": ".1f"}, notes)
