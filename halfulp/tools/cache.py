"""Cache of results on disk, by the parts that they depend on.

An entry is a folder, named by a digest of its parts, that is written whole or not at all. Its manifest has the length
and the digest of each file; they are checked before use, and a damaged entry is made again. A process that makes an
entry holds a lock on it, for which other processes wait. If the build folder cannot be written, its entries are used,
and new ones go to a temporary folder of the process. Writing raises ToolError if the disk is full or a file cannot be
written, and every use raises it if other users can write an entry or a folder above it: entries hold code.
"""

import contextlib
import hashlib
import json
import re
import shutil
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from .digests import digest
from .paths import build_root, check_private, locked, replacing_folder, work_root, writable

MANIFEST = "manifest.json"
"""File of an entry that lists the other ones."""

FOLDER = "cache"
"""Folder of all entries in the build folder."""

VALUE = "value.json"
"""File of an entry that is a value."""

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Entry:
    """A place in the cache.

    Attributes
    ----------
    kind : str
        Folder of all entries of this kind.
    name : str
        The entry's own folder.
    """

    kind: str
    name: str

    @classmethod
    def of(cls, kind: str, parts: Iterable[object], name: str = "") -> "Entry":
        """The entry of a result.

        Parameters
        ----------
        kind : str
            Kind of the result.
        parts : iterable
            Everything that the result depends on, as texts or as objects with a unique text.
        name : str
            Beginning of the folder's name, for people.
        """
        title = re.sub(r"[^\w.+-]+", "_", name)[:80]
        return cls(kind, f"{title}-{digest(*parts)}" if title else digest(*parts))

    @property
    def folder(self) -> Path:
        """Folder of an entry that this process writes."""
        return writable(work_root() / FOLDER / self.kind) / self.name

    def find(self) -> Path | None:
        """The folder of the entry; None if there is none, or (with a message on standard error) if it is damaged."""
        for folder in dict.fromkeys((self.folder, build_root() / FOLDER / self.kind / self.name)):
            if folder.is_dir():
                for place in (folder, *list(folder.parents)[:3]):
                    check_private(place)
                wrong = _damage(folder)
                if wrong is None:
                    return folder
                print(f"halfulp: {folder} is damaged ({wrong}) and is made again", file=sys.stderr)
        return None

    @contextlib.contextmanager
    def replacing(self) -> Iterator[Path]:
        """A folder to fill: it replaces the entry if the body ends well, and is removed otherwise."""
        with replacing_folder(self.folder) as folder:
            yield folder
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            listed = {str(path.relative_to(folder)): [path.stat().st_size, _digest(path)] for path in files}
            (folder / MANIFEST).write_text(json.dumps(listed))

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Keep out other processes and threads that make this entry."""
        return locked(self.folder.with_name(f".{self.name}.lock"))

    def value(self) -> Any | None:
        """The value that was stored, or None."""
        folder = self.find()
        return None if folder is None else json.loads((folder / VALUE).read_text())

    def store(self, value: Any) -> None:
        """Store a value that JSON can hold, in place of an earlier one."""
        with self.lock(), self.replacing() as folder:
            (folder / VALUE).write_text(json.dumps(value))

    def drop(self) -> None:
        """Remove the entry."""
        shutil.rmtree(self.folder, ignore_errors=True)


def cached(kind: str, parts: Iterable[object], make: Callable[[Path], object], *, name: str = "") -> Path:
    """Folder with the files of a result, made if it is not there.

    Parameters
    ----------
    kind, parts, name
        As `Entry.of` takes them.
    make : callable
        Writes the files to the given folder.
    """
    return cached_all({None: Entry.of(kind, parts, name)}, lambda folders: make(folders[None]))[None]


def cached_value(kind: str, parts: Iterable[object], make: Callable[[], Any], *, name: str = "") -> Any:
    """A value that JSON can hold, made if it is not there; otherwise as `cached`."""

    def write(folder: Path) -> None:
        (folder / VALUE).write_text(json.dumps(make()))

    return json.loads((cached(kind, parts, write, name=name) / VALUE).read_text())


def cached_all(entries: Mapping[K, Entry], make: Callable[[dict[K, Path]], object]) -> dict[K, Path]:
    """Folders of several entries; missing ones are made together.

    ``make`` writes the files of the missing entries to the given folders.
    """
    found = {key: entry.find() for key, entry in entries.items()}
    if missing := [key for key, folder in found.items() if folder is None]:
        with contextlib.ExitStack() as held:
            # In the same order everywhere, so that no two processes wait for each other.
            for key in sorted(missing, key=lambda key: entries[key].name):
                held.enter_context(entries[key].lock())
            # Another process may have made them meanwhile.
            still = [key for key in missing if _damage(entries[key].folder) is not None]
            with contextlib.ExitStack() as folders:
                scratch = {key: folders.enter_context(entries[key].replacing()) for key in still}
                if scratch:
                    make(scratch)
        found |= {key: entries[key].folder for key in missing}
    return {key: folder for key, folder in found.items() if folder is not None}


def _damage(folder: Path) -> str | None:
    """First difference of an entry from its manifest, or None."""
    try:
        listed = json.loads((folder / MANIFEST).read_text())
        for name, (length, known) in listed.items():
            path = folder / name
            if path.stat().st_size != length:
                return f"{name} has {path.stat().st_size} bytes instead of {length}"
            if _digest(path) != known:
                return f"{name} has another digest than in its manifest"
    except OSError as error:
        return f"{Path(error.filename or folder).name}: {error.strerror}"
    except (ValueError, TypeError, AttributeError):
        return f"{MANIFEST} cannot be read"
    return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
