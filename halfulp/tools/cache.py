"""Cache of results on disk, keyed by everything on which they depend.

An entry is a folder, named by a digest of its key and written atomically. Its manifest has the length and the digest of
each file; both are checked before use, and a damaged entry is rebuilt. A process locks an entry while it builds it;
other processes wait. If the build folder is not writable, existing entries are used, and new ones go to a temporary
folder of the process. Writing raises ToolError if the disk is full or a file cannot be written. Reading and writing
raise ToolError if other users can write to an entry or a folder above it, because entries contain code.
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
from .texts import json_of

MANIFEST = "manifest.json"
"""File of an entry that lists its other files."""

FOLDER = "cache"
"""Folder of all entries in the build folder."""

VALUE = "value.json"
"""File of an entry that holds a JSON value."""

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Entry:
    """Entry of the cache.

    Attributes
    ----------
    kind : str
        Folder of all entries of this kind.
    name : str
        Folder of this entry.
    """

    kind: str
    name: str

    @classmethod
    def of(cls, kind: str, parts: Iterable[object], name: str = "") -> "Entry":
        """Make the entry of a result.

        Parameters
        ----------
        kind : str
            Kind of the result.
        parts : iterable
            Key: everything on which the result depends, as texts or as objects with a unique text.
        name : str
            Readable beginning of the folder's name.
        """
        title = re.sub(r"[^\w.+-]+", "_", name)[:80]
        return cls(kind, f"{title}-{digest(*parts)}" if title else digest(*parts))

    @property
    def folder(self) -> Path:
        """Folder to which this process writes the entry."""
        return writable(work_root() / FOLDER / self.kind) / self.name

    def find(self) -> Path | None:
        """Return the folder of the entry; None if it does not exist, or (with a message) if it is damaged."""
        for folder in dict.fromkeys((self.folder, build_root() / FOLDER / self.kind / self.name)):
            if folder.is_dir():
                for place in (folder, *list(folder.parents)[:3]):
                    check_private(place)
                wrong = _damage(folder)
                if wrong is None:
                    return folder
                print(f"halfulp: {folder} is damaged ({wrong}) and will be rebuilt", file=sys.stderr)
        return None

    @contextlib.contextmanager
    def replacing(self) -> Iterator[Path]:
        """Yield a new folder, which replaces the entry if the body succeeds and is removed otherwise."""
        with replacing_folder(self.folder) as folder:
            yield folder
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            listed = {str(path.relative_to(folder)): [path.stat().st_size, _digest(path)] for path in files}
            (folder / MANIFEST).write_text(json.dumps(listed))

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Lock the entry against other processes and threads that build it."""
        return locked(self.folder.with_name(f".{self.name}.lock"))

    def value(self) -> Any | None:
        """Return the stored value, or None."""
        folder = self.find()
        return None if folder is None else json.loads((folder / VALUE).read_text())

    def store(self, value: Any) -> None:
        """Store a JSON value, replacing an earlier one."""
        with self.lock(), self.replacing() as folder:
            (folder / VALUE).write_text(json.dumps(value))

    def drop(self) -> None:
        """Remove the entry."""
        shutil.rmtree(self.folder, ignore_errors=True)


def cached(kind: str, parts: Iterable[object], make: Callable[[Path], object], *, name: str = "") -> Path:
    """Return the folder with the files of a result, which is built if it is not in the cache.

    Parameters
    ----------
    kind, parts, name
        As for `Entry.of`.
    make : callable
        Function that writes the files to the given folder.
    """
    return cached_all({None: Entry.of(kind, parts, name)}, lambda folders: make(folders[None]))[None]


def cached_value(kind: str, parts: Iterable[object], make: Callable[[], Any], *, name: str = "") -> Any:
    """Return a JSON value, which ``make`` computes if it is not in the cache; other parameters as for `cached`."""

    def write(folder: Path) -> None:
        (folder / VALUE).write_text(json.dumps(make()))

    return json.loads((cached(kind, parts, write, name=name) / VALUE).read_text())


def cached_all(entries: Mapping[K, Entry], make: Callable[[dict[K, Path]], object]) -> dict[K, Path]:
    """Return the folders of several entries; one call of ``make`` writes the files of all missing entries."""
    located = {key: entry.find() for key, entry in entries.items()}
    if missing := [key for key, folder in located.items() if folder is None]:
        with contextlib.ExitStack() as held:
            # Every process locks in the same order, so that there is no deadlock.
            for key in sorted(missing, key=lambda key: entries[key].name):
                held.enter_context(entries[key].lock())
            # Another process may have built some of them in the meantime.
            still = [key for key in missing if _damage(entries[key].folder) is not None]
            with contextlib.ExitStack() as folders:
                scratch = {key: folders.enter_context(entries[key].replacing()) for key in still}
                if scratch:
                    make(scratch)
        located |= {key: entries[key].folder for key in missing}
    return {key: folder for key, folder in located.items() if folder is not None}


def _damage(folder: Path) -> str | None:
    """Return the first difference of an entry from its manifest, or None."""
    try:
        listed = json_of((folder / MANIFEST).read_text())
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
