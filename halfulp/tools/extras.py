"""Extras of the package: the packages of each, and the one to install for missing packages."""

import ast
import functools
import importlib.metadata
import importlib.util
import re
import sys
import threading
import traceback
from collections.abc import Collection

from .digests import PACKAGE, path_of
from .errors import ToolError

DEVELOPMENT = "docs", "dev"
"""Extras for those who change the package."""

_ORDER = "golden", "synth", "report", "sim", "train", "uvm", "fpga"
"""Extras that a missing package is looked up in first, the smallest one first."""

_PACKAGES = {"PIL": "pillow", "cocotb_tools": "cocotb", "find_libpython": "cocotb", "yaml": "pyyaml"}
"""Packages of modules that are not called like their package."""

_PARSING = threading.Lock()


@functools.cache
def extras() -> dict[str, tuple[str, ...]]:
    """Return the requirements of each extra, without versions: packages, and extras as ``halfulp[sim]``.

    They are those of the installed distribution; without one there are no extras.
    """
    try:
        lines = importlib.metadata.requires(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for line in lines:
        if (extra := re.search(r"""\bextra == ['"]([\w-]+)""", line)) and (
            named := re.match(r"([\w.-]+)(\[.*?\])?", line)
        ):
            inner = [f"{PACKAGE}[{name}]" for name in (named[2] or "").strip("[]").split(",") if name]
            found[extra[1]] = (*found.get(extra[1], ()), *(inner or [named[1]]))
    return found


def included(requirement: str) -> str | None:
    """Return the name of the extra that a requirement includes; None for a package."""
    match = re.fullmatch(rf"{PACKAGE}\[(.*)\]", requirement)
    return match and match[1]


def packages(extra: str) -> set[str]:
    """Return the packages of an extra and of those that it includes."""
    found = set[str]()
    for requirement in extras()[extra]:
        inner = included(requirement)
        found |= {requirement} if inner is None else packages(inner)
    return found


def without(names: Collection[str]) -> str:
    """Return the sentence about modules that are not installed, with the smallest extra that has them all."""
    wanted = sorted({_PACKAGES.get(name, name.replace("_", "-")) for name in names})
    known = dict.fromkeys((*_ORDER, *extras()))
    extra = next((name for name in known if name in extras() and packages(name) >= {*wanted}), None)
    run = f"run: pip install {' '.join(wanted)}" if extra is None else install(extra)
    words = " and ".join(filter(None, (", ".join(wanted[:-1]), wanted[-1])))
    return f"{words} {'is' if len(wanted) == 1 else 'are'} not installed; {run}"


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"run: pip install '{PACKAGE}[{extra}]'"


def missing_of(error: ModuleNotFoundError) -> set[str]:
    """Return the missing modules of other packages: that of an error, and those of the import that failed.

    Empty if a module of this package is missing.
    """
    name = str(error.name).partition(".")[0]
    if error.name is None or name == PACKAGE:
        return set()
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code.co_name == "<module>")
    modules = (str(frame.f_globals["__name__"]) for frame in frames)
    begun = next((module for module in modules if module.startswith(f"{PACKAGE}.")), None)
    return {name} | (missing(begun) if begun else set())


def check_installed(module: str) -> None:
    """Raise ToolError if a package is missing that a module needs when it is loaded."""
    if names := missing(module):
        raise ToolError(without(names))


def missing(module: str) -> set[str]:
    """Return the missing modules of other packages that a module needs when it is loaded."""
    waiting, known = [module], set[str]()
    while waiting:
        name = waiting.pop()
        if name not in known:
            known.add(name)
            waiting += _loaded(name)
    return {name for name in _others(known) if importlib.util.find_spec(name) is None}


def _others(modules: Collection[str]) -> set[str]:
    """Return the names of other packages than this one and Python's own."""
    return {name.partition(".")[0] for name in modules} - {PACKAGE, *sys.stdlib_module_names}


@functools.cache
def _loaded(module: str) -> tuple[str, ...]:
    """Return the modules that are loaded before a module, and by its own import statements."""
    if (path := path_of(module)) is None:
        return ()
    parent = module.rpartition(".")[0]
    package = module if path.name == "__init__.py" else parent
    found = [parent] * bool(parent)
    # Python 3.11 raises SystemError now and then if several threads make syntax trees at once.
    with _PARSING:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            # Other names are those of functions and classes.
            found += [base, *(name for alias in node.names if path_of(name := f"{base}.{alias.name}") is not None)]
    return tuple(found)
