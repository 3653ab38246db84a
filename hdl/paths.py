"""Where built things live, and how a file gets there whole."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO


def build_root() -> Path:
    """Folder of everything built: ``$HALFULP_BUILD``, else ``build`` in a checkout, else the user's cache."""
    if given := os.environ.get("HALFULP_BUILD"):
        return Path(given).absolute()
    checkout = Path(__file__).resolve().parents[1]
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
