"""Lint of Verilog files by slang and Yosys: ``python -m tests.verilog_lint FILE... TOP``.

The lint runs in a separate process, because a crash of either library would end the test run.
"""

import sys

import pyslang
from pyosys import libyosys


def main(*words: str) -> None:
    """Lint files; exit with an error if a tool warns."""
    *paths, top = words
    files = " ".join(paths)
    language = "-sv" if any(path.endswith(".sv") for path in paths) else ""
    driver = pyslang.driver.Driver()
    driver.addStandardArgs()
    assert driver.parseCommandLine(f"slang {files} --top {top}", pyslang.driver.CommandLineOptions())
    assert driver.processOptions()
    assert driver.parseAllSources()
    driver.runFullCompilation(True)
    assert (driver.diagEngine.numErrors, driver.diagEngine.numWarnings) == (0, 0)
    # Yosys has a front end of its own, and that of slang.
    for read in (f"read_verilog {language} {files}", f"read_slang {files} --top {top}"):
        design = libyosys.Design()
        for command in (read, f"hierarchy -check -top {top}", "proc", "check -assert"):
            libyosys.run_pass(command, design)


if __name__ == "__main__":
    main(*sys.argv[1:])
