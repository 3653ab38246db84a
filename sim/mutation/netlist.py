"""Changes of a netlist, made by Yosys in a process: ``python -m halfulp.sim.mutation.netlist``.

The process reads ``design.il`` and ``job.json`` in the working folder: the number of ``mutants``, or null for faults of
every net and register, and the ``seed``. It writes ``mutated.v`` with all changes, of which the input ``mutant``
selects one (0: none), ``changes.json`` with the kind and place of each change, and ``step.json`` and ``registers.json``
as `halfulp.sim.formal.netlist` does.
"""

import json
import random
import re
from itertools import zip_longest
from pathlib import Path
from typing import Any

from pyosys import libyosys

from halfulp.sim.formal.netlist import run, write_step

from . import SELECT, WIDTH

ALL = 1 << 30
"""Number of mutants asked of Yosys, which then lists all; with a smaller one it does not end on small netlists."""


def mutants(design: Any, count: int, seed: int) -> list[dict[str, Any]]:
    """Return random mutants, the same number of each cell where it has so many; none of clocks.

    Simulation in cycles cannot detect changes of clocks.
    """
    run(design, f"mutate -list {ALL} -o list.txt")
    lines = [line for line in Path("list.txt").read_text().splitlines() if line.startswith("mutate ")]
    changes = [change for change in map(_change, lines) if change["port"] != "CLK"]
    random.Random(seed).shuffle(changes)
    cells: dict[str, list[dict[str, Any]]] = {}
    for change in changes:
        cells.setdefault(change["cell"], []).append(change)
    return [change for turn in zip_longest(*cells.values()) for change in turn if change][:count]


def _change(line: str) -> dict[str, Any]:
    options: dict[str, list[str]] = {}
    for name, value in re.findall(r"-(\w+) (\S+)", line.replace("\\", "")):
        options.setdefault(name, []).append(value)
    change: dict[str, Any] = {name: options[name][0] for name in ("mode", "cell", "port", "portbit")}
    wire = f"{options['wire'][0]}[{options['wirebit'][0]}]" if "wire" in options else ""
    return change | {"command": line, "wire": wire, "src": options.get("src", [])}


def faults(design: Any) -> list[dict[str, Any]]:
    """Return the faults: every register bit inverted, and every net stuck at 0 and at 1."""
    # Enables and resets become cells, so that a flipped bit stays until the register is written.
    run(design, "dffunmap", "opt_clean", "write_json plain.json")
    (module,) = json.loads(Path("plain.json").read_text())["modules"].values()
    wires = {
        bit: f"{name}[{place}]"
        for name in sorted(module["netnames"], key=lambda name: (name.count("."), len(name), name))
        for place, bit in enumerate(module["netnames"][name]["bits"])
        if not module["netnames"][name]["hide_name"]
    }
    injections = []
    for cell, what in sorted(module["cells"].items()):
        for port, direction in what["port_directions"].items():
            if direction != "output":
                continue
            modes = ["inv"] if what["type"] == "$dff" else []
            for place, bit in enumerate(what["connections"][port]):
                for mode in (*modes, "const0", "const1"):
                    src = what["attributes"].get("src", "").split("|")
                    injections.append(
                        _fault(
                            mode, what["type"], cell, port, place, wires.get(bit, ""), [text for text in src if text]
                        )
                    )
    return injections


def _fault(mode: str, kind: str, cell: str, port: str, place: int, wire: str, src: list[str]) -> dict[str, Any]:
    command = f"mutate -mode {mode} -module top -cell {cell} -port {port} -portbit {place}"
    where = {"cell": cell, "port": port, "portbit": str(place)}
    return {"mode": mode, "kind": kind, **where, "command": command, "wire": wire, "src": src}


def main() -> None:
    """Run the job of the working folder; an error in Yosys ends the process."""
    job = json.loads(Path("job.json").read_text())
    design = libyosys.Design()
    run(design, "read_rtlil design.il", "hierarchy -top top", "proc -noopt", "flatten")
    # Tables become multiplexers, whose constants can be mutated. Undefined bits become zero before any change, so that
    # simulation and proof use the same netlist.
    run(design, "memory_map", "opt_clean", "setundef -undriven -zero")
    count = job["mutants"]
    changes = faults(design) if count is None else mutants(design, count, job["seed"])
    for number, change in enumerate(changes, 1):
        run(design, f"{change.pop('command')} -ctrl {SELECT} {WIDTH} {number}")
    Path("changes.json").write_text(json.dumps(changes))
    # A change can make two selects of a multiplexer true, which Verilator's check of parallel cases would stop at.
    run(design, "opt_clean", "write_verilog -noattr -noparallelcase mutated.v")
    run(design, "dffunmap", "opt_clean")
    write_step(design, job["name"])


if __name__ == "__main__":
    main()
