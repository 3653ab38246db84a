"""Parallel jobs on the processors of this machine or on the workers of a Dask scheduler.

A job calls a function of a module on plain data; its result is plain data that depends on the arguments only. On this
machine a job runs in a thread, which usually waits for an external program, or in a process if it computes in Python.
On a cluster, Dask distributes jobs, repeats those of workers that die, and cancels those whose client is gone.
"""

import contextlib
import functools
import itertools
import logging
import pickle
import queue
import ssl
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qsl, urlsplit

from .cache import Entry
from .digests import code, modules, version
from .errors import ToolError
from .paths import scratch
from .processes import Command, halt_by, processors, run_all
from .progress import Progress, silent

PATIENCE = 5
"""Seconds to wait for a scheduler, and again for its first worker."""

TLS = {"tls-ca-file": "tls_ca_file", "tls-cert": "tls_client_cert", "tls-key": "tls_client_key"}
"""Dask's names for the options of an address."""

T = TypeVar("T")

Here = Literal["thread", "process", "call"]
"""Ways of execution on this machine."""

Versions = Callable[[], Mapping[str, str]]
"""Function that returns the versions of programs on the machine where it runs."""


@dataclass(frozen=True, eq=False)
class Job:
    """Call of a function.

    Parameters
    ----------
    name : str
        Name in error messages.
    function : callable
        Function of a module.
    arguments : tuple
        Plain data.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


@contextlib.contextmanager
def beside(function: Callable[..., T], *arguments: Any) -> Iterator[Future[T]]:
    """Call a function that runs tools in a thread while the body runs; tools that still run when it ends are killed."""
    halt = threading.Event()
    with ThreadPoolExecutor(1, initializer=halt_by, initargs=(halt,)) as thread:
        try:
            yield thread.submit(function, *arguments)
        finally:
            halt.set()


class JobPool:
    """Context manager that runs jobs on this machine or on the workers of a Dask scheduler.

    Parameters
    ----------
    scheduler : str, optional
        Address of the scheduler, ``tcp://HOST:PORT`` or ``tls://HOST:PORT``; default: this machine. The TLS files are
        those of Dask's configuration, or part of the address, with the names of the options of ``dask scheduler``:
        ``tls://HOST:PORT?tls-ca-file=CA&tls-cert=FILE&tls-key=FILE``.

    Raises
    ------
    ValueError
        If the address is invalid.
    ToolError
        If no scheduler answers, it has no workers, or they cannot run a job.
    """

    def __init__(self, scheduler: str | None = None) -> None:
        if scheduler is not None:
            _check(scheduler)
        self.scheduler, _, self._tls = (scheduler or "").partition("?")
        self._open = contextlib.ExitStack()
        self._client: Any = None
        self._running: weakref.WeakSet[Generator[tuple[Job, Any], None, None]] = weakref.WeakSet()

    def __enter__(self) -> "JobPool":
        return self

    def __exit__(self, *_: object) -> None:
        for running in list(self._running):
            running.close()
        self._client = None
        self._open.close()

    def run(
        self, jobs: Iterable[Job], *, versions: Versions = dict, here: Here = "thread"
    ) -> Generator[tuple[Job, Any], None, None]:
        """Run jobs in parallel and yield each with its result when it ends; the first error ends all jobs.

        Parameters
        ----------
        jobs : iterable of Job
            Jobs; the next one is taken when a worker is free.
        versions : callable
            Versions that a worker must have.
        here : str
            Execution on this machine: in a ``thread``; in a ``process``, for long computations in Python; or by a
            ``call``, one after the other, for jobs that use all processors or share large data.
        """
        if self.scheduler:
            running = self._remote(jobs, versions)
        elif here == "call":
            running = ((job, job.function(*job.arguments)) for job in jobs)
        else:
            running = self._local(jobs, _call if here == "thread" else _in_process)
        self._running.add(running)
        return running

    def results(
        self,
        jobs: Iterable[tuple[Entry, Job]],
        progress: Progress = silent,
        *,
        versions: Versions = dict,
        here: Here = "thread",
    ) -> dict[Entry, Any]:
        """Return the results of jobs, JSON values, by their entries of the cache; only missing ones run.

        Each result is stored when its job ends, so that a call that was stopped continues. Progress is one for each
        entry; other parameters are as for `run`.
        """
        results: dict[Entry, Any] = {}
        running: dict[Job, Entry] = {}

        def missing() -> Iterator[Job]:
            for entry, job in jobs:
                if entry not in results:
                    results[entry] = entry.value()
                    if results[entry] is None:
                        running[job] = entry
                        yield job
                        continue
                progress.advance(1)

        for job, result in self.run(missing(), versions=versions, here=here):
            entry = running.pop(job)
            entry.store(result)
            results[entry] = result
            progress.advance(1)
        return results

    def _local(
        self, jobs: Iterable[Job], wrap: Callable[[Job], tuple[Any, ...]]
    ) -> Generator[tuple[Job, Any], None, None]:
        halt = threading.Event()
        with ThreadPoolExecutor(processors(), initializer=halt_by, initargs=(halt,)) as threads:
            try:
                yield from _stream(threads, jobs, wrap, lambda: 2 * processors())
            finally:
                halt.set()

    def _remote(self, jobs: Iterable[Job], versions: Versions) -> Generator[tuple[Job, Any], None, None]:
        place = f"the scheduler at {self.scheduler}"
        waiting = iter(jobs)
        first = list(itertools.islice(waiting, 1))
        if not first:
            return
        client = self._connect()
        # Importing Dask takes half a second.
        from distributed import KilledWorker

        def room() -> int:
            return 2 * max(1, sum(client.nthreads().values()))

        own_versions = {"halfulp": _own(), **versions()}
        # A worker dies if it cannot unpickle a task; it can always unpickle this wrapper.
        wrap = functools.partial(_send, own_versions, versions)
        try:
            yield from _stream(client.get_executor(pure=False), itertools.chain(first, waiting), wrap, room)
        except KilledWorker as error:
            raise ToolError(f"a job killed several workers ({error}); it may need more memory") from error
        except (CancelledError, OSError) as error:
            raise ToolError(f"the connection to {place} is lost; finished results are saved") from error
        except ImportError as error:
            raise ToolError(
                f"a worker of {place} cannot run a job ({error}); install the same version of halfulp there"
            ) from error

    def _connect(self) -> Any:
        if self._client is not None:
            return self._client
        from distributed import Client, Security
        from distributed.comm.core import connect
        from distributed.utils import LoopRunner

        if self.scheduler.startswith("tcp:"):
            # warnings.warn would print it once only, and with a line of code.
            print(
                f"halfulp: {self.scheduler} has no TLS: anyone who reaches its port can run programs on it, on its "
                "workers and on this machine; use tls:// outside a trusted network",
                file=sys.stderr,
            )
        files = {TLS[name]: value for name, value in parse_qsl(self._tls)}
        security = Security(**files, require_encryption=True) if files else Security()

        async def greet() -> None:
            tls = security.get_connection_args("client")
            await (await connect(self.scheduler, timeout=PATIENCE, **tls)).close()

        # The errors raised below replace the log messages of Dask.
        logger = logging.getLogger("distributed")
        self._open.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.CRITICAL + 1)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="distributed")
            try:
                # A Dask client waits forever for a program that does not answer, and one that could not connect may
                # deadlock in garbage collection. A plain connection tests the address first.
                LoopRunner().run_sync(greet, callback_timeout=PATIENCE)
                client = Client(self.scheduler, timeout=PATIENCE, set_as_default=False, security=security)
            except (TypeError, FileNotFoundError, ssl.SSLError) as error:
                raise ToolError(
                    f"TLS to {self.scheduler} failed ({str(error).splitlines()[0]}); give its files in Dask's "
                    f"configuration or as {self.scheduler}?tls-ca-file=CA&tls-cert=FILE&tls-key=FILE"
                ) from error
            except (OSError, ValueError, AssertionError, MemoryError) as error:
                # Dask raises AssertionError and MemoryError if another program answers.
                raise ToolError(
                    f"no Dask scheduler answers at {self.scheduler}; start one with: dask scheduler"
                ) from error
            self._open.callback(client.close, timeout=PATIENCE)
            try:
                client.wait_for_workers(1, timeout=PATIENCE)
            except TimeoutError as error:
                raise ToolError(
                    f"the scheduler at {self.scheduler} has no workers; start some on each machine with: dask worker "
                    f"{self.scheduler} --nworkers auto --nthreads 1"
                ) from error
        self._client = client
        return client


LOCAL = JobPool()
"""Default pool: this machine."""


def _stream(
    executor: Executor, jobs: Iterable[Job], wrap: Callable[[Job], tuple[Any, ...]], room: Callable[[], int]
) -> Generator[tuple[Job, Any], None, None]:
    """Yield jobs and results in the order of completion; at most ``room()`` jobs run at a time."""
    waiting = iter(jobs)
    done: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
    running: dict[Future[Any], Job] = {}
    try:
        while True:
            for job in itertools.islice(waiting, max(0, room() - len(running))):
                future = executor.submit(*wrap(job))
                running[future] = job
                future.add_done_callback(done.put)
            if not running:
                return
            future = done.get()
            yield running.pop(future), future.result()
    finally:
        for future in running:
            future.cancel()


def _call(job: Job) -> tuple[Any, ...]:
    return job.function, *job.arguments


_LOCK = threading.Lock()
_SHARED: dict[str, Any] = {}


def shared(key: str, make: Callable[[], T]) -> T:
    """Return a value that the jobs of a process share; the process stores the value of the last key."""
    with _LOCK:
        if key not in _SHARED:
            _SHARED.clear()
            _SHARED[key] = make()
        value: T = _SHARED[key]
        return value


# Jobs in processes --------------------------------------------------------------------------------------------------


def _in_process(job: Job) -> tuple[Any, ...]:
    return _run_in_process, job.name, pickle.dumps((job.function, job.arguments))


def _run_in_process(name: str, call: bytes) -> Any:
    with scratch("jobs") as folder:
        (folder / "call").write_bytes(call)
        argv = [sys.executable, "-m", "halfulp.tools.jobs", str(folder)]
        run_all([Command(name, argv, folder / "log")])
        result, error = pickle.loads((folder / "result").read_bytes())
    if error is not None:
        raise error
    return result


def main(folder: Path) -> None:
    """Run the call that is pickled in a folder, and write its result or exception there."""
    function, arguments = pickle.loads((folder / "call").read_bytes())
    answer: tuple[Any, Exception | None]
    try:
        answer = function(*arguments), None
    except Exception as error:
        # The calling process raises the exception.
        answer = None, error
    (folder / "result").write_bytes(pickle.dumps(answer))


# Jobs on workers ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sent:
    """Job that runs when it is unpickled, on a worker."""

    parts: tuple[Any, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return _receive, self.parts


def _send(expected: Mapping[str, str], versions: Versions, job: Job) -> tuple[Any, ...]:
    return pickle.loads, pickle.dumps(_Sent((expected, versions, pickle.dumps((job.function, job.arguments)))))


def _receive(expected: Mapping[str, str], versions: Versions, call: bytes) -> Any:
    from distributed import get_worker

    own_versions = {"halfulp": _own(), **versions()}
    if other := [
        f"{name} {own_versions[name]} instead of {expected[name]}"
        for name in expected
        if own_versions[name] != expected[name]
    ]:
        raise ToolError(
            f"the worker at {get_worker().address} has {'; '.join(other)}; install the versions of this machine there"
        )
    try:
        function, arguments = pickle.loads(call)
    except AttributeError as error:
        raise ImportError(str(error)) from error
    return function(*arguments)


@functools.cache
def _own() -> str:
    """Return the version of this library and a digest of its code."""
    return f"{version('halfulp')} of sources {code(*modules())[:8]}"


def _check(scheduler: str) -> None:
    if not isinstance(scheduler, str):
        raise TypeError(f"scheduler must be a text such as tcp://host:8786, not {scheduler!r}")
    try:
        parts = urlsplit(scheduler)
        known = parts.scheme in ("tcp", "tls") and parts.hostname and parts.port and not parts.path
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        known = known and set(options) <= set(TLS if parts.scheme == "tls" else ())
    except ValueError:
        known = False
    if not known:
        raise ValueError(
            f"invalid scheduler {scheduler!r}: expected tcp://host:8786 or "
            f"tls://host:8786, optionally with ?{'=FILE&'.join(TLS)}=FILE"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
