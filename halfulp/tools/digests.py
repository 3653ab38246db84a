"""Digests of contents, of the code of modules, and versions of what is installed: the parts of cache keys."""

import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import CodeType

PACKAGE = __name__.partition(".")[0]

_IMPORT = re.compile(r"^\s*(?:from\s+([.\w]+)\s+import\s+(\([^)]*\)|[^\n#]*)|import\s+([^\n#]*))", re.M)


def digest(*parts: object) -> str:
    """Short hash of some objects: of the fields of dataclasses, and of the texts of others."""
    return hashlib.sha256("\0".join(map(_text, parts)).encode()).hexdigest()[:20]


def _text(part: object) -> str:
    # Two dataclasses, such as codebooks of one name, may have the same text.
    if is_dataclass(part) and not isinstance(part, type):
        values = (getattr(part, field.name) for field in fields(part) if field.compare)
        return f"{type(part).__name__}({', '.join(map(_text, values))})"
    if isinstance(part, tuple | list):
        return f"({', '.join(map(_text, part))})"
    if isinstance(part, dict):
        return _text(list(part.items()))
    return str(part)


def version(distribution: str) -> str:
    """Version of an installed distribution, or ``none``."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def code(*modules: str, imports: bool = True) -> str:
    """Hash of the code of some modules and, with ``imports``, of all modules of this package that they import.

    Only what Python executes counts: comments, blank lines and the text of docstrings do not. A package's
    ``__init__`` counts where something is imported from the package itself, and not where only a module in it is.
    """
    waiting, found = list(modules), dict[str, str]()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name], needed = _module(name)
            waiting += needed * imports
    return digest(*sorted(found.items()))


def modules() -> Iterator[str]:
    """Names of all modules of this package."""
    root = Path(__file__).parents[1]
    for folder, _, files in os.walk(root, followlinks=True):
        place = Path(folder).relative_to(root)
        yield from (".".join((PACKAGE, *place.parts, file[:-3])) for file in files if file.endswith(".py"))


@functools.cache
def _module(name: str) -> tuple[str, list[str]]:
    """Hash of a module's code, and the modules of this package that it imports."""
    path = _path(name)
    assert path is not None, name
    text = path.read_text()
    # Compiling is five times as fast as writing out the syntax tree, and drops docstrings.
    compiled = compile(text, path.name, "exec", dont_inherit=True, optimize=2)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    imports = [module for match in _IMPORT.finditer(text) for module in _imported(match, package)]
    return digest(*_executed(compiled)), imports


def _executed(compiled: CodeType) -> Iterator[object]:
    """All that decides what code does, without line numbers and file names."""
    for name in ("co_name", "co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars"):
        yield getattr(compiled, name)
    yield compiled.co_argcount, compiled.co_posonlyargcount, compiled.co_kwonlyargcount, compiled.co_flags
    for constant in compiled.co_consts:
        if isinstance(constant, CodeType):
            yield from _executed(constant)
        else:
            # The order of a set differs from run to run.
            yield sorted(map(repr, constant)) if isinstance(constant, frozenset) else repr(constant)


def _imported(match: re.Match[str], package: str) -> Iterator[str]:
    base, names, plain = match.groups()
    if plain is not None:
        yield from (name for name in re.findall(r"[\w.]+", plain) if _path(name) is not None)
        return
    module = importlib.util.resolve_name(base, package) if base.startswith(".") else base
    if module.partition(".")[0] != PACKAGE:
        return
    parts = [f"{module}.{name}" for name in re.findall(r"(\w+)(?:\s+as\s+\w+)?", names)]
    inner = [part for part in parts if _path(part) is not None]
    yield from inner
    if len(inner) < len(parts) and _path(module) is not None:
        yield module


@functools.cache
def _path(module: str) -> Path | None:
    """Source file of a module of this package."""
    head, *rest = module.split(".")
    if head != PACKAGE:
        return None
    place = Path(__file__).parents[1].joinpath(*rest)
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)
