"""External tools: parallel runs, which end with this program."""

import contextlib
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import ToolError
from .extras import check_installed

_FULL = ("No space left on device", "File too large", "File size limit exceeded", "Disk quota exceeded")
"""Messages of tools about a full disk."""

ROOM = 1 << 26
"""Free bytes below which the failure of a tool without output is attributed to a full disk."""

_BOUND = Path(__file__).resolve().parent / "bound.py"

_ENDS = (signal.SIGINT, signal.SIGTERM)
"""Signals that end this program."""

_OWN = threading.local()


class Stopped(Exception):
    """Cancellation of a job."""


def halt_by(halt: threading.Event) -> None:
    """Set the event that stops the tools of this thread and raises `Stopped`."""
    _OWN.halt = halt


def check_halt() -> None:
    """Raise `Stopped` if the event of `halt_by` is set."""
    halt: threading.Event | None = getattr(_OWN, "halt", None)
    if halt is not None and halt.is_set():
        raise Stopped


@dataclass(frozen=True)
class Command:
    """Call of a tool.

    Parameters
    ----------
    what : str
        Name at the beginning of error messages, such as ``g++``.
    argv : sequence of str
        Program and arguments.
    log : Path
        File for standard output and standard error.
    cwd : Path, optional
        Working directory; default: that of this program.
    env : mapping, optional
        Environment; default: that of this program.
    """

    what: str
    argv: Sequence[str]
    log: Path
    cwd: Path | None = None
    env: Mapping[str, str] | None = None


def start(command: Command, pass_fds: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """Start a tool in a new session, so that Ctrl-C does not reach it.

    Raises ToolError if there is no such program, or a Python module that it runs needs a package that is missing.
    """
    if not hasattr(os, "posix_spawnp"):
        raise ToolError(f"{command.what} needs Linux or macOS; on Windows, run halfulp in WSL")
    program = command.argv[0]
    if shutil.which(program, path=None if command.env is None else command.env.get("PATH")) is None:
        why = "is not executable" if Path(program).is_file() else "does not exist"
        raise ToolError(f"{command.what} could not be started: {program} {why}")
    if program == sys.executable and command.argv[1:2] == ["-m"]:
        check_installed(command.argv[2])
    with command.log.open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(_BOUND), *command.argv],
            # `bound` stops the tool when this pipe closes.
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=command.cwd,
            env=None if command.env is None else dict(command.env),
            start_new_session=True,
            pass_fds=pass_fds,
        )


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer Ctrl-C to the end of the body, so that the cleanup knows of a process that starts there."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in _ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            raise KeyboardInterrupt


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Kill a tool and its child processes."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    release(process)


def release(process: "subprocess.Popen[bytes]") -> None:
    """Close the pipe to a tool that has ended."""
    if process.stdin is not None:
        process.stdin.close()


def run_all(
    commands: Iterable[Command],
    jobs: int | None = None,
    seconds: float | None = None,
) -> None:
    """Run tools in parallel.

    Parameters
    ----------
    commands : iterable of Command
        Calls; the next one is taken when a processor is free.
    jobs : int, optional
        Largest number of tools at a time; default: the number of processors.
    seconds : float, optional
        Time limit for all tools together.

    Raises
    ------
    ToolError
        If a tool fails; the others are killed.
    TimeoutError
        If the time limit is exceeded; all tools are killed.
    Stopped
        If the event of `halt_by` is set.
    """
    limit = jobs or processors()
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    waiting = iter(commands)
    running: list[tuple[subprocess.Popen[bytes], Command]] = []
    try:
        while True:
            while len(running) < limit and (command := next(waiting, None)) is not None:
                with uninterrupted():
                    running.append((start(command), command))
            if not running:
                return
            still = []
            for process, command in running:
                code = process.poll()
                if code is None:
                    still.append((process, command))
                elif code != 0:
                    raise ToolError(failure(command, code))
                else:
                    release(process)
            running = still
            check_halt()
            if running and time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(0.003)
    finally:
        for process, _ in running:
            stop(process)


def failure(command: Command, code: int) -> str:
    """Return an error message for a failed tool, with the line of its log that gives the reason."""
    lines = command.log.read_text(errors="replace").splitlines()
    if code == -signal.SIGXFSZ:
        lines.append(_FULL[0])
    ended = f"was ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
    # A tool removes incomplete files, so that the disk is no longer completely full.
    if not lines and (free := shutil.disk_usage(command.log.parent).free) < ROOM:
        return f"the disk is full: {command.what} {ended} with {free >> 10:,} KiB free in {command.log.parent}"
    return complaint(command.what, ended, lines)


def complaint(what: str, ended: str, lines: Sequence[str]) -> str:
    """Return an error message for a failed tool, with the first line of output that gives the reason."""
    said = [line.strip() for line in lines if line.strip()]
    if full := [line for line in said if any(sign in line for sign in _FULL)]:
        return f"the disk is full: {what} reports: {full[0][:300]}"
    # Yosys prints a long log before its error.
    telling = next(filter(None, ([line for line in said if sign in line] for sign in ("ERROR:", "rror"))), said[-1:])
    return f"{what} {ended}: {telling[0][:300] if telling else 'no output'}"


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
