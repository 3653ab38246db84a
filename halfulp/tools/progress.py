"""Progress of a run."""

import contextlib
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from time import monotonic

import click

QUIET = 5.0
"""Seconds after which a command prints a line about its progress; later intervals double up to `LONGEST`.

The environment variable ``HALFULP_QUIET`` has other seconds; 0 stands for no lines.
"""

LONGEST = 60.0

_bars: list["Bar"] = []
"""Bars of the running command."""


class Progress:
    """Receiver of progress; the base class shows nothing."""

    def total(self, text: str, count: int | None = None, done: int = 0) -> None:
        """Begin a phase of ``count`` items (None: unknown); ``done`` of them are finished."""

    def advance(self, count: int) -> None:
        """Report ``count`` more finished items."""

    def note(self, text: str) -> None:
        """Report a result of a run that takes long."""

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        """End the run."""


silent = Progress()


class Bar(Progress):
    """Progress bar on standard error; without a terminal, `heartbeat` prints its text now and then."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._begin(title, None, 0)

    def __enter__(self) -> "Bar":
        _bars.append(self)
        self._draw()
        return self

    def __exit__(self, *_: object) -> None:
        _bars.remove(self)
        self._print("")

    def line(self) -> str:
        """Return phase, finished items and time as a text."""
        count = f", {self._done} of {self._count}" if self._count else ""
        return f"{self._text}{count}, {monotonic() - self._begun:.0f} s"

    def total(self, text: str, count: int | None = None, done: int = 0) -> None:
        self._begin(f"{self._title}: {text}", count, done)
        self._draw()

    def advance(self, count: int) -> None:
        self._done += count
        if monotonic() - self._drawn > 0.1:
            self._draw()

    def note(self, text: str) -> None:
        if _quiet():
            self._print("")
            print(f"halfulp: {text}", file=sys.stderr, flush=True)
            self._draw()

    def _begin(self, text: str, count: int | None, done: int) -> None:
        self._text, self._count, self._first, self._done = text, count, done, done
        self._begun = self._drawn = monotonic()

    def _draw(self) -> None:
        self._drawn = monotonic()
        line = self._text
        if self._count:
            seconds, new = self._drawn - self._begun, self._done - self._first
            left = f", {seconds * (self._count - self._done) / new:.0f} s left" if new else ""
            line += f" [{'#' * (24 * self._done // self._count):24}] {self._done}/{self._count}, {seconds:.0f} s{left}"
        self._print(line)

    def _print(self, line: str) -> None:
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns - 1
            # The cursor stays at the start of the line, so that a message replaces the bar.
            print(f"\x1b[2K{line[:width]}\r", end="", file=sys.stderr, flush=True)


@contextlib.contextmanager
def heartbeat(title: str, most: float = QUIET) -> Iterator[None]:
    """Print a line on standard error from time to time while the body runs, so that no command is silent for minutes.

    The line has the text of the innermost `Bar`, or ``title`` and the time. A terminal has bars that move instead, and
    gets a line only if there is none. The first line comes after at most ``most`` seconds.
    """
    ended, begun = threading.Event(), monotonic()
    first = min(_quiet(), most)

    def beat() -> None:
        wait = first
        while not ended.wait(wait):
            if not (_bars and sys.stderr.isatty()):
                text = _bars[-1].line() if _bars else f"{title}, {monotonic() - begun:.0f} s"
                print(f"halfulp: {text}", file=sys.stderr, flush=True)
            wait = min(2 * wait, LONGEST)

    thread = threading.Thread(target=beat, daemon=True)
    if first:
        thread.start()
    try:
        yield
    finally:
        ended.set()


def _quiet() -> float:
    """Return the seconds before the first line; 0 for no lines."""
    text = os.environ.get("HALFULP_QUIET", str(QUIET))
    with contextlib.suppress(ValueError):
        if 0 <= (seconds := float(text)) < threading.TIMEOUT_MAX:
            return seconds
    raise click.UsageError(f"HALFULP_QUIET={text} is no number of seconds; 0 stands for no lines about the progress")
