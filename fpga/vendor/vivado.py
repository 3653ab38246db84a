"""Vivado flow: scripts, and a reader of the reports.

Sources: AMD, Vivado Design Suite Tcl Command Reference Guide (UG835); Using Constraints (UG903).
"""

import functools
import json
import math
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from msgspec import convert

from halfulp.boards.targets import Target, target_of
from halfulp.fpga.constraints import port_group
from halfulp.fpga.synth.measure import Cost, Module, Program, results
from halfulp.sim.build import verilog
from halfulp.tools.errors import ToolError
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.progress import Progress, silent
from halfulp.units.verilog import default_name, verilog_ports

FLOW = "flow.tcl"
UTILIZATION, TIMING, POWER = REPORTS = ("utilization.rpt", "timing.rpt", "power.rpt")
CHECKPOINT = "routed.dcp"

TAIL = 12
"""Lines of the log in the error when Vivado fails."""


@dataclass(frozen=True)
class Timing:
    """Figures of the timing summary.

    Attributes
    ----------
    period : float
        Period of the requested clock, in ns.
    slack : float
        Slack of the longest path, in ns; negative if the clock was too fast.
    path : int
        Cells on that path.
    """

    period: float
    slack: float
    path: int

    @property
    def fmax(self) -> float:
        """Maximum clock in MHz of the longest path, without limits of pulse widths."""
        return 1000 / (self.period - self.slack)


@dataclass(frozen=True)
class Power:
    """Figures of the power report, in W. A value below 0.001 is read as 0.001."""

    total: float
    dynamic: float
    static: float


@dataclass(frozen=True)
class Routed:
    """Cost, timing and power of a component after place and route, at Vivado's default switching rates.

    ``cost.lut`` counts lookup tables used as logic; one may hold two small functions.
    """

    cost: Cost
    timing: Timing
    power: Power


# Scripts -----------------------------------------------------------------------------------------------------------


def knows(target: Target) -> bool:
    """Return True if Vivado supports a device."""
    return target.part.startswith("xc")


def scripts(
    component: Any,
    target: Target | str,
    *,
    clock_mhz: float,
    dsp: bool = True,
    name: str | None = None,
    reset: str = "sync",
) -> dict[str, str]:
    """Return the input files of ``vivado -mode batch -source flow.tcl`` by name; ValueError as for `check`.

    Parameters
    ----------
    component : wiring.Component
        A unit or any other component.
    target : Target or str
        A device that Vivado supports.
    clock_mhz : float
        Requested clock; the flow optimises until it is reached.
    dsp : bool
        Multipliers may become DSP blocks.
    name : str, optional
        Name of the top module; default: `default_name` of `halfulp.units.verilog`.
    reset : str
        Style of the reset; see `halfulp.units.verilog.emit`.
    """
    target = target_of(target)
    check(target, clock_mhz)
    # Vivado's exit code tells users of the folder that the clock is missed; `implement` reads it from the reports.
    top = default_name(component, reset=reset) if name is None else name
    return _scripts(verilog(component, name, reset=reset), top, target.part, clock_mhz, dsp, missed=MISSED)


def check(target: Target, clock_mhz: float) -> None:
    """Check that Vivado supports a device and that the clock is in range; ValueError otherwise."""
    if not knows(target):
        raise ValueError(f"Vivado does not support {target.name}; use an AMD device")
    target.check_clock(clock_mhz)


MISSED = """
    set paths [get_timing_paths -delay_type max -max_paths 1]
    if {[llength $paths] && [get_property SLACK [lindex $paths 0]] < 0} {
        error "the requested clock is missed by [expr {-[get_property SLACK [lindex $paths 0]]}] ns; see timing.rpt"
    }"""
"""End of a flow that fails if the requested clock is missed."""


def _scripts(text: str, top: str, part: str, clock_mhz: float, dsp: bool, missed: str = "") -> dict[str, str]:
    stem = re.sub(r"[^\w.-]", "_", top)
    return {
        f"{stem}.v": text,
        f"{stem}.xdc": _constraints(text, top, f"{1000 / clock_mhz:.3f}"),
        FLOW: _flow(stem, top, part, dsp, missed),
    }


def word(text: str) -> str:
    """Quote a text as one word of Tcl, without substitution."""
    if re.fullmatch(r"[\w./:+-]+", text, re.ASCII):
        return text
    return '"' + re.sub(r'([\\"$\[\]{}])', r"\\\1", text).replace("\n", "\\n") + '"'


def _flow(stem: str, top: str, part: str, dsp: bool, missed: str) -> str:
    limit = "" if dsp else " -max_dsp 0"

    # The command expects a list of files; without [list], a name with a space would be two files.
    def read(suffix: str) -> str:
        return f"[list [file join $here {word(stem + suffix)}]]"

    def to(file: str) -> str:
        return f"[file join $here {file}]"

    body = f"""\
    read_verilog {read(".v")}
    read_xdc {read(".xdc")}
    synth_design -top {word(top)} -part {word(part)} -mode out_of_context -flatten_hierarchy rebuilt{limit}
    opt_design
    place_design
    phys_opt_design
    route_design
    report_utilization -file {to(UTILIZATION)}
    report_timing_summary -file {to(TIMING)}
    report_power -file {to(POWER)}
    write_checkpoint -force {to(CHECKPOINT)}{missed}"""
    return script("Vivado without a project: synthesis out of context, place and route, reports.", FLOW, body)


def script(purpose: str, file: str, body: str) -> str:
    """Return a Tcl script for Vivado; ``$here`` is its folder, and it ends with an exit code."""
    return f"""\
# {purpose} To run it:
#   vivado -mode batch -source {file}

proc flow {{here}} {{
{body}
}}

# The files are in the folder of this script, not in the working folder.
if {{[catch {{flow [file dirname [file normalize [info script]]]}} message options]}} {{
    puts stderr "ERROR: $message"
    puts stderr [dict get $options -errorinfo]
    exit 1
}}
exit 0
"""


def _constraints(text: str, top: str, period: str) -> str:
    """Return constraints: one clock, and a maximum delay of one period for paths from inputs or to outputs.

    Without these delays Vivado would time only paths between registers, and a unit may have none. Paths at ports are
    timed without the delay of the clock network, which is not part of a module.
    """
    declared = verilog_ports(text, top)
    clocked = "clk" in (port.name for port in declared)
    inputs = [port for port in declared if port.direction == "input" and port.name != "clk"]
    outputs = [port for port in declared if port.direction == "output"]

    if clocked:
        lines = [f"create_clock -name clk -period {period} [get_ports clk]"]
        if inputs:
            lines.append(f"set_max_delay -datapath_only -from {port_group(inputs)} {period}")
        if outputs:
            lines.append(f"set_max_delay -datapath_only -from [get_clocks clk] -to {port_group(outputs)} {period}")
    else:
        # A virtual clock, so that the reports have a period.
        lines = [f"create_clock -name virtual -period {period}"]
        if inputs and outputs:
            lines.append(f"set_max_delay -from {port_group(inputs)} -to {port_group(outputs)} {period}")
    return "\n".join(lines) + "\n"


# Reports -----------------------------------------------------------------------------------------------------------


def utilization(text: str) -> dict[str, Any]:
    """Parse ``report_utilization`` to fields of `Cost`, without ``path`` and ``fmax``; ToolError if a line lacks."""
    sites, cells = _tables(text)

    def used(site: str) -> float:
        if site not in sites:
            raise ToolError(f"{UTILIZATION} has no line {site!r}")
        return _number(sites[site], site, UTILIZATION)

    if "Slice LUTs" in sites:
        # The 7 series lists carry chains only in the table of primitives.
        if "FDRE" not in cells and not any(cell.startswith("LUT") for cell in cells):
            raise ToolError(f"{UTILIZATION} has no table of primitives with 'CARRY4'")
        fabric, muxes, large = "Slice", ["F7 Muxes", "F8 Muxes"], 0
        carry = math.ceil(_number(cells.get("CARRY4", "0"), "CARRY4", UTILIZATION) / 2)
    else:
        fabric, muxes, large = "CLB", ["F7 Muxes", "F8 Muxes", "F9 Muxes"], int(used("URAM"))
        used("CLB LUTs")
        carry = int(used("CARRY8"))
    return {
        "lut": int(used("LUT as Logic")),
        "luts": tuple(
            int(_number(cells.get(f"LUT{inputs}", "0"), f"LUT{inputs}", UTILIZATION)) for inputs in range(1, 7)
        ),
        "ff": int(used(f"{fabric} Registers")),
        "carry": carry,
        "mux": sum(int(used(mux)) for mux in muxes),
        "dsp": int(used("DSPs")),
        # An odd half of a tile occupies a whole one.
        "bram": math.ceil(used("Block RAM Tile")),
        "uram": large,
        "memory": int(used("LUT as Memory")),
    }


def timing(text: str) -> Timing:
    """Parse clock, worst slack and longest path from ``report_timing_summary``; ToolError if one is missing."""
    lines = text.splitlines()
    slack = _number(_below(lines, r"\s*WNS\(ns\)\s", "WNS(ns)")[0].split()[0], "WNS(ns)", TIMING)
    clocks = [
        float(match[1])
        for line in _below(lines, r"Clock\s+Waveform\(ns\)", "Clock  Waveform(ns)")
        if (match := re.match(r"\s*\S+\s+\{[^}]*\}\s+([\d.]+)\s", line))
    ]
    if len(clocks) != 1:
        raise ToolError(f"{TIMING} has {len(clocks)} clocks below 'Clock  Waveform(ns)'; expected 1")
    paths = [
        (float(path[1]), path[0])
        for path in re.finditer(r"^Slack \(\w+\) :\s+(-?[\d.]+)ns.*?(?=^Slack|\Z)", text, re.M | re.S)
        if re.search(r"Path Type:.*\bMax at\b", path[0])
    ]
    if not paths:
        raise ToolError(f"{TIMING} has no line 'Slack' of a longest path")
    levels = re.search(r"Logic Levels:\s+(\d+)", min(paths)[1])
    if levels is None:
        raise ToolError(f"{TIMING} has no line 'Logic Levels' of the longest path")
    if slack >= clocks[0]:
        raise ToolError(f"{TIMING} has a slack of {slack} ns below 'WNS(ns)', but the period is {clocks[0]} ns")
    return Timing(period=clocks[0], slack=slack, path=int(levels[1]))


def power(text: str) -> Power:
    """Parse total, dynamic and static power from ``report_power``; ToolError if a line is missing."""

    def watts(line: str) -> float:
        match = re.search(rf"^\|\s*{re.escape(line)}\s*\|\s*([^|]*?)\s*\|", text, re.M)
        if match is None:
            raise ToolError(f"{POWER} has no line {line!r}")
        return _number(match[1].lstrip("<").split(" ")[0], line, POWER)

    return Power(
        total=watts("Total On-Chip Power (W)"), dynamic=watts("Dynamic (W)"), static=watts("Device Static (W)")
    )


def _tables(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """Parse the numbers of used sites and of used cells, by type; the first line of a type counts."""
    tables: dict[str, dict[str, str]] = {"Site Type": {}, "Ref Name": {}}
    into: dict[str, str] = {}
    for line in text.splitlines():
        first, second = ([cell.strip() for cell in line.split("|")[1:-1]] + ["", ""])[:2]
        if second == "Used" or first in tables:
            # A table with other columns has no counts of used cells.
            into = tables.get(first, {}) if second == "Used" else {}
        elif first:
            into.setdefault(first.rstrip("*"), second)
    return tables["Site Type"], tables["Ref Name"]


def _below(lines: list[str], head: str, name: str) -> list[str]:
    """Return the rows of a table without borders, below its head and a line of dashes."""
    for number, line in enumerate(lines):
        if re.match(head, line):
            rows = lines[number + 2 :]
            end = next((count for count, row in enumerate(rows) if not row.strip()), len(rows))
            if end:
                return rows[:end]
    raise ToolError(f"{TIMING} has no line {name!r} with a row below it")


def _number(text: str, line: str, file: str) -> float:
    if not re.fullmatch(r"-?\d+(\.\d+)?", text):
        raise ToolError(f"{file} has {text!r} in the line {line!r}; expected a number")
    return float(text)


# The program -------------------------------------------------------------------------------------------------------


def implement(
    modules: Iterable[Module],
    target: Target,
    progress: Progress = silent,
    *,
    clock_mhz: float,
    pool: JobPool = LOCAL,
) -> list[Routed]:
    """Place and route modules by Vivado, each alone on the device; parameters as in `measure_modules` and `scripts`.

    ValueError as for `check`, or for a module with constant inputs. ToolError if Vivado is missing or fails, or a
    report lacks a line. The log of a failed run is saved in the build folder.
    """
    check(target, clock_mhz)
    program = Program(
        "Vivado on",
        lambda dsp: {"part": target.part, "clock_mhz": clock_mhz, "dsp": dsp},
        modules=(__name__,),
        versions=versions,
        argv=_prepared,
        result=_result,
        tail=TAIL,
    )
    return [convert(result, Routed) for result in results(map(_free, modules), program, progress, pool)]


def _free(module: Module) -> Module:
    if module.tied:
        raise ValueError(
            f"{module.top} has constant inputs ({', '.join(module.tied)}), which the Vivado flow does not support"
        )
    return module


def _prepared(folder: Path) -> list[str]:
    """Write the scripts for the job of a folder; return the command line that runs them."""
    job = json.loads((folder / "job.json").read_text())
    texts = _scripts((folder / "design.v").read_text(), job["top"], job["part"], job["clock_mhz"], job["dsp"])
    for name, text in texts.items():
        (folder / name).write_text(text)
    return _argv()


def _result(folder: Path) -> dict[str, Any]:
    return asdict(read(folder))


def versions() -> dict[str, str]:
    """Return the version that Vivado prints; ToolError if it is not installed."""
    program = _argv()[0]
    return {"Vivado": _version(program, Path(program).stat().st_mtime_ns)}


@functools.cache
def _version(program: str, changed: int) -> str:
    """Return the version of a program; cached by its modification time, because the program takes seconds."""
    answer = subprocess.run([program, "-version"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    match = re.search(r"^vivado v(\S+)", answer.stdout, re.I | re.M)
    if answer.returncode or match is None:
        raise ToolError(f"{program} -version ends with exit code {answer.returncode} and prints no version")
    return match[1]


def _argv() -> list[str]:
    """Return the command line of Vivado on the scripts of the working folder; its output is the log."""
    program = shutil.which("vivado")
    if program is None:
        raise ToolError(
            "there is no vivado on PATH: install AMD's Vivado and source its settings64.sh, or use --flow yosys"
        )
    return [str(Path(program).absolute()), "-mode", "batch", "-nolog", "-nojournal", "-source", FLOW]


def read(folder: Path) -> Routed:
    """Read the figures of the reports in a folder; ToolError if a report is missing or lacks a line."""
    texts = {}
    for file in REPORTS:
        path = folder / file
        if not path.is_file():
            raise ToolError(f"there is no {file} in {folder}; Vivado writes it when it runs {FLOW}")
        texts[file] = path.read_text(errors="replace")
    timed = timing(texts[TIMING])
    cost = Cost(**utilization(texts[UTILIZATION]), path=timed.path, fmax=timed.fmax)
    return Routed(cost=cost, timing=timed, power=power(texts[POWER]))
