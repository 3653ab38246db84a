"""Synthesis for standard cells in a separate process: ``python -m halfulp.fpga.synth.cells``.

The program reads ``design.v``, ``cells.lib`` and ``job.json`` (fields of a `Job`) in the working folder. It writes cell
counts and area to ``cells.json`` and the log of ABC with its timing to ``abc.log``.
"""

import json
from dataclasses import dataclass, fields
from pathlib import Path

from pyosys import libyosys


@dataclass(frozen=True)
class Job:
    """Recipe of a synthesis.

    Parameters
    ----------
    top : str
        Name of the module.
    driver : str
        Cell that drives each input.
    load : float
        Load of each output in femtofarad.
    """

    top: str
    driver: str
    load: float

    def run(self) -> None:
        """Synthesise ``design.v``; on an error Yosys prints it and exits."""
        design = libyosys.Design()

        def run(command: str) -> None:
            libyosys.run_pass(command, design)

        Path("timing.constr").write_text(f"set_driving_cell {self.driver}\nset_load {self.load:g}\n")
        run("read_verilog design.v")
        run(f"synth -flatten -top {self.top}")
        # A flip-flop of silicon has no state before its reset.
        run("setattr -unset init w:*")
        run("dfflibmap -liberty cells.lib")
        run("opt")
        run("tee -q -o abc.log abc -liberty cells.lib -constr timing.constr")
        run("clean -purge")
        run("tee -q -o cells.json stat -liberty cells.lib -json")


def main() -> None:
    """Run the job of the working folder."""
    given = json.loads(Path("job.json").read_text())
    Job(**{one.name: given[one.name] for one in fields(Job) if one.name in given}).run()


if __name__ == "__main__":
    main()
