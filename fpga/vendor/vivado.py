"""The vendor's flow: scripts for Vivado, and a reader of its reports.

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
from halfulp.fpga.synth.measure import Cost, Module, Program, results
from halfulp.sim.build import verilog
from halfulp.tools.errors import ToolError
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.progress import Progress, silent
from halfulp.units.verilog import VerilogPort, verilog_ports

FLOW = "flow.tcl"
UTILIZATION, TIMING, POWER = REPORTS = ("utilization.rpt", "timing.rpt", "power.rpt")
CHECKPOINT = "routed.dcp"

FASTEST = 2000
"""MHz. No fabric of the vendor is clocked faster, and a period has at most three places."""

TAIL = 12
"""Lines of the log to show when Vivado fails."""


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
        """Clock in MHz that the longest path allows; limits of pulse widths are not included."""
        return 1000 / (self.period - self.slack)


@dataclass(frozen=True)
class Power:
    """Figures of the power report, in W. A value below 0.001 reads as 0.001."""

    total: float
    dynamic: float
    static: float


@dataclass(frozen=True)
class Routed:
    """A component after place and route, with its power at the vendor's default switching rates.

    ``cost.lut`` counts tables used as logic, of which one may hold two small functions.
    """

    cost: Cost
    timing: Timing
    power: Power


# Scripts -----------------------------------------------------------------------------------------------------------


def knows(target: Target) -> bool:
    """True if a device is one of the vendor's."""
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
    """Input files of ``vivado -mode batch -source flow.tcl``, by name; ValueError as of `check`.

    Parameters
    ----------
    component : wiring.Component
        A unit, or a component of your own.
    target : Target or str
        A device of the vendor.
    clock_mhz : float
        Requested clock; the flow optimises until it is reached.
    dsp : bool
        Multipliers may become DSP blocks.
    name : str, optional
        Name of the top module; default: the component's ``name``.
    reset : str
        Style of the reset; see `halfulp.units.verilog.emit`.
    """
    target = target_of(target)
    check(target, clock_mhz)
    top = component.name if name is None else name
    return _scripts(verilog(component, name, reset=reset), top, target.part, clock_mhz, dsp)


def check(target: Target, clock_mhz: float) -> None:
    """Refuse, with ValueError, a device of another vendor, and a clock that is out of range."""
    if not knows(target):
        raise ValueError(f"Vivado does not support {target.name}, a device of another vendor")
    if not 1 <= clock_mhz <= FASTEST:
        raise ValueError(f"a clock of {clock_mhz:g} MHz is out of range; it has 1 to {FASTEST}")


def _scripts(text: str, top: str, part: str, clock_mhz: float, dsp: bool) -> dict[str, str]:
    stem = re.sub(r"[^\w.-]", "_", top)
    return {
        f"{stem}.v": text,
        f"{stem}.xdc": _constraints(text, top, f"{1000 / clock_mhz:.3f}"),
        FLOW: _flow(stem, top, part, dsp),
    }


def word(text: str) -> str:
    """Text as one word of Tcl, without substitution."""
    if re.fullmatch(r"[\w./:+-]+", text, re.ASCII):
        return text
    return '"' + re.sub(r'([\\"$\[\]{}])', r"\\\1", text).replace("\n", "\\n") + '"'


def _flow(stem: str, top: str, part: str, dsp: bool) -> str:
    limit = "" if dsp else " -max_dsp 0"

    # A command that takes several files takes a list of them: a name with a space would be two.
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
    write_checkpoint -force {to(CHECKPOINT)}"""
    return script("Vivado without a project: synthesis out of context, place and route, reports.", FLOW, body)


def script(purpose: str, file: str, body: str) -> str:
    """A Tcl script for Vivado, whose commands find its folder in ``$here`` and end with an exit code."""
    return f"""\
# {purpose} To run it:
#   vivado -mode batch -source {file}

proc flow {{here}} {{
{body}
}}

# The files are in the folder of this script, wherever it is called from.
if {{[catch {{flow [file dirname [file normalize [info script]]]}} message options]}} {{
    puts stderr "ERROR: $message"
    puts stderr [dict get $options -errorinfo]
    exit 1
}}
exit 0
"""


def _constraints(text: str, top: str, period: str) -> str:
    """One clock, and a delay of one period for every path from an input or to an output, as between registers.

    Without these delays only paths between registers would be timed, and a unit may have none. Paths at ports are timed
    without the delay of the clock network, which is not part of a module.
    """
    found = verilog_ports(text, top)
    clocked = "clk" in (port.name for port in found)
    inputs = [port for port in found if port.direction == "input" and port.name != "clk"]
    outputs = [port for port in found if port.direction == "output"]

    def ports(found: Iterable[VerilogPort]) -> str:
        names = [f"{port.name}[*]" if port.width > 1 else port.name for port in found]
        return f"[get_ports {{{' '.join(names)}}}]"

    if clocked:
        lines = [f"create_clock -name clk -period {period} [get_ports clk]"]
        if inputs:
            lines.append(f"set_max_delay -datapath_only -from {ports(inputs)} {period}")
        if outputs:
            lines.append(f"set_max_delay -datapath_only -from [get_clocks clk] -to {ports(outputs)} {period}")
    else:
        # A clock of no port: the reports name its period.
        lines = [f"create_clock -name virtual -period {period}"]
        if inputs and outputs:
            lines.append(f"set_max_delay -from {ports(inputs)} -to {ports(outputs)} {period}")
    return "\n".join(lines) + "\n"


# Reports -----------------------------------------------------------------------------------------------------------


def utilization(text: str) -> dict[str, Any]:
    """Fields of `Cost` but ``path`` and ``fmax``, from ``report_utilization``; ToolError if a line is missing."""
    sites, cells = _tables(text)

    def used(site: str) -> float:
        if site not in sites:
            raise ToolError(f"{UTILIZATION} has no line {site!r}")
        return _number(sites[site], site, UTILIZATION)

    if "Slice LUTs" in sites:
        # The 7 series has no line for its carry chains of four bits, but counts them as primitives.
        if "FDRE" not in cells and not any(cell.startswith("LUT") for cell in cells):
            raise ToolError(f"{UTILIZATION} has no table of primitives, which 'CARRY4' would be in")
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
        # Half a tile takes a whole one.
        "bram": math.ceil(used("Block RAM Tile")),
        "uram": large,
        "memory": int(used("LUT as Memory")),
    }


def timing(text: str) -> Timing:
    """Clock, worst slack and longest path from ``report_timing_summary``; ToolError if one of them is missing."""
    lines = text.splitlines()
    slack = _number(_below(lines, r"\s*WNS\(ns\)\s", "WNS(ns)")[0].split()[0], "WNS(ns)", TIMING)
    clocks = [
        float(found[1])
        for line in _below(lines, r"Clock\s+Waveform\(ns\)", "Clock  Waveform(ns)")
        if (found := re.match(r"\s*\S+\s+\{[^}]*\}\s+([\d.]+)\s", line))
    ]
    if len(clocks) != 1:
        raise ToolError(f"{TIMING} has {len(clocks)} lines of clocks below 'Clock  Waveform(ns)'; the flow makes one")
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
        raise ToolError(f"{TIMING} has a slack of {slack} ns below 'WNS(ns)', and the clock's period is {clocks[0]} ns")
    return Timing(period=clocks[0], slack=slack, path=int(levels[1]))


def power(text: str) -> Power:
    """Total, dynamic and static power from ``report_power``; ToolError if a line is missing."""

    def watts(line: str) -> float:
        found = re.search(rf"^\|\s*{re.escape(line)}\s*\|\s*([^|]*?)\s*\|", text, re.M)
        if found is None:
            raise ToolError(f"{POWER} has no line {line!r}")
        return _number(found[1].lstrip("<").split(" ")[0], line, POWER)

    return Power(
        total=watts("Total On-Chip Power (W)"), dynamic=watts("Dynamic (W)"), static=watts("Device Static (W)")
    )


def _tables(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """Used sites and cells of each kind, by the first line of each."""
    found: dict[str, dict[str, str]] = {"Site Type": {}, "Ref Name": {}}
    into: dict[str, str] = {}
    for line in text.splitlines():
        first, second = ([cell.strip() for cell in line.split("|")[1:-1]] + ["", ""])[:2]
        if second == "Used" or first in found:
            # Tables with other columns do not count used cells.
            into = found.get(first, {}) if second == "Used" else {}
        elif first:
            into.setdefault(first.rstrip("*"), second)
    return found["Site Type"], found["Ref Name"]


def _below(lines: list[str], head: str, name: str) -> list[str]:
    """Rows of a table without rules, below its head and a line of dashes."""
    for number, line in enumerate(lines):
        if re.match(head, line):
            rows = lines[number + 2 :]
            end = next((count for count, row in enumerate(rows) if not row.strip()), len(rows))
            if end:
                return rows[:end]
    raise ToolError(f"{TIMING} has no line {name!r} with a row below it")


def _number(text: str, line: str, file: str) -> float:
    if not re.fullmatch(r"-?\d+(\.\d+)?", text):
        raise ToolError(f"{file} has {text!r} where the number of {line!r} should be")
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
    """Figures of Vivado for modules, each alone on the device; parameters as `measure_modules` and `scripts`.

    ValueError as of `check`, or for a module with constant inputs. ToolError if there is no Vivado, it fails, which
    saves its log in the build folder, or a report lacks a line.
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
    return [convert(found, Routed) for found in results(map(_free, modules), program, progress, pool)]


def _free(module: Module) -> Module:
    if module.tied:
        raise ValueError(
            f"{module.top} has constant inputs ({', '.join(module.tied)}), which the vendor's flow does not support"
        )
    return module


def _prepared(folder: Path) -> list[str]:
    """Write the scripts for the job of a folder; the command line that runs them."""
    job = json.loads((folder / "job.json").read_text())
    texts = _scripts((folder / "design.v").read_text(), job["top"], job["part"], job["clock_mhz"], job["dsp"])
    for name, text in texts.items():
        (folder / name).write_text(text)
    return _argv()


def _result(folder: Path) -> dict[str, Any]:
    return asdict(read(folder))


def versions() -> dict[str, str]:
    """Version of Vivado, as it prints it; ToolError if there is none."""
    program = _argv()[0]
    return {"Vivado": _version(program, Path(program).stat().st_mtime_ns)}


@functools.cache
def _version(program: str, changed: int) -> str:
    """Version of a program that changed then; the program takes seconds to print it."""
    answer = subprocess.run([program, "-version"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    found = re.search(r"^vivado v(\S+)", answer.stdout, re.I | re.M)
    if answer.returncode or found is None:
        raise ToolError(f"{program} -version ends with exit code {answer.returncode} and prints no version")
    return found[1]


def _argv() -> list[str]:
    """Vivado on the scripts of the working folder. Its output is the log."""
    program = shutil.which("vivado")
    if program is None:
        raise ToolError(
            "there is no vivado on PATH: install AMD's Vivado and source its settings64.sh, or use --flow yosys"
        )
    return [str(Path(program).absolute()), "-mode", "batch", "-nolog", "-nojournal", "-source", FLOW]


def read(folder: Path) -> Routed:
    """Figures of the reports in a folder; ToolError if a report is missing, or lacks a line."""
    texts = {}
    for file in REPORTS:
        path = folder / file
        if not path.is_file():
            raise ToolError(f"there is no {file} in {folder}; Vivado writes it when it runs {FLOW}")
        texts[file] = path.read_text(errors="replace")
    timed = timing(texts[TIMING])
    cost = Cost(**utilization(texts[UTILIZATION]), path=timed.path, fmax=timed.fmax)
    return Routed(cost=cost, timing=timed, power=power(texts[POWER]))
