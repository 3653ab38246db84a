"""External tools: several at once, all ended with the program."""

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

_FULL = ("No space left on device", "File too large", "File size limit exceeded", "Disk quota exceeded")
"""Messages of tools when the disk is full."""

ROOM = 1 << 26
"""Bytes of free space below which a tool that fails without output is taken to have filled the disk."""

_BOUND = Path(__file__).resolve().parent / "bound.py"

_ENDS = (signal.SIGINT, signal.SIGTERM)
"""Signals that end the program."""

_OWN = threading.local()


class Stopped(Exception):
    """A job was cancelled."""


def halt_by(halt: threading.Event) -> None:
    """Have the tools of this thread end, with `Stopped`, as soon as an event is set."""
    _OWN.halt = halt


def check_halt() -> None:
    """Raise `Stopped` if this thread has to end."""
    halt: threading.Event | None = getattr(_OWN, "halt", None)
    if halt is not None and halt.is_set():
        raise Stopped


@dataclass(frozen=True)
class Command:
    """One call of a tool.

    Parameters
    ----------
    what : str
        Name for people, such as ``g++``; error messages begin with it.
    argv : sequence of str
    log : Path
        File that takes its standard output and errors.
    cwd : Path, optional
    env : mapping, optional
        The whole environment; by default ours.
    """

    what: str
    argv: Sequence[str]
    log: Path
    cwd: Path | None = None
    env: Mapping[str, str] | None = None


def start(command: Command, pass_fds: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """Start a tool in a session of its own, so that a Ctrl-C reaches only this program, which ends the tool. If this
    program is killed, `bound` ends it. ToolError if there is no such program.
    """
    program = command.argv[0]
    if shutil.which(program, path=None if command.env is None else command.env.get("PATH")) is None:
        why = "may not be run" if Path(program).is_file() else "is not there"
        raise ToolError(f"{command.what} could not be started: {program} {why}")
    with command.log.open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(_BOUND), *command.argv],
            # Only this program holds the other end.
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
    """Defer Ctrl-C to the end of the body, so that a process started there is known to its cleanup."""
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
    """End a tool and everything that it started."""
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
    """Run tools side by side, as many at a time as there are processors.

    Parameters
    ----------
    commands : iterable of Command
        Asked for the next one when there is a processor for it.
    jobs : int, optional
        Tools at a time; default: one for each processor.
    seconds : float, optional
        Most that they take in all.

    Raises
    ------
    ToolError
        If one fails; the others are ended first.
    TimeoutError
        If the time is up; all are ended first.
    Stopped
        As `halt_by` says.
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
    """Sentence about a tool that failed, with the line of its log that says why."""
    lines = command.log.read_text(errors="replace").splitlines()
    if code == -signal.SIGXFSZ:
        lines.append(_FULL[0])
    ended = f"was ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
    # A tool removes what it could not write, so that there is some room again.
    if not lines and (free := shutil.disk_usage(command.log.parent).free) < ROOM:
        return f"the disk is full: {command.what} {ended} with {free >> 10:,} KiB free in {command.log.parent}"
    return complaint(command.what, ended, lines)


def complaint(what: str, ended: str, lines: Sequence[str]) -> str:
    """Sentence about a tool that failed, with the first line that says why."""
    said = [line.strip() for line in lines if line.strip()]
    if full := [line for line in said if any(sign in line for sign in _FULL)]:
        return f"the disk is full: {what} said: {full[0][:300]}"
    # Yosys logs much before its error.
    telling = next(filter(None, ([line for line in said if sign in line] for sign in ("ERROR:", "rror"))), said[-1:])
    return f"{what} {ended}: {telling[0][:300] if telling else 'no output'}"


def processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
