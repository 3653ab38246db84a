"""Parts of cache keys: digests of contents and of the code of modules, and versions of packages."""

import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import CodeType

PACKAGE = __name__.partition(".")[0]

NONE = "none"
"""Version of a distribution that is not installed."""

_IMPORT = re.compile(r"^\s*(?:from\s+([.\w]+)\s+import\s+(\([^)]*\)|[^\n#]*)|import\s+([^\n#]*))", re.M)


def digest(*parts: object) -> str:
    """Return a short hash of objects, by the fields of dataclasses and the texts of other objects."""
    return hashlib.sha256("\0".join(map(_text, parts)).encode()).hexdigest()[:20]


def _text(part: object) -> str:
    # Different dataclasses, such as codebooks with one name, may have the same text.
    if is_dataclass(part) and not isinstance(part, type):
        values = (getattr(part, field.name) for field in fields(part) if field.compare)
        return f"{type(part).__name__}({', '.join(map(_text, values))})"
    if isinstance(part, tuple | list):
        return f"({', '.join(map(_text, part))})"
    if isinstance(part, dict):
        return _text(list(part.items()))
    return str(part)


def version(distribution: str) -> str:
    """Return the version of an installed distribution, or `NONE`."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return NONE


def commit() -> str:
    """Return the commit of the checkout, with ``+`` if a file of code differs from it; empty outside a checkout."""
    root = Path(__file__).parents[2]
    asked = ["rev-parse", "--short=10", "HEAD"], ["status", "--porcelain", "--", "*.py", "*.h", "*.cpp"]
    try:
        head, changed = (subprocess.check_output(["git", "-C", root, *words], text=True).strip() for words in asked)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head + "+" * bool(changed)


def code(*modules: str, imports: bool = True) -> str:
    """Return a hash of the code of modules and, with ``imports``, of all modules of this package that they import.

    The hash covers executed code: no comments, blank lines and docstrings, and the C++ headers beside a module.
    It includes the ``__init__`` of a package only if a name is imported from the package itself, not if only a module
    in it is imported.
    """
    waiting, digest_of = list(modules), dict[str, str]()
    while waiting:
        name = waiting.pop()
        if name not in digest_of:
            digest_of[name], needed = _module(name)
            waiting += needed * imports
    return digest(*sorted(digest_of.items()))


def modules() -> Iterator[str]:
    """Yield the names of all modules of this package."""
    root = Path(__file__).parents[1]
    for folder, _, files in os.walk(root, followlinks=True):
        place = Path(folder).relative_to(root)
        yield from (".".join((PACKAGE, *place.parts, file[:-3])) for file in files if file.endswith(".py"))


@functools.cache
def _module(name: str) -> tuple[str, list[str]]:
    """Return the hash of a module's code, and the modules of this package that it imports."""
    path = path_of(name)
    assert path is not None, name
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    imports = [
        module for match in _IMPORT.finditer(path.read_text(encoding="utf-8")) for module in _imported(match, package)
    ]
    beside = headers(path.parent)
    return digest(source(path), beside) if beside else source(path), imports


@functools.cache
def headers(folder: Path) -> str:
    """Return the text of the C++ headers of a folder without comments."""
    return re.sub(r"\s*//.*", "", "\n".join(path.read_text() for path in sorted(folder.glob("*.h"))))


def source(path: Path) -> str:
    """Return a hash of the executed code of a file: no comments, blank lines and docstrings."""
    # Compilation is five times as fast as ast.dump, and removes docstrings.
    return digest(
        *_executed(compile(path.read_text(encoding="utf-8"), path.name, "exec", dont_inherit=True, optimize=2))
    )


def _executed(compiled: CodeType) -> Iterator[object]:
    """Yield the parts of a code object that decide its behaviour: no line numbers and file names."""
    for name in ("co_name", "co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars"):
        yield getattr(compiled, name)
    yield compiled.co_argcount, compiled.co_posonlyargcount, compiled.co_kwonlyargcount, compiled.co_flags
    for constant in compiled.co_consts:
        if isinstance(constant, CodeType):
            yield from _executed(constant)
        else:
            # The order of a frozenset differs between processes.
            yield sorted(map(repr, constant)) if isinstance(constant, frozenset) else repr(constant)


def _imported(match: re.Match[str], package: str) -> Iterator[str]:
    base, names, plain = match.groups()
    if plain is not None:
        yield from (name for name in re.findall(r"[\w.]+", plain) if path_of(name) is not None)
        return
    module = importlib.util.resolve_name(base, package) if base.startswith(".") else base
    if module.partition(".")[0] != PACKAGE:
        return
    parts = [f"{module}.{name}" for name in re.findall(r"(\w+)(?:\s+as\s+\w+)?", names)]
    inner = [part for part in parts if path_of(part) is not None]
    yield from inner
    if len(inner) < len(parts) and path_of(module) is not None:
        yield module


@functools.cache
def path_of(module: str) -> Path | None:
    """Return the source file of a module of this package; None for other modules."""
    head, *rest = module.split(".")
    if head != PACKAGE:
        return None
    place = Path(__file__).parents[1].joinpath(*rest)
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)
