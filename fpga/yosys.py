"""Synthesis by Yosys, for a process of its own: ``python -m halfulp.fpga.yosys TOP FAMILY [PORT=VALUE ...]``.

In the working folder it reads ``design.v``, and leaves ``cells.json``, the cells that there are, and ``path.txt``, the
longest path between ports and flip-flops.
"""

import sys
from pathlib import Path

from pyosys import libyosys


def main(top: str, family: str, *tied: str) -> None:
    """Synthesise ``design.v``; on an error Yosys says so and ends the process."""
    design = libyosys.Design()

    def run(command: str) -> None:
        libyosys.run_pass(command, design)

    run("read_verilog design.v")
    if tied:
        run("proc")
        run(f"cd {top}")
        for pair in tied:
            port, _, value = pair.partition("=")
            run(f"delete -input w:{port}")
            run(f"connect -set {port} {value}")
        run("cd ..")
    # Yosys maps with ABC9 whether it is told -abc9 or not. Buffers and DSP blocks belong to the design around a unit.
    synthesise = f"synth_xilinx -family {family} -flatten -noiopad -noclkbuf -nodsp -top {top}"
    run(f"{synthesise} -run begin:map_memory")
    run("select -write memories.txt t:$mem*")
    if Path("memories.txt").read_text():
        run(f"{synthesise} -run map_memory:map_ffram")
    # Where there is no memory that step does nothing but read libraries, for a third of the time.
    run(f"{synthesise} -run map_ffram:")
    run("tee -q -o cells.json stat -json")
    run("tee -q -o path.txt ltp t:FD* %n")


if __name__ == "__main__":
    main(*sys.argv[1:])
