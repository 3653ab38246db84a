"""Many tasks at once, on all processors of this machine or of others: Dask, with tasks that leave nothing behind.

A task is data, and its result depends on nothing else. It runs in a process of its own, below a worker: a process that
takes one task after another, here or wherever its scheduler has some. A worker that dies costs its task, which another
one starts anew.
"""

import contextlib
import functools
import itertools
import logging
import os
import pickle
import queue
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from .digests import digest, sources, version
from .errors import ToolError
from .paths import machine_errors, scratch
from .processes import Command, complaint, processors, run_all, start, stop, uninterrupted

PATIENCE = 5
"""Seconds that a scheduler has to answer, and then to name a worker."""

LONELY = 60
"""Seconds without any worker after which none is waited for."""

WATCH = 0.5
"""Seconds between looks at whether the workers are alive."""


@dataclass(frozen=True, eq=False)
class Task:
    """A program's run on some files; two are not the same though they say the same.

    Parameters
    ----------
    what : str
        Error sentences begin with it.
    files : mapping of str to str
        Texts, by the names of files in the folder that it runs in.
    argv : callable
        What is run, of the folder; it may leave more files there.
    env : callable
        What the environment has beside ours.
    left : callable
        Makes the result, which JSON has words for, of the folder.
    versions : mapping of str to str
        Of the programs that make the result, here.
    found : callable
        These versions, wherever it is called.
    """

    what: str
    files: Mapping[str, str]
    argv: Callable[[Path], Sequence[str]]
    env: Callable[[], Mapping[str, str]]
    left: Callable[[Path], Any]
    versions: Mapping[str, str]
    found: Callable[[], Mapping[str, str]]


@dataclass(frozen=True)
class Outcome:
    """What came of a task: a result, or a sentence that says why there is none, and the log."""

    result: Any = None
    failed: str | None = None
    log: str = ""


class JobPool:
    """Where tasks run: on the processors of this machine, or on the workers of a Dask scheduler.

    Workers of this machine are started when there are two tasks to run, and end with the farm. To be used as a context.

    Parameters
    ----------
    scheduler : str, optional
        Its address, ``tcp://HOST:PORT``; without one, this machine.

    Raises
    ------
    ValueError
        If that is no address.
    """

    def __init__(self, scheduler: str | None = None) -> None:
        if scheduler is not None:
            _check(scheduler)
        self.scheduler = scheduler
        self._open = contextlib.ExitStack()
        self._folder: Path | None = None
        self._client: Any = None
        self._workers: _Workers | None = None
        self._manned = 0.0

    def __enter__(self) -> "JobPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client = self._workers = self._folder = None
        self._open.close()

    def run(self, tasks: Iterable[Task], ended: Callable[[Task, Outcome], None]) -> None:
        """Run tasks side by side.

        Parameters
        ----------
        tasks : iterable of Task
            Asked for the next one when there is a worker for it.
        ended : callable
            Told of each as soon as it ended, well or not. What it raises ends the others.

        Raises
        ------
        ToolError
            If no scheduler answers, it has no workers, or they cannot do this.
        """
        waiting = iter(tasks)
        first = list(itertools.islice(waiting, 2))
        if len(first) == 1 and self.scheduler is None and self._client is None:
            # Workers take longer to start than there is to gain.
            ended(first[0], perform(first[0], self._scratch()))
        elif first:
            self._connect()
            self._distribute(itertools.chain(first, waiting), ended)

    def _distribute(self, tasks: Iterator[Task], ended: Callable[[Task, Outcome], None]) -> None:
        done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        running: dict[Any, Task] = {}
        try:
            while True:
                while len(running) < self._room() and (task := next(tasks, None)) is not None:
                    # A worker that cannot read a task would end; this one, which says where halfulp is, it can.
                    future = self._client.submit(pickle.loads, pickle.dumps(_Call(task)), pure=False)
                    running[future] = task
                    future.add_done_callback(done.put)
                if not running:
                    return
                with contextlib.suppress(queue.Empty):
                    future = done.get(timeout=WATCH)
                    outcome = self._outcome(future, running[future])
                    if outcome is None:
                        future.add_done_callback(done.put)
                    else:
                        task = running.pop(future)
                        # What is still asked for is done again when the worker that did it dies.
                        future.release()
                        ended(task, outcome)
                if self._workers is not None:
                    self._workers.replace()
        finally:
            for future in running:
                future.cancel()

    def _room(self) -> int:
        """As many tasks as keep all workers busy while the next one is made."""
        try:
            workers = self._client.nthreads()
        except (OSError, TimeoutError) as error:
            raise ToolError(self._gone()) from error
        if workers:
            self._manned = time.monotonic()
        elif time.monotonic() - self._manned > LONELY:
            raise ToolError(
                f"{self._where()} has had no workers for {LONELY} seconds; what was done until then is kept"
            )
        return 2 * max(1, sum(workers.values()))

    def _where(self) -> str:
        return f"the scheduler at {self.scheduler}" if self.scheduler else "this machine"

    def _gone(self) -> str:
        return f"{self._where()} is gone; what was done until then is kept"

    def _outcome(self, future: Any, task: Task) -> Outcome | None:
        """What a worker says of a task, or None where it died before it was asked, and another one is at it."""
        from concurrent.futures import CancelledError

        from distributed import KilledWorker

        try:
            outcome: Outcome = future.result(timeout=PATIENCE)
        except TimeoutError:
            return None
        except KilledWorker:
            return Outcome(failed=f"{task.what} ended one worker after another; it may need more memory")
        except CancelledError as error:
            raise ToolError(self._gone()) from error
        except (ImportError, AttributeError) as error:
            raise ToolError(
                f"a worker of {self._where()} cannot run what it is asked to ({error}): install the same halfulp there"
            ) from error
        return outcome

    def _scratch(self) -> Path:
        if self._folder is None:
            self._folder = self._open.enter_context(scratch("synthesis"))
        return self._folder

    def _connect(self) -> None:
        """To the scheduler that was named, or to one in this process, with a worker for each processor."""
        if self._client is not None:
            return
        # Dask takes half a second to load.
        from distributed import Client

        # It says much that a sentence of ours says, and how much is set when it is loaded.
        self._open.enter_context(_quiet())
        address = self.scheduler or self._start()
        try:
            client = Client(address, timeout=PATIENCE, set_as_default=False)
            self._open.callback(client.close, timeout=PATIENCE)
        except (OSError, ValueError) as error:
            raise ToolError(f"no Dask scheduler answers at {address}; dask scheduler starts one") from error
        try:
            client.wait_for_workers(1, timeout=PATIENCE if self._workers is None else LONELY)
        except TimeoutError as error:
            if self._workers is not None:
                raise ToolError(self._workers.failure()) from error
            raise ToolError(
                f"the scheduler at {address} has no workers; on each machine, start some: dask worker {address} "
                "--nworkers auto --nthreads 1"
            ) from error
        self._manned = time.monotonic()
        self._client = client

    def _start(self) -> str:
        """Scheduler and workers of this machine."""
        from distributed import LocalCluster

        cluster = self._open.enter_context(
            LocalCluster(n_workers=0, dashboard_address=None, silence_logs=logging.CRITICAL)
        )
        address: str = cluster.scheduler_address
        self._workers = _Workers(address, self._scratch())
        self._open.callback(self._workers.stop)
        self._workers.replace()
        return address


class _Workers:
    """A worker for each processor of this machine, for as long as we are.

    They are programs like any other that we start, and not what `LocalCluster` would start: its workers read the main
    module of this process again, and get every Ctrl-C that we get.
    """

    def __init__(self, address: str, folder: Path) -> None:
        self._address = address
        self._folder = folder
        self._numbers = itertools.count()
        self._running: list[subprocess.Popen[bytes]] = []

    def replace(self) -> None:
        """Start those that are not there, at first and after one died."""
        for process in self._running:
            if process.poll() is not None:
                stop(process)
        self._running = [process for process in self._running if process.poll() is None]
        while len(self._running) < processors():
            self._last = self._command()
            with uninterrupted():
                self._running.append(start(self._last))

    def failure(self) -> str:
        """Why there is none, as the last one says."""
        return complaint(self._last.what, "does not start", self._last.log.read_text(errors="replace").splitlines())

    def _command(self) -> Command:
        argv = [sys.executable, "-m", "distributed.cli.dask_worker", self._address, "--nthreads", "1", "--no-nanny"]
        # Without a limit of memory nothing is spilled; results are small.
        argv += ["--memory-limit", "0", "--no-dashboard", "--local-directory", str(self._folder / "workers")]
        log = self._folder / f"worker-{next(self._numbers)}.log"
        return Command("the Dask worker", argv, log, cwd=self._folder, env=os.environ | {"TMPDIR": str(self._folder)})

    def stop(self) -> None:
        """End them, and what they are at."""
        for process in self._running:
            stop(process)


@dataclass(frozen=True)
class _Call:
    """A task that runs where this is unpickled."""

    task: Task

    def __reduce__(self) -> tuple[Any, ...]:
        return perform, (self.task,)


def perform(task: Task, folder: Path | None = None) -> Outcome:
    """Run a task here, in a folder that goes: in the one named, or in that of the Dask worker that this is."""
    try:
        return _perform(task, folder)
    except ToolError as error:
        return Outcome(failed=str(error))


def _perform(task: Task, root: Path | None) -> Outcome:
    if root is None:
        from distributed import get_worker

        root = Path(get_worker().local_directory)
        _compare(task.versions, installed(task.found), get_worker().address)
    with machine_errors("the files of a task"), tempfile.TemporaryDirectory(prefix="task-", dir=root) as own:
        folder = Path(own)
        for name, text in task.files.items():
            (folder / name).write_text(text)
        # Temporary files of a program that is ended go with its folder.
        env = os.environ | task.env() | {"TMPDIR": own}
        log = folder / "tool.log"
        try:
            run_all([Command(task.what, task.argv(folder), log, cwd=folder, env=env)])
            return Outcome(task.left(folder))
        except ToolError as error:
            return Outcome(failed=str(error), log=log.read_text(errors="replace") if log.is_file() else "")


def installed(found: Callable[[], Mapping[str, str]]) -> dict[str, str]:
    """What makes results, in which version: the programs, and this library."""
    return {"halfulp": f"{version('halfulp')} of sources {_own()}", **found()}


@functools.cache
def _own() -> str:
    """Hash of the sources that tasks run, and of those that they are made by."""
    return digest(sources(("hdl", "units", "sim", "fpga", "tools")))[:8]


def _compare(here: Mapping[str, str], there: Mapping[str, str], where: str) -> None:
    other = [f"{name} {there[name]}, and here is {here[name]}" for name in here if there[name] != here[name]]
    if other:
        raise ToolError(f"the worker at {where} has {'; '.join(other)}: install the same there")


def _check(scheduler: str) -> None:
    if not isinstance(scheduler, str):
        raise TypeError(f"a scheduler is named by a text such as tcp://host:8786, not by {scheduler!r}")
    try:
        parts = urlsplit(scheduler)
        known = parts.scheme in ("tcp", "tls") and parts.hostname and parts.port and not (parts.path or parts.query)
    except ValueError:
        known = False
    if not known:
        raise ValueError(f"{scheduler!r} is no address of a scheduler; one is tcp://host:8786")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No word from Dask."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="distributed")
            yield
    finally:
        logger.setLevel(before)
