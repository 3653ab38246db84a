"""Synthesis by Yosys, for a process of its own: ``python -m halfulp.fpga.synth.yosys``.

In the working folder it reads ``design.v`` and ``job.json``, the fields of a `Job`. It writes ``cells.json``, the
counts of cells, ``path.txt``, the longest path between ports and flip-flops, and, if requested, ``netlist.json``.
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
    command : str
        Yosys' command for the family.
    memories : str
        Label of its step that maps memories.
    ff : str
        Type of the family's flip-flops; a regular expression.
    ties : list of str
        Constant inputs, as ``PORT=VALUE``.
    netlist : bool
        Write the netlist, for place and route.
    """

    top: str
    command: str
    memories: str
    ff: str
    ties: list[str]
    netlist: bool = False

    def run(self) -> None:
        """Synthesise ``design.v``; on an error Yosys says so and ends the process."""
        design = libyosys.Design()

        def run(command: str) -> None:
            libyosys.run_pass(command, design)

        run("read_verilog design.v")
        if self.ties:
            run("proc")
            run(f"cd {self.top}")
            for pair in self.ties:
                port, _, value = pair.partition("=")
                run(f"delete -input w:{port}")
                run(f"connect -set {port} {value}")
            run("cd ..")
        # Yosys maps with ABC9 with and without -abc9.
        synthesise = f"{self.command} -top {self.top}"
        run(f"{synthesise} -run begin:{self.memories}")
        run("select -write memories.txt t:$mem*")
        if Path("memories.txt").read_text():
            run(f"{synthesise} -run {self.memories}:map_ffram")
        # Where there is no memory that step does nothing but read libraries, for a third of the time.
        run(f"{synthesise} -run map_ffram:")
        run("tee -q -o cells.json stat -json")
        # Yosys knows patterns as shells do.
        run(f"tee -q -o path.txt ltp t:{self.ff.replace('.*', '*')} %n")
        if self.netlist:
            run("write_json netlist.json")


def main() -> None:
    """Run the job of the working folder."""
    given = json.loads(Path("job.json").read_text())
    Job(**{field.name: given[field.name] for field in fields(Job) if field.name in given}).run()


if __name__ == "__main__":
    main()
