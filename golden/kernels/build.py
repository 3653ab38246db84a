"""Kernels as shared libraries: compiled when they are first asked for, and kept by content."""

import ctypes
import functools
import math
import os
import shlex
import shutil
import subprocess
import warnings
from pathlib import Path

from halfulp.tools.cache import Entry, cached_all
from halfulp.tools.errors import ToolError
from halfulp.tools.paths import build_root

SETTING = "HALFULP_KERNEL"
LEVELS = {
    "auto": ("-march=native",),
    "native": ("-march=native",),
    "avx2": ("-mavx2", "-mfma"),
    "portable": (),
    "torch": None,
}
"""What the setting may be, and the instructions that the compiler may then use. With ``auto`` a kernel is compiled when
it would have saved as much time as that takes; ``torch`` asks for no kernels."""

COMPILING = 3.0
"""Seconds that it takes to compile a kernel."""

FLAGS = (
    "-O3",
    "-std=c++17",
    "-shared",
    "-fPIC",
    "-pthread",
    "-fno-math-errno",
    "-fno-trapping-math",
    # The rounding mode is not the usual one everywhere.
    "-frounding-math",
    # Where it counts, products are exact, so that fused and separate operations are the same.
    "-ffp-contract=fast",
    "-fvisibility=hidden",
    "-Wno-psabi",
    "-Wno-attributes",
)


def level() -> str:
    """The instructions that kernels may use, from the environment.

    Raises
    ------
    ValueError
        If the setting is none.
    """
    given = os.environ.get(SETTING) or "auto"
    if given not in LEVELS:
        raise ValueError(f"{SETTING} is {given!r}; it may be {', '.join(LEVELS)}")
    return given


def library(name: str, source: str, seconds: float = math.inf) -> ctypes.CDLL | None:
    """The compiled source, or None where kernels are not wanted or cannot be had, which is said once.

    None too where it is not there and not yet worth the time to compile it.

    Parameters
    ----------
    name : str
        What the file's name begins with.
    source : str
        C++ that includes headers of this folder.
    seconds : float
        What torch takes for the work at hand.
    """
    chosen = level()
    if chosen == "torch":
        return None
    compiler = tuple(shlex.split(os.environ.get("CXX") or "g++"))
    if chosen == "auto" and not _is_due(name, source, compiler, build_root(), seconds):
        return None
    return _library(name, source, chosen, compiler, build_root())


_spent: dict[tuple[str, Path], float] = {}
"""Seconds that torch took for what a kernel would have done."""


def _is_due(name: str, source: str, compiler: tuple[str, ...], root: Path, seconds: float) -> bool:
    """Whether a kernel is there, or torch has taken as long for its work as it takes to compile."""
    spent = _spent.get((source, root), 0.0)
    if not spent:
        entry = _entry(name, source, "auto", compiler)
        spent = math.inf if entry is not None and entry.find() else 0.0
    _spent[source, root] = spent + seconds
    return spent + seconds >= COMPILING


def has_fma() -> bool:
    """Whether the machine that kernels are compiled for has a fused multiply-add."""
    chosen = level()
    compiler = tuple(shlex.split(os.environ.get("CXX") or "g++"))
    return chosen != "torch" and "__FMA__" in (_target(compiler, chosen) or "")


@functools.lru_cache(maxsize=4096)
def _library(name: str, source: str, chosen: str, compiler: tuple[str, ...], root: Path) -> ctypes.CDLL | None:
    entry = _entry(name, source, chosen, compiler)
    if entry is None:
        return None
    command = [*compiler, *FLAGS, *(LEVELS[chosen] or ())]
    try:
        folder = cached_all({None: entry}, lambda folders: _compile(source, command, folders[None]))[None]
        return ctypes.CDLL(str(folder / "kernel.so"))
    except (OSError, ToolError, subprocess.CalledProcessError) as error:
        told = str(getattr(error, "stderr", "") or error).strip()
        first = next((line for line in told.splitlines() if "error" in line.lower()), told.splitlines()[0])
        _say(f"the kernel {name} could not be built ({first}); plain torch computes the same bits, slowly")
        return None


def _entry(name: str, source: str, chosen: str, compiler: tuple[str, ...]) -> Entry | None:
    """Place of a compiled source in the cache; None where there is no compiler."""
    target = _target(compiler, chosen)
    return None if target is None else Entry.of("kernels", (source, _headers(), target, *FLAGS), name)


@functools.lru_cache
def _target(compiler: tuple[str, ...], chosen: str) -> str | None:
    """The compiler's version and all that it knows of the machine, as macros; None where there is no compiler."""
    try:
        if shutil.which(compiler[0]) is None:
            raise FileNotFoundError(f"there is no {compiler[0]} on PATH")
        command = [*compiler, *(LEVELS[chosen] or ()), "-dM", "-E", "-x", "c++", os.devnull]
        return subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        _say(f"there is no C++ compiler for kernels ({error}); plain torch computes the same bits, slowly")
        return None


@functools.lru_cache
def _headers() -> str:
    return "\n".join(path.read_text() for path in sorted(Path(__file__).parent.glob("*.h")))


def _compile(source: str, command: list[str], folder: Path) -> None:
    text = folder / "kernel.cpp"
    text.write_text(source)
    command = [*command, f"-I{Path(__file__).parent}", str(text), "-o", str(folder / "kernel.so")]
    subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)


@functools.lru_cache
def _say(sentence: str) -> None:
    """Warn of a thing once, whatever filters Python has for warnings."""
    warnings.warn(f"halfulp: {sentence}", RuntimeWarning, stacklevel=2)
