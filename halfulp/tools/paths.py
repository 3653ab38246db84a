"""Folders of built things, and files and folders that are written whole or not at all."""

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from .errors import ToolError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def build_root() -> Path:
    """Folder of everything built: ``$HALFULP_BUILD``, else ``build`` in a checkout, else the user's cache."""
    if given := os.environ.get("HALFULP_BUILD"):
        return Path(given).absolute()
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        return checkout / "build"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "halfulp"


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that becomes ``path`` when the body ends well, and goes when it does not."""
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
    """Turn the operating system's refusals into one sentence."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        if error.errno in _FULL:
            raise ToolError(f"the disk is full: {doing} could not be written{where}; free some space") from error
        raise ToolError(f"{doing} could not be written: {error.strerror or error}{where}") from error


@contextlib.contextmanager
def building(folder: Path, doing: str) -> Iterator[Path]:
    """Fill a folder that either exists whole or not at all.

    The body writes to a temporary folder beside ``folder``; when it ends well, that one is renamed. If another run got
    there first, its folder stays and ours is dropped: both hold the same, for the name is a hash of the contents.

    Yields
    ------
    Path
        The temporary folder.

    Raises
    ------
    ToolError
        If the disk is full or the folder cannot be written.
    """
    with machine_errors(doing):
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        with machine_errors(doing):
            yield scratch
            scratch.chmod(0o755)
            try:
                scratch.rename(folder)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextlib.contextmanager
def scratch(kind: str) -> Iterator[Path]:
    """A folder for files of this run, which goes at its end; so do those of earlier runs that could not clear theirs.

    Parameters
    ----------
    kind : str
        What the folder's name begins with.

    Raises
    ------
    ToolError
        If the disk is full or the folder cannot be written.
    """
    with contextlib.ExitStack() as held:
        with machine_errors(f"the files of {kind}"):
            folder = _fresh(kind, held)
        yield folder


def _fresh(kind: str, held: contextlib.ExitStack) -> Path:
    runs = build_root() / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    # A run holds its folder locked, and nobody looks at it before it does.
    with locked(runs):
        for left in runs.glob(f"{kind}-*"):
            with contextlib.suppress(BlockingIOError, FileNotFoundError), locked(left, fcntl.LOCK_NB):
                shutil.rmtree(left, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=runs))
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        held.enter_context(locked(folder))
    return folder


@contextlib.contextmanager
def saved_on_failure(name: str) -> Iterator[Path]:
    """A folder for the files of a run. It goes unless a tool failed, whose log someone may want to read."""
    with machine_errors("the files of the run"):
        runs = build_root() / "runs"
        runs.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=runs))
    keep = False
    try:
        yield folder
    except ToolError:
        keep = True
        raise
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def locked(folder: Path, how: int = 0) -> Iterator[None]:
    """Keep out other runs that ask for the same folder, which goes with this process. Unless ``how`` is
    ``fcntl.LOCK_NB``, which gives a `BlockingIOError` instead, wait for them."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | how)
        yield
    finally:
        os.close(handle)


def write_whole(path: Path, data: str | bytes, doing: str | None = None) -> None:
    """Write a file that is either the old one or the new one, never half of it.

    A path that is no regular file, such as ``/dev/stdout``, is written to directly.

    Raises
    ------
    ToolError
        If the disk is full or the file cannot be written.
    """
    with machine_errors(doing or str(path)):
        payload = data.encode() if isinstance(data, str) else data
        if path.exists() and not path.is_file():
            path.write_bytes(payload)
            return
        with replacing(path) as file:
            file.write(payload)
