"""Short names of contents, of source files and of installed versions: what keys of caches are made of."""

import hashlib
import importlib.metadata
import importlib.util
from collections.abc import Iterable
from pathlib import Path


def digest(*parts: object) -> str:
    """Short name that differs whenever one of the parts does."""
    return hashlib.sha256("\0".join(str(part) for part in parts).encode()).hexdigest()[:20]


def version(distribution: str) -> str:
    """Version of an installed distribution, or ``none``."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def sources(rooms: Iterable[str] = ("hdl", "units")) -> str:
    """Hash of every source file of some rooms: of those that decide a unit's Verilog unless others are named."""
    files = sorted(path for room in rooms for path in _room(room).rglob("*.py"))
    return digest(*(part for path in files for part in (path.name, path.read_text())))


def _room(name: str) -> Path:
    spec = importlib.util.find_spec(f"halfulp.{name}")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).resolve().parent
