"""The vendor's flow: scripts for Vivado, and what its reports say.

Sources: AMD, Vivado Design Suite Tcl Command Reference Guide (UG835); Using Constraints (UG903).
"""

import functools
import json
import math
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from halfulp.boards.targets import Target
from halfulp.fpga.synth.measure import Cost, Module, Program, results
from halfulp.sim.build import verilog
from halfulp.tools.errors import ToolError
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.paths import machine_errors
from halfulp.tools.processes import Command, run_all
from halfulp.tools.progress import Progress, silent

FLOW = "flow.tcl"
UTILIZATION, TIMING, POWER = REPORTS = ("utilization.rpt", "timing.rpt", "power.rpt")
CHECKPOINT, LOG = "routed.dcp", "vivado.log"

FASTEST = 2000
"""MHz. No fabric of the vendor's is clocked faster, and a period has no more than three places."""

TAIL = 12
"""Lines of a log that are shown when Vivado fails."""


@dataclass(frozen=True)
class Timing:
    """Figures of the timing summary.

    Attributes
    ----------
    period : float
        Of the clock that was asked for, in ns.
    slack : float
        Worst slack of a longest path, in ns; negative where the clock was too fast.
    path : int
        Cells on that path.
    """

    period: float
    slack: float
    path: int

    @property
    def fmax(self) -> float:
        """MHz that the longest path allows; what pulses need to be as wide as they must is not in it."""
        return 1000 / (self.period - self.slack)


@dataclass(frozen=True)
class Power:
    """Figures of the power report, in W. A value printed as less than 0.001 is 0.001."""

    total: float
    dynamic: float
    static: float


@dataclass(frozen=True)
class Routed:
    """A component after place and route.

    Attributes
    ----------
    cost : Cost
        As the vendor counts: ``lut`` are the tables used as logic, of which one may hold two small functions.
    timing : Timing
    power : Power
        By the vendor's default switching rates.
    """

    cost: Cost
    timing: Timing
    power: Power

    @property
    def fmax(self) -> float:
        """MHz."""
        return self.timing.fmax


# Scripts -----------------------------------------------------------------------------------------------------------


def knows(target: Target) -> bool:
    """True if a device is one of the vendor's."""
    return target.part.startswith("xc")


def scripts(
    component: Any, target: Target, *, clock_mhz: float, dsp: bool = True, name: str | None = None
) -> dict[str, str]:
    """Everything that ``vivado -mode batch -source flow.tcl`` needs, by file name.

    Parameters
    ----------
    component : wiring.Component
        A unit, or a component of your own.
    target : Target
        A device of the vendor's.
    clock_mhz : float
        Frequency to be reached: the flow stops to optimise when it is.
    dsp : bool
        Whether multipliers may become DSP blocks.
    name : str, optional
        Name of the top module; by default the component's ``name``.

    Raises
    ------
    ValueError
        If the device is none of the vendor's, or there is no such frequency.
    """
    check(target, clock_mhz)
    top = component.name if name is None else name
    return _scripts(verilog(component, name), top, target.part, clock_mhz, dsp)


def check(target: Target, clock_mhz: float) -> None:
    """Refuse a device that is none of the vendor's, and a frequency that there is not.

    Raises
    ------
    ValueError
        If it is one of these.
    """
    if not knows(target):
        raise ValueError(f"{target.name} is no device of AMD's, and Vivado knows no others")
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
    """Text as one word of Tcl, nothing in it substituted."""
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

    return f"""\
# Vivado without a project: synthesis out of context, place and route, reports. To run it:
#   vivado -mode batch -source {FLOW}

proc flow {{here}} {{
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
    write_checkpoint -force {to(CHECKPOINT)}
}}

# Where the files are is where this script is, wherever it is called from.
if {{[catch {{flow [file dirname [file normalize [info script]]]}} message options]}} {{
    puts stderr "ERROR: $message"
    puts stderr [dict get $options -errorinfo]
    exit 1
}}
exit 0
"""


def _constraints(text: str, top: str, period: str) -> str:
    """One clock; and every path from an input or to an output may take a period of it, as between registers.

    Without the latter only paths between registers would be timed, and a unit may have none. What the clock network
    adds at the ports of a module alone is not the module's, so these paths are timed without it.
    """
    inputs, outputs = _ports(text, top)
    clocked = "clk" in inputs
    inputs.pop("clk", None)

    def ports(found: Mapping[str, bool]) -> str:
        names = [f"{name}[*]" if bus else name for name, bus in found.items()]
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


def _ports(text: str, top: str) -> tuple[dict[str, bool], dict[str, bool]]:
    r"""Inputs and outputs of a module, and whether each is a bus. A keyword of Verilog is written as ``\bit``."""
    module = re.search(rf"^module \\?{re.escape(top)}\s*\(.*?\);(.*?)^endmodule", text, re.M | re.S)
    if module is None:
        raise ValueError(f"the Verilog has no module {top}")
    found: dict[str, dict[str, bool]] = {"input": {}, "output": {}}
    for direction, bus, port in re.findall(r"^\s*(input|output)\s+(\[\d+:\d+\]\s+)?\\?([^\s;]+)\s*;", module[1], re.M):
        found[direction][port] = bool(bus)
    return found["input"], found["output"]


# Reports -----------------------------------------------------------------------------------------------------------


def utilization(text: str, file: str = UTILIZATION) -> dict[str, Any]:
    """Fields of `Cost`, all but the longest path, from the text of ``report_utilization``.

    Raises
    ------
    ToolError
        If a line is not there.
    """
    sites, cells = _tables(text)

    def used(site: str) -> float:
        if site not in sites:
            raise ToolError(f"{file} has no line {site!r}")
        return _number(sites[site], site, file)

    if "Slice LUTs" in sites:
        # The 7 series has no line for its carry chains, of four; its primitives are those that there are.
        if "FDRE" not in cells and not any(cell.startswith("LUT") for cell in cells):
            raise ToolError(f"{file} has no table of primitives, which 'CARRY4' would be in")
        fabric, muxes, large = "Slice", ["F7 Muxes", "F8 Muxes"], 0
        carry = math.ceil(_number(cells.get("CARRY4", "0"), "CARRY4", file) / 2)
    else:
        fabric, muxes, large = "CLB", ["F7 Muxes", "F8 Muxes", "F9 Muxes"], int(used("URAM"))
        used("CLB LUTs")
        carry = int(used("CARRY8"))
    return {
        "lut": int(used("LUT as Logic")),
        "luts": tuple(int(_number(cells.get(f"LUT{inputs}", "0"), f"LUT{inputs}", file)) for inputs in range(1, 7)),
        "ff": int(used(f"{fabric} Registers")),
        "carry": carry,
        "mux": sum(int(used(mux)) for mux in muxes),
        "dsp": int(used("DSPs")),
        # Half a tile is one that is taken.
        "bram": math.ceil(used("Block RAM Tile")),
        "uram": large,
        "memory": int(used("LUT as Memory")),
    }


def timing(text: str, file: str = TIMING) -> Timing:
    """Clock, worst slack and longest path from the text of ``report_timing_summary``.

    Raises
    ------
    ToolError
        If a line is not there, or no path is timed.
    """
    lines = text.splitlines()
    slack = _number(_below(lines, r"\s*WNS\(ns\)\s", "WNS(ns)", file)[0].split()[0], "WNS(ns)", file)
    clocks = [
        float(found[1])
        for line in _below(lines, r"Clock\s+Waveform\(ns\)", "Clock  Waveform(ns)", file)
        if (found := re.match(r"\s*\S+\s+\{[^}]*\}\s+([\d.]+)\s", line))
    ]
    if len(clocks) != 1:
        raise ToolError(f"{file} has {len(clocks)} lines of clocks below 'Clock  Waveform(ns)'; the flow makes one")
    paths = [
        (float(path[1]), path[0])
        for path in re.finditer(r"^Slack \(\w+\) :\s+(-?[\d.]+)ns.*?(?=^Slack|\Z)", text, re.M | re.S)
        if re.search(r"Path Type:.*\bMax at\b", path[0])
    ]
    if not paths:
        raise ToolError(f"{file} has no line 'Slack' of a longest path")
    levels = re.search(r"Logic Levels:\s+(\d+)", min(paths)[1])
    if levels is None:
        raise ToolError(f"{file} has no line 'Logic Levels' of the longest path")
    if slack >= clocks[0]:
        raise ToolError(f"{file} has a slack of {slack} ns below 'WNS(ns)', and the clock's period is {clocks[0]} ns")
    return Timing(period=clocks[0], slack=slack, path=int(levels[1]))


def power(text: str, file: str = POWER) -> Power:
    """Total, dynamic and static power from the text of ``report_power``.

    Raises
    ------
    ToolError
        If a line is not there.
    """

    def watts(line: str) -> float:
        found = re.search(rf"^\|\s*{re.escape(line)}\s*\|\s*([^|]*?)\s*\|", text, re.M)
        if found is None:
            raise ToolError(f"{file} has no line {line!r}")
        return _number(found[1].lstrip("<").split(" ")[0], line, file)

    return Power(
        total=watts("Total On-Chip Power (W)"), dynamic=watts("Dynamic (W)"), static=watts("Device Static (W)")
    )


def _tables(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """Used sites of each kind, and cells of each kind; the first line counts."""
    found: dict[str, dict[str, str]] = {"Site Type": {}, "Ref Name": {}}
    into: dict[str, str] = {}
    for line in text.splitlines():
        first, second = ([cell.strip() for cell in line.split("|")[1:-1]] + ["", ""])[:2]
        if second == "Used" or first in found:
            # What tables of other columns say is not how many are used.
            into = found.get(first, {}) if second == "Used" else {}
        elif first:
            into.setdefault(first.rstrip("*"), second)
    return found["Site Type"], found["Ref Name"]


def _below(lines: list[str], head: str, name: str, file: str) -> list[str]:
    """Lines of a table without rules, which follow a line of dashes below its head."""
    for number, line in enumerate(lines):
        if re.match(head, line):
            rows = lines[number + 2 :]
            end = next((count for count, row in enumerate(rows) if not row.strip()), len(rows))
            if end:
                return rows[:end]
    raise ToolError(f"{file} has no line {name!r} with a row below it")


def _number(text: str, line: str, file: str) -> float:
    if not re.fullmatch(r"-?\d+(\.\d+)?", text):
        raise ToolError(f"{file} has {text!r} where the number of {line!r} should be")
    return float(text)


# The program -------------------------------------------------------------------------------------------------------


def run(folder: Path) -> Routed:
    """Run Vivado on a folder of `scripts`. Its reports, its checkpoint and its log stay there.

    Raises
    ------
    ValueError
        If there are no scripts in the folder.
    ToolError
        If there is no Vivado, it fails, or a report lacks a line.
    """
    if not (folder / FLOW).is_file():
        raise ValueError(f"there is no {FLOW} in {folder}; halfulp emit --flow vivado writes one")
    argv = _argv()
    # What an earlier run left must not be read as this one's.
    with machine_errors(str(folder)):
        for file in (*REPORTS, CHECKPOINT):
            (folder / file).unlink(missing_ok=True)
    log = folder / LOG
    try:
        run_all([Command("Vivado", argv, log.absolute(), cwd=folder)])
    except ToolError as error:
        raise ToolError(f"{error}{_tail(log)}") from error
    return read(folder)


def implement(
    modules: Iterable[Module],
    target: Target,
    progress: Progress = silent,
    *,
    clock_mhz: float,
    pool: JobPool = LOCAL,
) -> list[Routed]:
    """Figures of Vivado for several modules, each alone on the device; earlier results are kept.

    Parameters
    ----------
    modules : iterable of Module
        Asked for the next one when there is a processor for it.
    target : Target
        A device of the vendor's.
    progress : Progress
        Advances with each module that is done.
    clock_mhz : float
        Frequency to be reached: the flow stops to optimise when it is.
    pool : JobPool
        Runs it.

    Raises
    ------
    ValueError
        If the device is none of the vendor's, there is no such frequency, or a module has constant inputs.
    ToolError
        If there is no Vivado, it fails, which leaves its log in the build folder, or a report lacks a line.
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
    return [
        Routed(
            Cost(**found["cost"] | {"luts": tuple(found["cost"]["luts"])}),
            Timing(**found["timing"]),
            Power(**found["power"]),
        )
        for found in results(map(_free, modules), program, progress, pool)
    ]


def _free(module: Module) -> Module:
    if module.tied:
        raise ValueError(
            f"{module.top} has constant inputs ({', '.join(module.tied)}), which the vendor's flow does not know"
        )
    return module


def _prepared(folder: Path) -> list[str]:
    """Scripts for the job of a folder, and what runs them."""
    job = json.loads((folder / "job.json").read_text())
    texts = _scripts((folder / "design.v").read_text(), job["top"], job["part"], job["clock_mhz"], job["dsp"])
    for name, text in texts.items():
        (folder / name).write_text(text)
    return _argv()


def _result(folder: Path) -> dict[str, Any]:
    return asdict(read(folder))


def versions() -> dict[str, str]:
    """Of Vivado, as it says itself.

    Raises
    ------
    ToolError
        If there is none, or it does not say.
    """
    program = _argv()[0]
    return {"Vivado": _version(program, Path(program).stat().st_mtime_ns)}


@functools.cache
def _version(program: str, changed: int) -> str:
    """Asked once: it takes the program seconds."""
    answer = subprocess.run([program, "-version"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    found = re.search(r"^vivado v(\S+)", answer.stdout, re.I | re.M)
    if answer.returncode or found is None:
        raise ToolError(f"{program} -version ends with exit code {answer.returncode} and does not say its version")
    return found[1]


def _argv() -> list[str]:
    """Vivado on the scripts of the working folder. Its output is its log."""
    program = shutil.which("vivado")
    if program is None:
        raise ToolError(
            "there is no vivado on PATH: install AMD's Vivado and source its settings64.sh, or use --flow yosys"
        )
    return [str(Path(program).absolute()), "-mode", "batch", "-nolog", "-nojournal", "-source", FLOW]


def read(folder: Path) -> Routed:
    """Figures of the reports in a folder, wherever Vivado was run.

    Raises
    ------
    ToolError
        If there is no report, or one lacks a line.
    """
    texts = {}
    for file in REPORTS:
        path = folder / file
        if not path.is_file():
            raise ToolError(f"there is no {file} in {folder}; Vivado writes it when it runs {FLOW}")
        texts[file] = path.read_text(errors="replace")
    timed = timing(texts[TIMING])
    cost = Cost(**utilization(texts[UTILIZATION]), path=timed.path, fmax=timed.fmax)
    return Routed(cost=cost, timing=timed, power=power(texts[POWER]))


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    return "\n".join([f"; the end of {log}:", *(f"  {line}" for line in lines[-TAIL:])]) if lines else ""
