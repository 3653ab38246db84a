"""Folders of built things, and files and folders that are written whole or not at all.

Writing raises ToolError if the disk is full or a file or folder cannot be written.
"""

import atexit
import contextlib
import errno
import functools
import grp
import os
import pwd
import shutil
import stat
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import platformdirs
from filelock import FileLock, Timeout

from .errors import ToolError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def build_root() -> Path:
    """Folder of everything built: ``$HALFULP_BUILD``, else ``build`` in a checkout, else the user's cache."""
    if given := os.environ.get("HALFULP_BUILD"):
        return Path(given).absolute()
    checkout = Path(__file__).resolve().parents[2]
    return checkout / "build" if (checkout / "pyproject.toml").is_file() else platformdirs.user_cache_path("halfulp")


def work_root() -> Path:
    """The build folder, or a temporary folder of this process if the build folder cannot be written."""
    return writable(build_root())


@functools.cache
def writable(root: Path) -> Path:
    """A folder, made if it is not there, or a temporary folder of this process if that cannot be written."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        check_private(root)
        tempfile.TemporaryFile(dir=root).close()
    except OSError as error:
        if error.errno not in _FULL:
            folder = tempfile.mkdtemp(prefix="halfulp-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            sentence = f"{root} cannot be written ({error.strerror}); this run works in a temporary folder"
            print(f"halfulp: {sentence}", file=sys.stderr)
            return Path(folder)
    return root


def check_private(folder: Path) -> None:
    """Raise ToolError if users other than this one, root and the owner of this library can write to a folder.

    A group that has the name of this user is this user's own.
    """
    folder = folder.resolve()
    for place in (folder, *folder.parents):
        status = place.stat()
        if place == folder:
            trusted = {os.geteuid(), 0, Path(__file__).stat().st_uid}
            shared = status.st_mode & stat.S_IWGRP and not _is_own_group(status.st_gid)
            foreign = status.st_uid not in trusted or status.st_mode & stat.S_IWOTH or shared
        else:
            # In a sticky folder such as /tmp others cannot replace what is not theirs.
            foreign = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
        if foreign:
            raise ToolError(
                f"other users can write {place}, and code is loaded from {folder}; run chmod go-w {place}, or name a "
                "folder of your own in HALFULP_BUILD"
            )


def _is_own_group(gid: int) -> bool:
    try:
        return gid == 0 or grp.getgrgid(gid).gr_name == pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write: it becomes ``path`` if the body ends well, and is removed otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        # mkstemp makes private files; the result has the permissions that any new file has.
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
    """Turn errors of the operating system into ToolError."""
    try:
        yield
    except Timeout:
        # It is an OSError too.
        raise
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        if error.errno in _FULL:
            raise ToolError(f"the disk is full: {doing} could not be written{where}; free some space") from error
        raise ToolError(f"{doing} could not be written: {error.strerror or error}{where}") from error


@contextlib.contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """A folder to fill: it becomes ``folder`` if the body ends well, and is removed otherwise.

    One process at a time fills it.
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
    """Keep out other processes and threads that lock the same path; wait for them, or raise `Timeout`."""
    lock = FileLock(path, timeout=timeout, poll_interval=0.02)
    # A Ctrl-C at any place releases the lock.
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
    """A folder for files of this run, removed at its end, like those of earlier runs that were killed.

    ``kind`` is the beginning of its name.
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
    """A folder for the files of a run, removed at its end unless a tool failed, for the sake of its log."""
    with machine_errors("the files of the run"):
        runs = writable(work_root() / "runs")
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=runs))
    failed = False
    try:
        yield folder
    except ToolError:
        failed = True
        raise
    finally:
        if not failed:
            shutil.rmtree(folder, ignore_errors=True)


def write_whole(path: Path, data: str | bytes, doing: str | None = None) -> None:
    """Write a file that is either the old one or the new one, never half of it.

    A path that is no regular file, such as ``/dev/stdout``, is written to directly.
    """
    with machine_errors(doing or str(path)):
        payload = data.encode() if isinstance(data, str) else data
        if path.exists() and not path.is_file():
            path.write_bytes(payload)
            return
        with replacing(path) as file:
            file.write(payload)
