"""Programs that build simulations from Verilog, and precompiled parts that do not depend on the design."""

import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from halfulp.tools.cache import cached
from halfulp.tools.digests import NONE, version
from halfulp.tools.errors import ToolError
from halfulp.tools.extras import check_installed, install
from halfulp.tools.processes import Command, run_all

COMPILE = ("-std=gnu++20", "-fPIC", "-pipe", "-w", "-DVM_COVERAGE=0", "-DVM_SC=0")
"""Compiler flags of every C++ file; with ``-pipe`` a stopped compiler leaves no temporary files."""

RUNTIME = ("verilated", "verilated_threads", "verilated_vpi", "verilated_vcd_c")
"""Parts of Verilator's runtime that some kind of model needs."""

PREFIX = """\
#include <cstdint>
#include <memory>
#include "verilated.h"
"""
"""Headers of every model; they are longer than the model itself."""


@functools.cache
def compiler() -> list[str]:
    """Return the command of the C++ compiler: ``$CXX``, else g++; raises ToolError if it is not installed."""
    argv = shlex.split(os.environ.get("CXX") or "g++")
    if shutil.which(argv[0]) is None:
        raise ToolError(
            f"the C++ compiler {argv[0]} was not found; "
            "install g++ (Debian: apt install g++) or set CXX to another compiler"
        )
    return argv


@functools.cache
def compiler_version() -> str:
    """Return the first line of the compiler's version text."""
    answer = subprocess.run([*compiler(), "--version"], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise ToolError(f"the C++ compiler {compiler()[0]} fails with exit code {answer.returncode}")
    return answer.stdout.partition("\n")[0]


@functools.cache
def installed(package: str, program: str) -> Path:
    """Return the folder of an installed package that contains a program; raises ToolError if there is none."""
    check_installed(package)
    spec = importlib.util.find_spec(package)
    for place in spec.submodule_search_locations or [] if spec else []:
        if (Path(place) / program).is_file():
            return Path(place)
    raise ToolError(f"{package} lacks {program}; run: pip install --force-reinstall {package}")


OLDEST = 5, 36
"""Oldest version of Verilator that the runtime of cocotb takes."""


class Verilator(NamedTuple):
    """Program, folder with ``include``, version, and environment of Verilator."""

    program: Path
    root: Path
    version: str
    environment: dict[str, str]


@functools.cache
def verilator() -> Verilator:
    """Return the Verilator of ``PATH`` if it is new enough, else that of the Python package.

    Raises ToolError if there is neither.
    """
    own = version("verilator")
    found, older = _on_path()
    if found is not None:
        return found
    if own == NONE:
        raise ToolError(
            f"Verilator {OLDEST[0]}.{OLDEST[1]:03} or newer was not found{older}; install it so that it is on PATH "
            f"(Debian: apt install verilator), or {install('sim')} (not on arm64 Linux)"
        )
    root = installed("verilator", "bin/verilator_bin")
    return Verilator(root / "bin" / "verilator_bin", root, own, {"VERILATOR_ROOT": str(root)})


def _on_path() -> tuple[Verilator | None, str]:
    """Return the Verilator of ``PATH``, or None and why it is not taken, if there is one."""
    place = shutil.which("verilator")
    # The program of the Python package searches PATH, and would find itself.
    if place is None or Path(place).resolve().stem == "verilator-cli":
        return None, ""
    try:
        text, root = (_answer(place, *words) for words in (["--version"], ["--getenv", "VERILATOR_ROOT"]))
    except (OSError, subprocess.SubprocessError):
        return None, f", because {place} fails"
    number = re.match(r"Verilator (\d+)\.(\d+)", text)
    if number is None or (int(number[1]), int(number[2])) < OLDEST:
        return None, f", because {place} is {text}"
    if not (Path(root) / "include" / "verilated.h").is_file():
        return None, f", because {place} has no headers in {root}"
    # The program finds its own folder; packages of Debian fail with VERILATOR_ROOT.
    return Verilator(Path(place), Path(root), text, {}), ""


def _answer(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=20, stdin=subprocess.DEVNULL)
    return done.stdout.partition("\n")[0].strip()


def cocotb() -> ModuleType:
    """Import the configuration of cocotb; generating Verilog does not need it."""
    from cocotb_tools import config

    return config


def tools() -> str:
    """Return the versions of the tools that affect a built model."""
    return f"{compiler_version()} verilator {verilator().version} cocotb {version('cocotb')}"


def compilation(flags: Sequence[str], log: Path) -> Command:
    """Return the command of the C++ compiler with these flags, the common flags and Verilator's headers."""
    include = verilator().root / "include"
    argv = [*compiler(), *COMPILE, *flags, f"-I{include}", f"-I{include / 'vltstd'}"]
    return Command("the C++ compiler", argv, log)


def verilate(sources: list[Path], top: str, folder: Path, *flags: str, prefix: str = "Vtop") -> Command:
    """Return the command of Verilator that translates Verilog to the C++ class ``prefix`` in ``folder``.

    Lint is off because another test checks for warnings.
    """
    tool = verilator()
    argv = [
        str(tool.program),
        *("--cc", "--quiet", "-Wno-lint", "-Wno-style", "-Wno-fatal", "--prefix", prefix),
        *("--top-module", top, "--Mdir", str(folder), *flags, *map(str, sources)),
    ]
    return Command("Verilator", argv, folder.with_suffix(".verilator.log"), env=os.environ | tool.environment)


def precompiled(flags: Sequence[str]) -> Path:
    """Return the folder of ``prefix.h``, a precompiled header of Verilator for code with these ``flags``.

    It must be the first included file. A compiler that cannot use the precompiled form reads the plain header.
    """

    def make(folder: Path) -> None:
        header = folder / "prefix.h"
        header.write_text(PREFIX)
        files = ("-x", "c++-header", str(header), "-o", f"{header}.gch")
        run_all([compilation([*flags, *files], folder / "prefix.log")])

    return cached("headers", (tools(), COMPILE, flags, PREFIX), make)


def runtime() -> Path:
    """Return the folder of the compiled runtime objects."""
    include = verilator().root / "include"

    def make(folder: Path) -> None:
        # Start with the slowest file, so that parallel compilations end together.
        names = sorted(RUNTIME, key=lambda name: -(include / f"{name}.cpp").stat().st_size)
        files = {name: ("-c", str(include / f"{name}.cpp"), "-o", str(folder / f"{name}.o")) for name in names}
        run_all(compilation(["-O1", "-DVM_TRACE=1", *files[name]], folder / f"{name}.log") for name in names)

    return cached("runtime", (tools(), COMPILE, RUNTIME), make)
