"""Compilation of kernels to shared libraries, cached by content."""

import contextlib
import ctypes
import functools
import math
import os
import shlex
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

from halfulp.tools.cache import Entry, cached_all
from halfulp.tools.digests import headers
from halfulp.tools.errors import ToolError
from halfulp.tools.paths import build_root
from halfulp.tools.progress import heartbeat

SETTING = "HALFULP_KERNEL"
LEVELS = {
    "auto": ("-march=native",),
    "native": ("-march=native",),
    "avx2": ("-mavx2", "-mfma"),
    "portable": (),
    "scalar": ("-DHALFULP_SCALAR", "-fno-tree-vectorize"),
    "torch": None,
}
"""Compiler flags of each value of ``HALFULP_KERNEL``; None if it disables kernels.

With ``auto``, a kernel is compiled at the first call that takes `WORTH` or longer without it.
"""

WORTH = 1e-3
"""Seconds that a call must take without a kernel, as far as its shapes tell, so that the kernel is compiled for it."""

HEADERS = Path(__file__).parent
"""Folder of the headers."""

SILENT = 2.0
"""Seconds of compilation before a line on standard error says what is compiled."""

FLAGS = (
    "-O2",
    "-ftree-vectorize",
    "-fvect-cost-model=dynamic",
    "-std=c++17",
    "-shared",
    "-fPIC",
    "-pthread",
    "-fno-math-errno",
    "-fno-trapping-math",
    # Kernels change the rounding mode of the processor.
    "-frounding-math",
    # Products are exact where their rounding matters: fused and separate operations give the same results.
    "-ffp-contract=fast",
    "-fvisibility=hidden",
    "-Wno-psabi",
    "-Wno-attributes",
    # A new rounding mode needs its case in each switch.
    "-Werror=switch",
)


def level() -> str:
    """Return the value of ``HALFULP_KERNEL``; ValueError if it is unknown."""
    given = os.environ.get(SETTING) or "auto"
    if given not in LEVELS:
        raise ValueError(f"invalid {SETTING} {given!r}: expected {', '.join(LEVELS)}")
    return given


def library(name: str, source: str, seconds: float = math.inf) -> ctypes.CDLL | None:
    """Compile a kernel or load it from the cache; None if that is disabled, fails (with a warning) or is not worth it.

    Whether it is worth it depends on the current call only, so that all calls of one shape take the same time, apart
    from the one that compiles.

    Parameters
    ----------
    name : str
        Beginning of the file name.
    source : str
        C++ source that includes headers of this folder.
    seconds : float
        Time that the current call takes without the kernel.
    """
    settings = (source, *map(os.environ.get, (SETTING, "CXX", "HALFULP_BUILD")))
    if settings in _loaded:
        return _loaded[settings]
    chosen = level()
    if chosen == "torch":
        return None
    compiler = tuple(shlex.split(os.environ.get("CXX") or "g++"))
    if not is_worth(name, source, seconds):
        return None
    loaded = _library(name, source, chosen, compiler, build_root())
    if loaded is not None:
        _loaded[settings] = loaded
    return loaded


_PROCESS = os.getpid()
"""Process that loaded this module; processes that it forks have none of the threads of its OpenMP library."""

_loaded: dict[tuple[str | None, ...], ctypes.CDLL] = {}
"""Libraries in use, by source and settings."""


def is_worth(name: str, source: str, seconds: float) -> bool:
    """Return True if `library` compiles or loads a kernel for a call of ``seconds`` without it."""
    compiler = tuple(shlex.split(os.environ.get("CXX") or "g++"))
    return level() != "auto" or seconds >= WORTH or _is_cached(name, source, compiler, build_root())


def is_compiled(name: str, source: str) -> bool:
    """Return True if a kernel is in the cache."""
    entry = _entry(name, source, level(), tuple(shlex.split(os.environ.get("CXX") or "g++")))
    return entry is not None and entry.find() is not None


@functools.lru_cache(maxsize=4096)
def _is_cached(name: str, source: str, compiler: tuple[str, ...], root: Path) -> bool:
    """Return True if a kernel was in the cache at the first call that could use it."""
    entry = _entry(name, source, "auto", compiler)
    try:
        return entry is not None and entry.find() is not None
    except ToolError:
        # `_library` reports it.
        return True


@contextlib.contextmanager
def in_folder(folder: str) -> Iterator[None]:
    """Keep the cache of compiled kernels in another folder while the body runs."""
    before = os.environ.get("HALFULP_BUILD")
    os.environ["HALFULP_BUILD"] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ["HALFULP_BUILD"]
        else:
            os.environ["HALFULP_BUILD"] = before


def has_fma() -> bool:
    """Return True if kernels are compiled for a processor with a fused multiply-add."""
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
        folder = cached_all({None: entry}, lambda folders: _compile(name, source, command, folders[None]))[None]
        loaded = ctypes.CDLL(str(folder / "kernel.so"))
        ctypes.c_int64.in_dll(loaded, "halfulp_process").value = _PROCESS
        return loaded
    except (OSError, ToolError, subprocess.CalledProcessError) as error:
        lines = str(getattr(error, "stderr", "") or error).strip().splitlines()
        first = next((line for line in lines if "error" in line.lower()), lines[0])
        _warn(f"kernel {name} does not compile ({first}); torch computes the same results, but slower")
        return None


def _entry(name: str, source: str, chosen: str, compiler: tuple[str, ...]) -> Entry | None:
    """Return the cache entry of a kernel; None without a compiler."""
    target = _target(compiler, chosen)
    return None if target is None else Entry.of("kernels", (source, headers(HEADERS), target, *FLAGS), name)


@functools.lru_cache
def _target(compiler: tuple[str, ...], chosen: str) -> str | None:
    """Return the predefined macros of the compiler, which give its version and target; None without a compiler."""
    try:
        if shutil.which(compiler[0]) is None:
            raise FileNotFoundError(f"no {compiler[0]} on PATH")
        command = [*compiler, *(LEVELS[chosen] or ()), "-dM", "-E", "-x", "c++", os.devnull]
        return subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        _warn(f"no C++ compiler for kernels ({error}); torch computes the same results, but slower")
        return None


def _compile(name: str, source: str, command: list[str], folder: Path) -> None:
    text = folder / "kernel.cpp"
    text.write_text(source)
    command = [*command, f"-I{HEADERS}", str(text), "-o", str(folder / "kernel.so")]
    with heartbeat(f"compiling the kernel {name}", SILENT):
        subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)


@functools.lru_cache
def _warn(sentence: str) -> None:
    """Issue a warning, each sentence once."""
    warnings.warn(f"halfulp: {sentence}", RuntimeWarning, stacklevel=2)
