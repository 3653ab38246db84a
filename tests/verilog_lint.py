"""Lint of a Verilog file by slang and Yosys: ``python -m tests.verilog_lint FILE TOP``.

The lint runs in a separate process, because a crash of either library would end the test run.
"""

import sys

import pyslang
from pyosys import libyosys


def main(path: str, top: str) -> None:
    """Lint a file; exit with an error if a tool warns."""
    driver = pyslang.driver.Driver()
    driver.addStandardArgs()
    assert driver.parseCommandLine(f"slang {path} --top {top}", pyslang.driver.CommandLineOptions())
    assert driver.processOptions()
    assert driver.parseAllSources()
    driver.runFullCompilation(True)
    assert (driver.diagEngine.numErrors, driver.diagEngine.numWarnings) == (0, 0)
    design = libyosys.Design()
    for command in (f"read_verilog {path}", f"hierarchy -check -top {top}", "proc", "check -assert"):
        libyosys.run_pass(command, design)


if __name__ == "__main__":
    main(*sys.argv[1:])
