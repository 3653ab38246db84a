"""Changes of a netlist, by Yosys in a process of its own: ``python -m halfulp.sim.mutation.netlist``.

In the working folder it reads ``design.il`` and ``job.json``: how many ``mutants`` of which ``seed``, or None for the
``faults`` of every net and register. It leaves ``mutated.v`` with all of them, of which the input ``mutant`` selects
one (0 for none), ``changes.json``, what and where each is, and ``step.json`` and ``registers.json`` as
`halfulp.sim.formal.netlist` does.
"""

import json
import re
from pathlib import Path
from typing import Any

from pyosys import libyosys

from halfulp.sim.formal.netlist import evert

SELECT = "mutant"
"""The input that selects a change."""

WIDTH = 16

MORE = 64
"""So many mutants more are asked for, in place of those of clocks, which no simulation by cycles can tell."""


def mutants(design: Any, count: int, seed: int) -> list[dict[str, Any]]:
    """Mutants as Yosys chooses them, evenly over sources and wires, except of clocks."""
    _run(design, f"mutate -list {count + MORE} -seed {seed} -o list.txt")
    lines = [line for line in Path("list.txt").read_text().splitlines() if line.startswith("mutate ")]
    found = [_change(line) for line in lines]
    return [change for change in found if change["port"] != "CLK"][:count]


def _change(line: str) -> dict[str, Any]:
    options: dict[str, list[str]] = {}
    for name, value in re.findall(r"-(\w+) (\S+)", line.replace("\\", "")):
        options.setdefault(name, []).append(value)
    change: dict[str, Any] = {name: options[name][0] for name in ("mode", "cell", "port", "portbit")}
    wire = f"{options['wire'][0]}[{options['wirebit'][0]}]" if "wire" in options else ""
    return change | {"command": line, "wire": wire, "src": options.get("src", [])}


def faults(design: Any) -> list[dict[str, Any]]:
    """Every register bit inverted, which lasts if the clock enable is low, and every net stuck at either level."""
    # Enables and resets become cells, so that what is wrong stays until something else is stored.
    _run(design, "dffunmap", "opt_clean", "write_json plain.json")
    (module,) = json.loads(Path("plain.json").read_text())["modules"].values()
    wires = {
        bit: f"{name}[{place}]"
        for name in sorted(module["netnames"], key=lambda name: (name.count("."), len(name), name))
        for place, bit in enumerate(module["netnames"][name]["bits"])
        if not module["netnames"][name]["hide_name"]
    }
    found = []
    for cell, what in sorted(module["cells"].items()):
        for port, direction in what["port_directions"].items():
            if direction != "output":
                continue
            modes = ["inv"] if what["type"] == "$dff" else []
            for place, bit in enumerate(what["connections"][port]):
                for mode in (*modes, "const0", "const1"):
                    src = what["attributes"].get("src", "").split("|")
                    found.append(_fault(mode, cell, port, place, wires.get(bit, ""), [text for text in src if text]))
    return found


def _fault(mode: str, cell: str, port: str, place: int, wire: str, src: list[str]) -> dict[str, Any]:
    command = f"mutate -mode {mode} -module top -cell {cell} -port {port} -portbit {place}"
    where = {"cell": cell, "port": port, "portbit": str(place)}
    return {"mode": mode, **where, "command": command, "wire": wire, "src": src}


def _run(design: Any, *commands: str) -> None:
    for command in commands:
        libyosys.run_pass(command, design)


def main() -> None:
    """Do the job of the working folder; on an error Yosys says so and ends the process."""
    job = json.loads(Path("job.json").read_text())
    design = libyosys.Design()
    _run(design, "read_rtlil design.il", "hierarchy -top top", "proc -noopt", "flatten")
    # Tables become multiplexers, of whose constants a mutant may be one.
    _run(design, "memory_map", "opt_clean")
    count = job["mutants"]
    changes = faults(design) if count is None else mutants(design, count, job["seed"])
    for number, change in enumerate(changes, 1):
        _run(design, f"{change.pop('command')} -ctrl {SELECT} {WIDTH} {number}")
    Path("changes.json").write_text(json.dumps(changes))
    _run(design, "opt_clean", "write_verilog -noattr mutated.v")
    _run(design, "dffunmap", "opt_clean", "write_json whole.json")
    (module,) = json.loads(Path("whole.json").read_text())["modules"].values()
    registers = evert(module)
    module["attributes"].pop("top", None)
    Path("step.json").write_text(json.dumps({"modules": {job["name"]: module}}))
    Path("registers.json").write_text(json.dumps(registers))


if __name__ == "__main__":
    main()
