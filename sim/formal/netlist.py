"""Netlists for proofs, by Yosys in a process of its own: ``python -m halfulp.sim.formal.netlist``.

In the working folder it reads ``job.json`` and ``design.il``. Of a ``step`` it writes ``step.json``: the module ``top``
without its registers, whose values are inputs and next values outputs, under the module name of the job, and
``registers.json``, name and width of each. Of an ``aig`` it writes ``design.aig`` and ``design.map``; the modules that
``design.il`` has instances of are in files ``step*.json``.
"""

import json
from pathlib import Path
from typing import Any

from pyosys import libyosys

OPT = "opt -fast -nodffe -nosdff"

READY = ("proc -noopt", "flatten", "setundef -undriven -anyseq", OPT, "memory_map", "dffunmap", "opt_clean")
"""From processes and memories to cells and plain flip-flops, in one module.

Each undefined bit becomes an input of its own, in each instance. A proof then holds for every value that synthesis may
choose for it; a constant in its place would be the same on both sides of a comparison, and hide that they may differ.
Yosys leaves undefined what a switch over all values cannot reach, so that most of these inputs have no effect."""


def write_step(design: Any, name: str) -> None:
    """Write the module of a clock cycle, under a name, and its registers."""
    run(design, "write_json whole.json")
    (module,) = json.loads(Path("whole.json").read_text())["modules"].values()
    registers = _evert(module)
    module["attributes"].pop("top", None)
    Path("step.json").write_text(json.dumps({"modules": {name: module}}))
    Path("registers.json").write_text(json.dumps(registers))


def _evert(module: dict[str, Any]) -> dict[str, int]:
    """Make an input of what each flip-flop holds and an output of what it will hold; returns names and widths."""
    # The last one counts: of several names of a register that of the innermost module, and there its own.
    order = sorted(module["netnames"], key=lambda name: (name.count("."), len(name), name))
    names = {tuple(module["netnames"][name]["bits"]): name for name in order}
    registers = {}
    for net in module["netnames"].values():
        # Without a register there is no initial value.
        net["attributes"].pop("init", None)
    for cell, what in list(module["cells"].items()):
        if what["type"] != "$dff":
            continue
        del module["cells"][cell]
        held, next_ = what["connections"]["Q"], what["connections"]["D"]
        # Amaranth reads a dollar sign as the mark of its own names.
        name = names.get(tuple(held), cell).replace("$", "-")
        registers[name] = len(held)
        module["ports"][f"held@{name}"] = {"direction": "input", "bits": held}
        module["ports"][f"next@{name}"] = {"direction": "output", "bits": next_}
    return registers


def write_aig(design: Any) -> None:
    """Write an and-inverter graph."""
    for path in sorted(Path().glob("step*.json")):
        run(design, f"read_json {path}")
    run(design, "read_rtlil design.il", "hierarchy -check -top top", *READY, OPT, "techmap", OPT)
    run(design, "aigmap", "opt_clean", "write_aiger -map design.map design.aig")


def run(design: Any, *commands: str) -> None:
    """Run commands of Yosys."""
    for command in commands:
        libyosys.run_pass(command, design)


def main() -> None:
    """Do the job of the working folder; an error of Yosys ends the process."""
    job = json.loads(Path("job.json").read_text())
    design = libyosys.Design()
    if job["make"] == "step":
        run(design, "read_rtlil design.il", "hierarchy -top top", *READY)
        write_step(design, job["name"])
    else:
        write_aig(design)


if __name__ == "__main__":
    main()
