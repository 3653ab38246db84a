"""Synthesis for standard cells in a separate process: ``python -m halfulp.fpga.synth.cells``.

The program reads ``design.v``, ``cells.lib`` and ``job.json`` (fields of `CellSynthesis`) in the working folder. It
writes the results to ``costs.json``: a list with one for each delay target, or one in all.
"""

import json
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from .memories import read_design

_BEFORE = "strash; &get -n; &fraig -x; &put; scorr; dc2; strash"
_AFTER = "upsize {D}; dnsize {D}; stime -p"

SCRIPTS = (
    f"{_BEFORE}; dretime; strash; &get -n; &dch -f; &nf {{D}}; &put; buffer; {_AFTER}",
    f"{_BEFORE}; dch -f; amap -m; topo; buffer -c; {_AFTER}",
    f"{_BEFORE}; if -g -K 6; strash; &get -n; &dch -f; &nf {{D}}; &put; buffer -c; {_AFTER}",
)
"""Scripts of ABC for a delay target: that of Yosys, one for small area, and one that first balances for delay."""

PERIOD = 1000
"""Clock period for OpenSTA, in the time unit of the library; delays are this minus the slack."""


@dataclass(frozen=True)
class CellSynthesis:
    """Recipe of a synthesis.

    Parameters
    ----------
    top : str
        Name of the module.
    driver : str
        Cell that drives each input.
    load : float
        Load of each output in femtofarad.
    units : tuple of float
        Units of time in nanoseconds and of capacitance in femtofarad in the library.
    targets : list of float
        Delay targets of ABC in nanoseconds. For each one, the smallest netlist of all `SCRIPTS` that meets it is the
        result, or else the fastest. Without targets, the result is the netlist of Yosys' own script.
    opensta : bool
        Measure the delay by OpenSTA too.
    """

    top: str
    driver: str
    load: float
    units: tuple[float, float]
    targets: list[float] = field(default_factory=list)
    opensta: bool = False

    def run(self) -> None:
        """Synthesise ``design.v``; on an error Yosys prints it and exits."""
        # Code that torch compiles in a process with this library gives wrong results.
        from pyosys import libyosys

        design = libyosys.Design()

        def run(command: str) -> None:
            libyosys.run_pass(command, design)

        Path("timing.constr").write_text(f"set_driving_cell {self.driver}\nset_load {self.load:g}\n")
        run(read_design())
        run(f"synth -flatten -top {self.top}")
        # A flip-flop of silicon has no state before its reset.
        run("setattr -unset init w:*")
        run("dfflibmap -liberty cells.lib")
        run("opt")
        run("design -save generic")
        netlists = [self._mapped(run, "plain", "")] if not self.targets else []
        for target in self.targets:
            tried = [
                self._mapped(run, f"{target:g}-{place}", f"-script {_script(script, target)}")
                for place, script in enumerate(SCRIPTS)
            ]
            met = [netlist for netlist in tried if netlist["delay"] <= target]
            netlists.append(
                min(met, key=lambda netlist: netlist["area"])
                if met
                else min(tried, key=lambda netlist: netlist["delay"])
            )
        for netlist in netlists:
            if self.opensta:
                netlist["opensta"] = self._opensta(netlist["netlist"])
        Path("costs.json").write_text(json.dumps(netlists))

    def _mapped(self, run: Callable[[str], None], name: str, script: str) -> dict[str, Any]:
        """Map the design to cells, write the netlist, and return its cell counts, area and delay in nanoseconds."""
        run("design -load generic")
        run(f"tee -q -o abc.log abc -liberty cells.lib -constr timing.constr {script}")
        run("clean -purge")
        run("tee -q -o cells.json stat -liberty cells.lib -json")
        run(f"write_json {name}.json")
        design = json.loads(Path("cells.json").read_text())["design"]
        cells = {kind: count for kind, count in design["num_cells_by_type"].items() if kind != "$scopeinfo"}
        # A unit of wires and flip-flops has no gates, and ABC no log of their delay.
        delays = re.findall(r"Delay =\s*([\d.]+) ps", Path("abc.log").read_text())
        delay = float(delays[-1]) / 1000 if delays else 0.0
        return {"netlist": name, "cells": cells, "area": design.get("area", 0.0), "delay": delay}

    def _opensta(self, name: str) -> float:
        """Return the longest delay of a netlist by OpenSTA, in nanoseconds: `PERIOD` minus the worst slack."""
        (module,) = json.loads(Path(f"{name}.json").read_text())["modules"].values()
        if all(cell["type"] == "$scopeinfo" for cell in module["cells"].values()):
            return 0.0
        Path(f"{name}.v").write_text(structure(self.top, module))
        clock = "[get_ports clk]" if "clk" in module["ports"] else ""
        time, capacitance = self.units
        Path("sta.tcl").write_text(
            "read_liberty cells.lib\n"
            f"read_verilog {name}.v\n"
            f"link_design {self.top}\n"
            f"create_clock -name clock -period {PERIOD} {clock}\n"
            "set_input_delay 0 -clock clock [all_inputs]\n"
            "set_output_delay 0 -clock clock [all_outputs]\n"
            f"set_driving_cell -lib_cell {self.driver} [all_inputs]\n"
            f"set_load {self.load / capacitance:g} [all_outputs]\n"
            "report_worst_slack -digits 5\n"
        )
        done = subprocess.run(["sta", "-no_splash", "-exit", "sta.tcl"], capture_output=True, text=True, check=False)
        slack = re.search(r"^worst slack (-?[\d.]+)", done.stdout, re.MULTILINE)
        if done.returncode or not slack:
            raise SystemExit(f"OpenSTA reports no slack: {(done.stdout + done.stderr).strip()}")
        return (PERIOD - float(slack[1])) * time


def structure(top: str, module: Mapping[str, Any]) -> str:
    """Return a netlist as Verilog with instances and assignments of single bits, which OpenSTA reads.

    Parameters
    ----------
    top : str
        Name of the module.
    module : mapping
        Module in the JSON format of Yosys.
    """
    lines = [f"module {top} ({', '.join(module['ports'])});"]
    names = {"0": "1'b0", "1": "1'b1", "x": "1'b0"}
    assigned = []
    for port, given in sorted(module["ports"].items(), key=lambda pair: pair[1]["direction"]):
        width = len(given["bits"])
        lines.append(f"  {given['direction']} {f'[{width - 1}:0] ' * (width > 1)}{port};")
        for place, net in enumerate(given["bits"]):
            bit = f"{port}[{place}]" if width > 1 else port
            # An output that repeats another one or an input, or is constant, is assigned.
            if names.setdefault(net, bit) != bit:
                assigned.append(f"  assign {bit} = {names[net]};")
    cells = [cell for cell in module["cells"].values() if cell["type"] != "$scopeinfo"]
    for number, cell in enumerate(cells):
        for (net,) in cell["connections"].values():
            if net not in names:
                names[net] = f"n{net}"
                lines.append(f"  wire n{net};")
        pins = ", ".join(f".{pin}({names[net]})" for pin, (net,) in cell["connections"].items())
        lines.append(f"  {cell['type']} c{number} ({pins});")
    return "\n".join([*lines, *assigned, "endmodule", ""])


def _script(script: str, target: float) -> str:
    """Write a script of ABC for a delay target in nanoseconds, and return its name."""
    lines = script.format(D=f"-D {1000 * target:g}").split("; ")
    Path("map.abc").write_text("".join(f"{line}\n" for line in lines))
    return "map.abc"


def main() -> None:
    """Run the job of the working folder."""
    given = json.loads(Path("job.json").read_text())
    CellSynthesis(
        **{parameter.name: given[parameter.name] for parameter in fields(CellSynthesis) if parameter.name in given}
    ).run()


if __name__ == "__main__":
    main()
