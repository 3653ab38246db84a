"""Synthesis by Yosys in a separate process: ``python -m halfulp.fpga.synth.yosys``.

The program reads ``design.v`` and ``job.json`` (fields of `FpgaSynthesis`) in the working folder. It writes the cell
counts to ``cells.json``, the longest path between ports and flip-flops to ``path.txt`` and, if requested,
``netlist.json``. Results with a netlist are in the cache, so that cost and clock of a module take one synthesis.
"""

import gzip
import json
from dataclasses import dataclass, field, fields
from pathlib import Path

from pyosys import libyosys

from halfulp.tools.cache import Entry
from halfulp.tools.digests import code, version

from .memories import YOSYS, read_design

RESULTS = ("cells.json", "path.txt", "netlist.json")
"""Files of results, the last one only with ``netlist``."""


@dataclass(frozen=True)
class FpgaSynthesis:
    """Recipe of a synthesis.

    Parameters
    ----------
    top : str
        Name of the module.
    command : str
        Synthesis command of Yosys for the family.
    memories : str
        Label of the step that maps memories in that command.
    ff : str
        Regular expression for the cell types of flip-flops.
    ties : list of str
        Constant inputs, written ``PORT=VALUE``.
    netlist : bool
        Write the netlist, for place and route.
    keep : list of str
        Modules that are synthesised once and counted for each instance; all others become a part of the module that
        contains them. The longest path is that within one module.
    """

    top: str
    command: str
    memories: str
    ff: str
    ties: list[str]
    netlist: bool = False
    keep: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Synthesise ``design.v``; on an error Yosys prints it and exits."""
        design = libyosys.Design()

        def run(command: str) -> None:
            libyosys.run_pass(command, design)

        run(read_design())
        for module in self.keep:
            run(f"setattr -mod -set keep_hierarchy 1 {module}")
        if self.ties:
            run("proc")
            run(f"cd {self.top}")
            for pair in self.ties:
                port, _, value = pair.partition("=")
                run(f"delete -input w:{port}")
                run(f"connect -set {port} {value}")
            run("cd ..")
        # This version of Yosys maps with ABC9, with and without -abc9.
        synthesise = f"{self.command} -top {self.top}"
        run(f"{synthesise} -run begin:{self.memories}")
        run("select -write memories.txt t:$mem*")
        if Path("memories.txt").read_text():
            run(f"{synthesise} -run {self.memories}:map_ffram")
        # Without memories, the skipped step would only read libraries, which takes a third of the time.
        run(f"{synthesise} -run map_ffram:")
        run("tee -q -o cells.json stat -json")
        # Yosys expects a shell pattern, not a regular expression. A kept module may end paths at its own registers.
        ends = [self.ff.replace(".*", "*"), *self.keep]
        run(f"tee -q -o path.txt ltp {' '.join(f't:{cell}' for cell in ends)} {'%u ' * len(self.keep)}%n")
        if self.netlist:
            run("write_json netlist.json")


def main() -> None:
    """Run the job of the working folder."""
    given = json.loads(Path("job.json").read_text())
    recipe = FpgaSynthesis(
        **{parameter.name: given[parameter.name] for parameter in fields(FpgaSynthesis) if parameter.name in given}
    )
    if recipe.netlist:
        _run_once(recipe)
    else:
        recipe.run()


def _run_once(recipe: FpgaSynthesis) -> None:
    """Write the results of a recipe from the cache, or run it and store them."""
    parts = (Path("design.v").read_text(), recipe, code(*YOSYS, imports=False), version("pyosys"))
    entry = Entry.of("netlist", parts, recipe.top)
    with entry.lock():
        if (folder := entry.find()) is None:
            # Yosys ends the process on an error, so it does not run inside the folder of the entry.
            recipe.run()
            with entry.replacing() as folder:
                for name in RESULTS:
                    (folder / name).write_bytes(gzip.compress(Path(name).read_bytes(), mtime=0))
        else:
            for name in RESULTS:
                Path(name).write_bytes(gzip.decompress((folder / name).read_bytes()))


if __name__ == "__main__":
    main()
