"""Build folders, locks, and atomic writing of files and folders.

Writing raises ToolError if the disk is full or a file or folder cannot be written.
"""

import atexit
import contextlib
import errno
import functools
import os
import shutil
import stat
import sys
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import platformdirs

from .errors import ToolError

with warnings.catch_warnings():
    # Without fcntl, a file that exists is the lock, which is enough for the build folder of one user.
    warnings.filterwarnings("ignore", "only soft file lock is available")
    from filelock import FileLock, Timeout

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def build_root() -> Path:
    """Return the build folder: ``$HALFULP_BUILD``, else ``build`` in a checkout, else the user's cache folder."""
    if given := os.environ.get("HALFULP_BUILD"):
        return Path(given).absolute()
    checkout = Path(__file__).resolve().parents[2]
    return checkout / "build" if (checkout / "pyproject.toml").is_file() else platformdirs.user_cache_path("halfulp")


def work_root() -> Path:
    """Return the build folder, or a temporary folder of this process if the build folder is not writable."""
    return writable(build_root())


@functools.cache
def writable(root: Path) -> Path:
    """Create a folder and return it, or a temporary folder of this process if it is not writable."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        check_private(root)
        tempfile.TemporaryFile(dir=root).close()
    except OSError as error:
        if error.errno not in _FULL:
            folder = tempfile.mkdtemp(prefix="halfulp-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            sentence = f"{root} cannot be written ({error.strerror}); this run uses a temporary folder"
            print(f"halfulp: {sentence}", file=sys.stderr)
            return Path(folder)
    return root


def check_private(folder: Path) -> None:
    """Check that only this user, root and the owner of this library can write to a folder; ToolError otherwise.

    A group with the name of this user counts as this user. Windows has access lists instead of these modes.
    """
    if not hasattr(os, "geteuid"):
        return
    folder = folder.resolve()
    for place in (folder, *folder.parents):
        status = place.stat()
        if place == folder:
            trusted = {os.geteuid(), 0, Path(__file__).stat().st_uid}
            shared = status.st_mode & stat.S_IWGRP and not _is_own_group(status.st_gid)
            foreign = status.st_uid not in trusted or status.st_mode & stat.S_IWOTH or shared
        else:
            # In a sticky folder, such as /tmp, users can replace only their own files.
            foreign = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
        if foreign:
            raise ToolError(
                f"other users can write to {place}, but halfulp loads code from {folder}; run chmod go-w {place}, or "
                "set HALFULP_BUILD to a private folder"
            )


def _is_own_group(gid: int) -> bool:
    # Windows lacks both.
    import grp
    import pwd

    try:
        return gid == 0 or grp.getgrgid(gid).gr_name == pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file, which replaces ``path`` if the body succeeds and is removed otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        # mkstemp makes private files; the result gets the default permissions of new files.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(scratch, 0o666 & ~umask)
        os.replace(scratch, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(scratch)
        raise


@contextlib.contextmanager
def machine_errors(doing: str) -> Iterator[None]:
    """Convert OSError to ToolError; ``doing`` names the file or folder that is written."""
    try:
        yield
    except Timeout:
        # Timeout is a subclass of OSError.
        raise
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        if error.errno in _FULL:
            raise ToolError(f"the disk is full: {doing} could not be written{where}; free some space") from error
        raise ToolError(f"{doing} could not be written: {error.strerror or error}{where}") from error


@contextlib.contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Yield a new folder, which replaces ``folder`` if the body succeeds and is removed otherwise.

    Only one process at a time may do this for a folder.
    """
    new, old = (folder.with_name(f".{folder.name}.{part}") for part in ("new", "old"))
    try:
        with machine_errors(str(folder)):
            for stale in (new, old):
                shutil.rmtree(stale, ignore_errors=True)
            new.mkdir(parents=True)
            yield new
            if folder.exists():
                folder.rename(old)
            new.rename(folder)
    finally:
        if old.exists() and not folder.exists():
            old.rename(folder)
        for stale in (new, old):
            shutil.rmtree(stale, ignore_errors=True)


@contextlib.contextmanager
def locked(path: Path, timeout: float = -1) -> Iterator[None]:
    """Hold a lock on a path; wait for other processes and threads, or raise `Timeout`."""
    lock = FileLock(path, timeout=timeout, poll_interval=0.02)
    # Ctrl-C releases the lock at any point.
    try:
        with machine_errors(str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
    finally:
        lock.release()


@contextlib.contextmanager
def scratch(kind: str) -> Iterator[Path]:
    """Yield a folder for files of this run, and remove it at the end; also remove those of runs that were killed.

    ``kind`` is the beginning of the folder's name.
    """
    runs = writable(work_root() / "runs")
    for lock in runs.glob(f"{kind}-*.lock"):
        with contextlib.suppress(Timeout), locked(lock, 0):
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
    folder = runs / f"{kind}-{uuid.uuid4().hex[:12]}"
    with locked(folder.with_suffix(".lock")):
        try:
            with machine_errors(f"the files of {kind}"):
                folder.mkdir(0o700)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def saved_on_failure(name: str) -> Iterator[Path]:
    """Yield a folder for the files of a run; remove it at the end unless a tool or test failed and left its log."""
    with machine_errors("the files of the run"):
        runs = writable(work_root() / "runs")
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=runs))
    failed = False
    try:
        yield folder
    except (ToolError, AssertionError):
        failed = True
        raise
    finally:
        if not failed:
            shutil.rmtree(folder, ignore_errors=True)


def write_whole(path: Path, data: str | bytes, doing: str | None = None) -> None:
    """Write a file atomically; a path that is no regular file, such as ``/dev/stdout``, is written directly."""
    with machine_errors(doing or str(path)):
        payload = data.encode() if isinstance(data, str) else data
        if path.exists() and not path.is_file():
            path.write_bytes(payload)
            return
        with replacing(path) as file:
            file.write(payload)


_KINDS = {
    ".v": "verilog",
    ".sv": "systemverilog",
    ".svh": "systemverilog",
    ".vhd": "vhdl",
    ".py": "python",
    ".cpp": "c++",
    ".h": "c",
    ".md": "markdown",
    ".tex": "latex",
    ".sdc": "constraints",
    ".xdc": "constraints",
    ".cfg": "configuration",
    "": "makefile",
}
"""Kinds of files by suffix, where it is not the kind."""


def kind_of(path: Path) -> str:
    """Return the kind of a file that a command writes, by its suffix."""
    return _KINDS.get(path.suffix, path.suffix.removeprefix("."))
