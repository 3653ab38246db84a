"""Lint of Verilog files by Verilator, Icarus if it is installed, slang and Yosys.

The lint of slang and Yosys runs in a separate process, because a crash of either library would end the test run.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from halfulp.sim.toolchain import verilator
from tests.settings import ROOT

WAIVERS = ROOT / "units" / "verilator.vlt"

LANGUAGES = {"2005": ("1364-2005", "-g2005"), "2012": ("1800-2012", "-g2012")}
"""Options of Verilator and Icarus by standard: Verilog 2005 and SystemVerilog 2012."""


def lint(paths: Iterable[Path], top: str, *, language: str = "2005", waivers: Path = WAIVERS) -> None:
    """Lint files by all tools; fail if one warns, except for the waived warnings of ``verilator -Wall``."""
    files, tool = [str(path) for path in paths], verilator()
    standard, icarus = LANGUAGES[language]
    checks = [str(tool.program), "--lint-only", "--quiet", "--language", standard]
    ways = [[]] if language == "2005" else []
    commands = [[*checks, *way, *files, "--top-module", top] for way in (*ways, ["-Wall", str(waivers)])]
    if shutil.which("iverilog"):
        commands.append(["iverilog", icarus, "-Wall", "-tnull", "-s", top, *files])
    for command in commands:
        answer = subprocess.run(
            command, capture_output=True, text=True, env=tool.environment | {"PATH": "/usr/bin:/bin"}
        )
        assert (answer.returncode, answer.stderr) == (0, ""), command
    command = [sys.executable, "-m", "tests.verilog_lint", *files, top]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def main(*words: str) -> None:
    """Lint files by slang and Yosys; exit with an error if one of them warns."""
    import pyslang
    from pyosys import libyosys

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
