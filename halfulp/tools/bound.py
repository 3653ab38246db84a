"""Run a program that ends with its caller, even if the caller is killed: ``python -I -S bound.py PROGRAM ...``.

Standard input is a pipe that only the caller holds open. When it closes, this process kills its process group: the
program and its children. Otherwise it ends with the exit code or signal of the program. It imports few modules, because
it starts with every tool.
"""

import _thread
import os
import signal
import sys

_IGNORED = [signal.SIGPIPE, signal.SIGXFSZ] if hasattr(signal, "SIGXFSZ") else [signal.SIGPIPE]
"""Signals that Python ignores; the program gets their default actions back."""


def _watch() -> None:
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Run the program of the command line."""
    null = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    try:
        child = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=[null], setsigdef=_IGNORED)
    except OSError as error:
        print(f"{sys.argv[1]}: {error.strerror}", file=sys.stderr)
        sys.exit(127)
    _thread.start_new_thread(_watch, ())
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    # sys.exit would wait for the thread, which is still reading.
    os._exit(code)


if __name__ == "__main__":
    main()
