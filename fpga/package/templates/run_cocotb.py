"""Run the cocotb tests of modules: ``python3 tb/run_cocotb.py SIMULATOR MODULE...``.

SIMULATOR is icarus or verilator, and MODULE a unit or its AXI4-Stream wrapper. Needs cocotb 2.
"""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner

ROOT = Path(__file__).resolve().parents[1]


def main(simulator: str, *modules: str) -> int:
    """Build and test each module; return the number of failed tests."""
    manifest = json.loads((ROOT / "manifest.json").read_text())
    sources = [
        ROOT / file["path"] for file in manifest["files"] if file["kind"] == "verilog" and "rtl/" in file["path"]
    ]
    failed = 0
    for module in modules:
        folder = ROOT / "build" / f"cocotb_{simulator}_{module}"
        runner = get_runner(simulator)
        # The tests run for less time than a compiler would take to optimise the model.
        os.environ["MAKEFLAGS"] = "OPT_FAST=-O0 OPT_SLOW=-O0 OPT_GLOBAL=-O0"
        flags = ["-Wno-fatal", "-Wno-lint", "-Wno-style"] if simulator == "verilator" else []
        runner.build(sources=sources, hdl_toplevel=module, build_dir=folder, build_args=flags, always=True)
        results = folder / "results.xml"
        # After a failure the runner may end the program; the other modules are to be tested, too.
        with suppress(SystemExit):
            runner.test(
                hdl_toplevel=module,
                test_module="test_units",
                test_dir=Path(__file__).parent,
                build_dir=folder,
                results_xml=str(results),
            )
        count, wrong = get_results(results) if results.is_file() else (0, 0)
        failed += wrong if count else 1
    return failed


if __name__ == "__main__":
    sys.exit(1 if main(*sys.argv[1:]) else 0)
