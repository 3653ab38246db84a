"""Kernels as shared libraries, compiled at their first use and cached by content."""

import ctypes
import functools
import math
import os
import re
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
"""Values of the setting, and compiler flags for their instructions. With ``auto`` a kernel is compiled after its work
has taken as long without it as compiling takes; with ``torch`` there are no kernels."""

COMPILING = 3.0
"""Seconds for compiling a kernel of one description."""

FLAGS = (
    "-O3",
    "-std=c++17",
    "-shared",
    "-fPIC",
    "-pthread",
    "-fno-math-errno",
    "-fno-trapping-math",
    # Kernels change the rounding mode.
    "-frounding-math",
    # Products are exact where their rounding matters, so that fused and separate operations agree.
    "-ffp-contract=fast",
    "-fvisibility=hidden",
    "-Wno-psabi",
    "-Wno-attributes",
)


def level() -> str:
    """Value of the setting in the environment; ValueError if it is unknown."""
    given = os.environ.get(SETTING) or "auto"
    if given not in LEVELS:
        raise ValueError(f"{SETTING} is {given!r}; it may be {', '.join(LEVELS)}")
    return given


def library(name: str, source: str, seconds: float = math.inf, compiling: float | None = None) -> ctypes.CDLL | None:
    """The compiled source; None if kernels are off, cannot be built (with one warning), or are not yet worth building.

    Parameters
    ----------
    name : str
        Beginning of the file's name.
    source : str
        C++ that includes headers of this folder.
    seconds : float
        Time of the present work without it.
    compiling : float, optional
        Time of building it; default: ``COMPILING``.
    """
    chosen = level()
    if chosen == "torch":
        return None
    compiler = tuple(shlex.split(os.environ.get("CXX") or "g++"))
    if chosen == "auto" and not _is_due(
        name, source, compiler, build_root(), seconds, COMPILING if compiling is None else compiling
    ):
        return None
    return _library(name, source, chosen, compiler, build_root())


_spent: dict[tuple[str, Path], float] = {}
"""Seconds that the work of a kernel took without it."""


def _is_due(name: str, source: str, compiler: tuple[str, ...], root: Path, seconds: float, compiling: float) -> bool:
    """True if a kernel is built, or its work has taken as long without it as building takes."""
    spent = _spent.get((source, root), 0.0)
    if not spent:
        entry = _entry(name, source, "auto", compiler)
        try:
            spent = math.inf if entry is not None and entry.find() else 0.0
        except ToolError:
            # `_library` reports it.
            spent = math.inf
    _spent[source, root] = spent + seconds
    return spent + seconds >= compiling


def has_fma() -> bool:
    """True if the machine that kernels are compiled for has a fused multiply-add."""
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
        lines = str(getattr(error, "stderr", "") or error).strip().splitlines()
        first = next((line for line in lines if "error" in line.lower()), lines[0])
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
    """The code of all headers, without comments: a changed comment compiles nothing again."""
    headers = "\n".join(path.read_text() for path in sorted(Path(__file__).parent.glob("*.h")))
    return re.sub(r"\s*//.*", "", headers)


def _compile(source: str, command: list[str], folder: Path) -> None:
    text = folder / "kernel.cpp"
    text.write_text(source)
    command = [*command, f"-I{Path(__file__).parent}", str(text), "-o", str(folder / "kernel.so")]
    subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)


@functools.lru_cache
def _say(sentence: str) -> None:
    """Warn with each sentence once."""
    warnings.warn(f"halfulp: {sentence}", RuntimeWarning, stacklevel=2)
