"""Netlists for proofs, by Yosys in a process of its own: ``python -m halfulp.sim.formal.netlist``.

In the working folder it reads ``job.json`` and ``design.il``. Of a ``step`` it leaves ``step.json``: the module ``top``
without its registers, whose values are inputs and next values outputs, under the module name that it was given, and
``registers.json``, name and width of each. Of an ``aig`` it leaves ``design.aig`` and ``design.map``; the modules that
``design.il`` has instances of are in files ``step*.json``.
"""

import json
from pathlib import Path
from typing import Any

from pyosys import libyosys

OPT = "opt -fast -nodffe -nosdff"

READY = ("proc -noopt", "flatten", "setundef -zero", OPT, "memory_map", "dffunmap", "opt_clean")
"""From processes and memories to cells and plain flip-flops, in one module. Yosys leaves undefined only what a switch
over all values cannot reach."""


def step(design: Any, name: str) -> None:
    """Leave what a clock cycle computes."""
    _run(design, "read_rtlil design.il", "hierarchy -top top", *READY, "write_json whole.json")
    whole = json.loads(Path("whole.json").read_text())
    (module,) = whole["modules"].values()
    registers = evert(module)
    module["attributes"].pop("top", None)
    Path("step.json").write_text(json.dumps({"modules": {name: module}}))
    Path("registers.json").write_text(json.dumps(registers))


def evert(module: dict[str, Any]) -> dict[str, int]:
    """Make an input of what each flip-flop holds and an output of what it will hold; returns names and widths."""
    # The last one counts: of several names of a register that of the innermost module, and there its own.
    order = sorted(module["netnames"], key=lambda name: (name.count("."), len(name), name))
    names = {tuple(module["netnames"][name]["bits"]): name for name in order}
    registers = {}
    for net in module["netnames"].values():
        # Who has no register has no value that it begins with.
        net["attributes"].pop("init", None)
    for cell, what in list(module["cells"].items()):
        if what["type"] != "$dff":
            continue
        del module["cells"][cell]
        held, next_ = what["connections"]["Q"], what["connections"]["D"]
        # Amaranth puts a dollar sign into names of its own, and then takes ours for one of them.
        name = names.get(tuple(held), cell).replace("$", "-")
        registers[name] = len(held)
        module["ports"][f"held@{name}"] = {"direction": "input", "bits": held}
        module["ports"][f"next@{name}"] = {"direction": "output", "bits": next_}
    return registers


def aig(design: Any) -> None:
    """Leave an and-inverter graph."""
    for path in sorted(Path().glob("step*.json")):
        _run(design, f"read_json {path}")
    _run(design, "read_rtlil design.il", "hierarchy -check -top top", *READY, OPT, "techmap", OPT)
    _run(design, "aigmap", "opt_clean", "write_aiger -map design.map design.aig")


def _run(design: Any, *commands: str) -> None:
    for command in commands:
        libyosys.run_pass(command, design)


def main() -> None:
    """Do the job of the working folder; on an error Yosys says so and ends the process."""
    job = json.loads(Path("job.json").read_text())
    design = libyosys.Design()
    if job["make"] == "step":
        step(design, job["name"])
    else:
        aig(design)


if __name__ == "__main__":
    main()
