"""Check of the machine: packages of each extra, programs, and the build folder."""

import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

from halfulp import __version__
from halfulp.sim.toolchain import verilator
from halfulp.tools.digests import NONE, version
from halfulp.tools.errors import ToolError
from halfulp.tools.extras import DEVELOPMENT, extras, included, install, packages
from halfulp.tools.paths import build_root, machine_errors

PROGRAMS = {
    "c++": ("compiled kernels, and simulation of units", "Debian: apt install g++"),
    "make": ("simulation of units", "Debian: apt install make"),
    "iverilog": ("test benches of packages, optional", "Debian: apt install iverilog"),
    "sta": ("timing of standard cells, optional", "Debian: apt install opensta"),
    "vivado": ("synthesis for AMD devices, optional", "from AMD"),
}
"""Programs by name, with their use and their origin."""


class Finding(NamedTuple):
    """A line of the check; the state is ``ok``, ``absent``, or ``needed`` for something that a command lacks."""

    name: str
    text: str
    state: str = "ok"


def findings() -> Iterator[Finding]:
    """Check the machine."""
    yield Finding(
        "halfulp", f"{__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    )
    present = set()
    for extra, requirements in extras().items():
        if extra in DEVELOPMENT:
            continue
        missing = [name for name in requirements if any(_is_absent(part) for part in _parts(name))]
        if missing:
            text = f"without {', '.join(included(name) or name for name in missing)}; {install(extra)}"
            yield Finding(extra, text, "absent")
        else:
            present.add(extra)
            shown = [included(name) or f"{name} {version(name)}" for name in requirements]
            yield Finding(extra, ", ".join(text for text in shown if not text.endswith(f" {NONE}")))
    yield _verilator("sim" in present)
    for name, (use, origin) in PROGRAMS.items():
        command = shlex.split(os.environ.get("CXX") or "g++") if name == "c++" else [name]
        needed = "sim" in present and "optional" not in use
        if shutil.which(command[0]) is None:
            yield Finding(name, f"no {command[0]} for {use} ({origin})", "needed" if needed else "absent")
        else:
            yield Finding(name, _first_line(command))
    yield _folder()


def _is_absent(package: str) -> bool:
    """Return True if a package is not installed; a Verilator of the system replaces that package."""
    return version(package) == NONE and not (package == "verilator" and _verilator(True).state == "ok")


def _verilator(needed: bool) -> Finding:
    """Return the Verilator that simulations use."""
    try:
        tool = verilator()
    except ToolError as error:
        return Finding("verilator", str(error), "needed" if needed else "absent")
    return Finding("verilator", f"{tool.version}, {tool.program}")


def _parts(requirement: str) -> set[str]:
    """Return the packages of a requirement."""
    extra = included(requirement)
    return {requirement} if extra is None else packages(extra)


def _first_line(command: list[str]) -> str:
    """Return the first line that a program prints of its version, or its path."""
    option = "-version" if command[0] in ("sta", "vivado") else "-V" if command[0] == "iverilog" else "--version"
    try:
        run = subprocess.run([*command, option], capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return str(shutil.which(command[0]))
    line = next(iter((run.stdout or run.stderr).splitlines()), str(shutil.which(command[0])))
    return f"OpenSTA {line}" if command[0] == "sta" else line


def _folder() -> Finding:
    folder = build_root()
    try:
        with machine_errors(f"{folder} could not be made"):
            folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free / 2**30
    except (OSError, ToolError) as error:
        return Finding("build", str(error), "needed")
    writes = os.access(folder, os.W_OK)
    text = f"{folder}{'' if writes else ', which cannot be written'}, {free:,.0f} GiB free"
    return Finding("build", text, "ok" if writes else "needed")
