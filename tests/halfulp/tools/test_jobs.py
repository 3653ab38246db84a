"""Jobs on this machine and on workers of a scheduler, some of which are killed."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import distributed
import psutil
import pytest
import trustme
from click.testing import CliRunner

from halfulp.cli import cli
from halfulp.fpga.synth.measure import Module, Program, results
from halfulp.tools import jobs as room
from halfulp.tools.errors import ToolError
from halfulp.tools.jobs import Job, JobPool, beside
from halfulp.tools.paths import scratch
from halfulp.tools.processes import Command, run_all
from halfulp.tools.progress import Bar, Progress, heartbeat

TOOL = """
import json, os, sys

def argv(seconds, folder):
    script = "echo $(pwd) >>$RECORD; sleep $0; ! grep -q long design.v || sleep $LONG; cp job.json done; "
    script += "named=${RECORD%/*}/named; "
    script += "! grep -q forever design.v || [ -e $named ] || { touch $named; sleep 9999; }; "
    script += "! grep -q fail design.v || { echo ERROR: no; exit 3; }"
    return ["sh", "-c", script, str(seconds)]

def left(folder):
    return json.loads((folder / "done").read_text())["top"]

def versions():
    return {"sleep": os.environ.get("SLEEP", "1")}
"""
"""Program that uses no processor; workers find it at the path of this process."""

FOREVER = "sleep\0009999\0"
"""Command line of a task that never ends."""

SWEEP = """
import sys
import tool
from fractions import Fraction
from functools import partial
from halfulp.fpga.synth.measure import Module, Program, results
from halfulp.tools.progress import Progress

class Quiet(Progress):
    def advance(self, count):
        assert "distributed" not in sys.modules

program = Program("Sleep on", lambda dsp: {}, (), tool.versions, partial(tool.argv, 0.1), tool.left)
print(results([Module("long" * (number > 3), f"m{number}") for number in range(8)], program, Quiet()))
"""
"""Four short tasks, and four tasks that end after LONG seconds."""


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Return an empty build folder, with more time for workers to start on a busy machine."""
    monkeypatch.setattr(room, "PATIENCE", 60)
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path / "build"))
    return tmp_path / "build"


@pytest.fixture(scope="module")
def tool(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tool")
    (folder / "tool.py").write_text(TOOL)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        patch.setenv("RECORD", str(folder / "record"))
        import tool

        yield tool


@pytest.fixture
def record(tool):
    """Return the folder in which the program ran."""
    path = Path(os.environ["RECORD"])
    path.write_text("")
    return path


def program(tool, seconds=0.3, **fields):
    return Program("Sleep on", lambda dsp: {}, (), tool.versions, partial(tool.argv, seconds), tool.left, **fields)


def modules(count, text=""):
    return [Module(text, f"m{number}") for number in range(count)]


def at_work_in(folder):
    """Return the processes that work in a folder, with their command lines; an ending one has none."""
    found = {}
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if folder in link.readlink().parents:
                found[int(link.parent.name)] = (link.parent / "cmdline").read_text()
    return {process: line for process, line in found.items() if line}


def wait(until):
    deadline = time.monotonic() + 60
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def whole(build):
    """Return the stored results, and check that each is complete."""
    return {json.loads(path.read_text()) for path in build.glob("cache/synth/[!.]*/value.json")}


@contextlib.contextmanager
def sweeping(build, monkeypatch):
    """Start a sweep in a new session and wait until it runs tasks that never end."""
    monkeypatch.setenv("LONG", "1000")
    process = subprocess.Popen(
        [sys.executable, "-c", SWEEP], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        wait(lambda: process.poll() is not None or whole(build) == {"m0", "m1", "m2", "m3"})
        wait(lambda: any("1000" in line for line in at_work_in(build).values()))
        assert process.poll() is None
        yield process
    finally:
        process.kill()
        process.wait()
    wait(lambda: not at_work_in(build))


def test_killed_sweep_resumes(build, tool, record, monkeypatch):
    with sweeping(build, monkeypatch) as process:
        process.kill()
    assert whole(build) == {"m0", "m1", "m2", "m3"}
    # Its folders remain until the next run.
    assert list((build / "runs").iterdir())
    record.write_text("")
    monkeypatch.setenv("LONG", "0")
    answer = subprocess.run([sys.executable, "-c", SWEEP], capture_output=True, text=True, check=True)
    assert answer.stdout == f"{[f'm{number}' for number in range(8)]}\n"
    assert len(record.read_text().splitlines()) == 4
    assert list((build / "runs").iterdir()) == []
    assert [path.name for path in build.rglob(".*")] == []


def test_ctrl_c_leaves_no_processes(build, tool, record, monkeypatch):
    with sweeping(build, monkeypatch) as process:
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate(timeout=30)[1].decode()
        assert at_work_in(build) == {}
    assert said.endswith("KeyboardInterrupt\n")
    assert said.count("Traceback") == 1
    assert whole(build) == {"m0", "m1", "m2", "m3"}
    assert list((build / "runs").iterdir()) == []


def test_sweep_of_one_task_starts_no_workers(build, tool, record):
    with JobPool() as pool:
        assert results(modules(1), program(tool, 0), pool=pool) == ["m0"]
        assert results(modules(1) * 3, program(tool, 0), pool=pool) == ["m0"] * 3
        assert pool._client is None
    assert len(record.read_text().splitlines()) == 1


def test_failing_task_ends_others_and_saves_log(build, tool, record):
    began = time.monotonic()
    with pytest.raises(ToolError) as caught:
        results([*modules(1, "fail"), Module("", "slow")], program(tool, 0, tail=1))
    (log,) = (build / "logs").iterdir()
    assert log.read_text() == "ERROR: no\n"
    assert str(caught.value) == (f"Sleep on m0 failed with exit code 3: ERROR: no; the end of {log}:\n  ERROR: no")
    assert time.monotonic() - began < 30
    # Without a tail, the error has no log.
    log.unlink()
    with pytest.raises(ToolError, match=r"^Sleep on m0 failed with exit code 3: ERROR: no$"):
        results(modules(1, "fail"), program(tool, 0))
    assert list((build / "logs").iterdir()) == []


def test_job_in_process_gives_result_and_error(build):
    jobs = [Job("a fraction", Fraction, (1, number)) for number in (1, 2, 0)]
    with JobPool() as pool:
        found = {job.arguments[1]: result for job, result in pool.run(jobs[:2], here="process")}
        assert found == {1: Fraction(1), 2: Fraction(1, 2)}
        with pytest.raises(ZeroDivisionError):
            list(pool.run(jobs, here="process"))
    assert list((build / "runs").iterdir()) == []


def test_local_jobs_end_with_pool(build, tmp_path):
    with JobPool() as pool:
        running = pool.run([Job("a number", int, ("1",)), Job("sleep", time.sleep, (9999,))], here="process")
        assert next(running)[1] == 1
    assert list((build / "runs").iterdir()) == []


def test_tools_beside_a_body_give_results_and_end_with_it(tmp_path):
    with beside(Fraction, 1, 2) as half:
        assert half.result() == Fraction(1, 2)
    with pytest.raises(ZeroDivisionError), beside(Fraction, 1, 0) as error:
        error.result()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), beside(run_all, [Command("sleep", ["sleep", "9999"], tmp_path / "log")]):
        raise KeyboardInterrupt
    assert time.monotonic() - began < 60


# A scheduler -------------------------------------------------------------------------------------------------------


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def dask(*words, env=None):
    process = subprocess.Popen(
        [sys.executable, "-m", "dask", *map(str, words), "--no-dashboard"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=env,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def scheduling():
    """Start a scheduler without workers, and return its address."""
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    with dask("scheduler", "--host", "127.0.0.1", "--port", port) as process:
        wait(lambda: answers(address))
        yield process, address


class Kills(Progress):
    """Progress that kills the worker of a named job when another job is done."""

    def __init__(self, folders):
        self.folders = folders
        self.done = 0

    def advance(self, count):
        self.done += count
        if self.done == 1:
            (at,) = (process for folder in self.folders for process in self.stuck(folder))
            os.kill(at, signal.SIGKILL)

    def stuck(self, folder):
        """Return the worker of a folder whose job does not end."""
        wait(lambda: any(FOREVER in at_work_in(one).values() for one in self.folders))
        lines = at_work_in(folder)
        if FOREVER in lines.values():
            (tool,) = (process for process, line in lines.items() if line == FOREVER)
            yield next(one.pid for one in psutil.Process(tool).parents() if "dask" in "".join(one.cmdline()))


@pytest.mark.slow
def test_pool_repeats_job_of_killed_worker(build, tool, record, tmp_path, monkeypatch):
    jobs = modules(7)
    jobs[1] = replace(jobs[1], verilog="the first time forever")
    folders = [tmp_path / "one", tmp_path / "other"]
    with scheduling() as (_, address), contextlib.ExitStack() as workers:
        for folder in folders:
            workers.enter_context(working(address, folder))
        wait(lambda: len(connected(address)) == 2)
        with JobPool(address) as pool:
            progress = Kills(folders)
            assert results(jobs, program(tool), progress, pool) == [f"m{number}" for number in range(7)]
        assert len(connected(address)) == 1
    assert progress.done == 7
    assert len(record.read_text().splitlines()) == 8
    assert [*map(at_work_in, folders)] == [{}, {}]


def connected(address):
    """Return the workers of a scheduler."""
    with distributed.Client(address, set_as_default=False) as client:
        return client.nthreads()


def working(address, folder):
    """Start a worker with its own build folder."""
    words = ("worker", address, "--no-nanny", "--nthreads", 1, "--memory-limit", 0, "--local-directory", folder)
    return dask(*words, env=os.environ | {"HALFULP_BUILD": str(folder)})


@pytest.fixture(scope="module")
def scheduler(tool, tmp_path_factory):
    """Return the address of a scheduler with one worker, that worker, and its folder."""
    folder = tmp_path_factory.mktemp("worker")
    with scheduling() as (_, address), working(address, folder) as worker:
        yield address, worker, folder


def test_scheduler_without_workers_is_reported(build, tool, monkeypatch):
    monkeypatch.setattr(room, "PATIENCE", 1)
    with scheduling() as (_, address), JobPool(address) as pool, pytest.raises(ToolError, match="has no workers"):
        results(modules(1), program(tool), pool=pool)


@pytest.mark.slow
def test_lost_scheduler_is_reported(build, tool, tmp_path):
    with (
        scheduling() as (process, address),
        working(address, tmp_path),
        JobPool(address) as pool,
        pytest.raises(ToolError) as caught,
    ):
        results(modules(3), program(tool), Ends(process), pool=pool)
    assert f"{address} is lost" in str(caught.value)
    assert "m0" in whole(build)


class Ends(Progress):
    """Progress that ends a process when the first task is done."""

    def __init__(self, process):
        self.process = process

    def advance(self, count):
        self.process.kill()


def answers(address):
    host, _, port = address.removeprefix("tcp://").partition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port))):
        return True
    return False


@pytest.mark.slow
def test_scheduler_workers_run_even_one_task(build, tool, record, scheduler, monkeypatch):
    address, _, place = scheduler
    with JobPool(address) as pool:
        assert results(modules(1), program(tool, 0), pool=pool) == ["m0"]
        assert results(modules(3), program(tool, 0), pool=pool) == ["m0", "m1", "m2"]
        ran = record.read_text().splitlines()
        assert len(ran) == 3
        assert all(place in Path(folder).parents for folder in ran)
        assert whole(build) == {"m0", "m1", "m2"}
        with pytest.raises(ToolError, match=r"^Sleep on m0 failed with exit code 3: ERROR: no$"):
            results(modules(1, "fail"), program(tool, 0), pool=pool)
        # The worker has another version.
        monkeypatch.setenv("SLEEP", "2")
        with pytest.raises(ToolError, match=r"^the worker at tcp:.* has sleep 1 instead of 2; install"):
            results(modules(1, "other"), program(tool, 0), pool=pool)
    monkeypatch.setenv("SLEEP", "1")
    monkeypatch.setattr(room, "_own", lambda: "others")
    with (
        JobPool(address) as pool,
        pytest.raises(ToolError, match=r"has halfulp 0.* instead of others; "),
    ):
        results(modules(1, "other"), program(tool, 0), pool=pool)


@pytest.mark.slow
@pytest.mark.sampled(3, 3)
@pytest.mark.parametrize(
    "words",
    [
        "sweep mul e2m1fn",
        "mutate mul e2m1 -n 8",
        "faults mac e2m1 --acc e3m2 --bit-flips 96 --stuck-at 16",
        "formal mul e2m1",
        "train lenet5 --mac fp32 --limit 8 --epochs 1 --seed 0 --seed 1 --table results.csv -o runs",
        "report pwl relu tanh --fmt fxp2.4 --pieces 2 -o report",
    ],
)
def test_command_gives_same_output_on_scheduler(scheduler, tmp_path, monkeypatch, words):
    address, _, place = scheduler
    monkeypatch.chdir(tmp_path)
    local = CliRunner().invoke(cli, words.split())
    if words.startswith(("formal", "report")):
        # Their results are cached.
        monkeypatch.setenv("HALFULP_BUILD", str(tmp_path / "build"))
    before = sum(1 for path in place.rglob("*") if path.is_file())
    remote = CliRunner().invoke(cli, [*words.split(), "--scheduler", address])
    assert (remote.exit_code, timeless(remote.stdout)) == (local.exit_code, timeless(local.stdout))
    assert sum(1 for path in place.rglob("*") if path.is_file()) > before


def timeless(text):
    """Return output without lines and cells of times."""
    return [line for line in re.sub(r"\| +[0-9.]+ \|$", "", text, flags=re.M).splitlines() if "seconds" not in line]


@pytest.mark.slow
def test_worker_without_task_module_is_reported(build, scheduler, tmp_path, monkeypatch):
    address, worker, _ = scheduler
    (tmp_path / "unknown.py").write_text(TOOL)
    monkeypatch.syspath_prepend(tmp_path)
    import unknown

    with JobPool(address) as pool, pytest.raises(ToolError) as caught:
        results(modules(1), program(unknown), pool=pool)
    assert "No module named 'unknown'" in str(caught.value)
    assert worker.poll() is None


def test_missing_scheduler_is_reported(build, tool, monkeypatch):
    monkeypatch.setattr(room, "PATIENCE", 1)
    # The garbage collector would close a failed connection in any thread, with occasional deadlocks.
    monkeypatch.setattr(distributed, "Client", None)
    address = f"tcp://127.0.0.1:{free_port()}"
    with JobPool(address) as pool, pytest.raises(ToolError) as caught:
        results(modules(1), program(tool), pool=pool)
    assert str(caught.value) == f"no Dask scheduler answers at {address}; start one with: dask scheduler"


@pytest.mark.parametrize(
    "text",
    ["", "host", "host:8786", "tcp://host", "tcp://:8786", "tcp://h:x", "http://host:80"]
    + ["tcp://host:8786?tls-cert=x", "tls://host:8786?cert=x", "tls://host:8786?tls-cert"],
)
def test_job_pool_rejects_bad_address(text):
    with pytest.raises(ValueError, match="invalid scheduler"):
        JobPool(text)


def certificate(folder):
    """Return TLS options with one certificate for the scheduler, its workers and its clients."""
    ca, cert, key = (folder / f"{name}.pem" for name in ("ca", "cert", "key"))
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(ca)
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    return {"tls-ca-file": ca, "tls-cert": cert, "tls-key": key}


def test_pool_passes_tls_files_to_dask(tool, build, monkeypatch):
    given = []

    class Recorded(distributed.Security):
        def get_connection_args(self, role):
            given.append(self)
            raise OSError

    monkeypatch.setattr(distributed, "Security", Recorded)
    options = "?tls-ca-file=a.pem&tls-cert=b.pem&tls-key=c.key"
    for address in ("tls://host:8786", f"tls://host:8786{options}"):
        with JobPool(address) as pool, pytest.raises(ToolError, match="no Dask scheduler answers at tls://host:8786;"):
            results(modules(1), program(tool), pool=pool)
    files = [(one.tls_ca_file, one.tls_client_cert, one.tls_client_key, one.require_encryption) for one in given]
    assert files == [(None, None, None, False), ("a.pem", "b.pem", "c.key", True)]


def test_pool_reports_silent_program_at_port(tool, build, monkeypatch):
    monkeypatch.setattr(room, "PATIENCE", 1)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        JobPool(f"tcp://127.0.0.1:{server.getsockname()[1]}") as pool,
        pytest.raises(ToolError, match="no Dask scheduler"),
    ):
        results(modules(1), program(tool), pool=pool)


def test_pool_reports_other_program_at_port(tool, build, monkeypatch):
    def answer():
        connection, _ = server.accept()
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(1000))
        connection.close()

    monkeypatch.setattr(room, "PATIENCE", 1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, daemon=True).start()
        with JobPool(f"tcp://127.0.0.1:{server.getsockname()[1]}") as pool, pytest.raises(ToolError):
            results(modules(1), program(tool), pool=pool)


@pytest.mark.slow
def test_pool_uses_tls_of_address(build, tool, record, tmp_path, capsys):
    options = certificate(tmp_path)
    words = [word for name, path in options.items() for word in (f"--{name}", path)]
    port = free_port()
    address = f"tls://127.0.0.1:{port}"
    files = "&".join(f"{name}={path}" for name, path in options.items())
    with (
        dask("scheduler", "--protocol", "tls", "--host", "127.0.0.1", "--port", port, *words),
        dask("worker", address, "--no-nanny", "--nthreads", 1, "--local-directory", tmp_path, *words),
    ):
        with JobPool(f"{address}?{files}") as pool:
            assert results(modules(1), program(tool), pool=pool) == ["m0"]
        with JobPool(address) as pool, pytest.raises(ToolError, match="TLS"):
            results(modules(2), program(tool), pool=pool)
    assert capsys.readouterr().err == ""


def test_pool_without_tls_warns(build, tool, monkeypatch, capsys):
    monkeypatch.setattr(room, "PATIENCE", 1)
    with JobPool(f"tcp://127.0.0.1:{free_port()}") as pool, pytest.raises(ToolError):
        results(modules(1), program(tool), pool=pool)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "no TLS" in said


def test_job_pool_rejects_non_text_address():
    with pytest.raises(TypeError, match="scheduler must be a text"):
        JobPool(8786)


# Folders -----------------------------------------------------------------------------------------------------------


def test_scratch_removes_folders_of_dead_processes_only(build):
    left, others = (build / "runs" / name for name in ("it-left", "others-left"))
    for folder in (left, others):
        folder.mkdir(parents=True)
        folder.with_suffix(".lock").touch()
    with scratch("it") as first, scratch("it") as second:
        assert {path for path in (build / "runs").iterdir() if path.is_dir()} == {first, second, others}
    assert set((build / "runs").iterdir()) == {others, others.with_suffix(".lock")}


@pytest.mark.parametrize("terminal", [False, True])
def test_heartbeat_tells_what_a_slow_command_does(terminal, capsys, monkeypatch):
    monkeypatch.setenv("HALFULP_QUIET", "0.05")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with heartbeat("check"):
        time.sleep(0.1)
        assert re.fullmatch("halfulp: check, 0 s\n", capsys.readouterr().err)
        with Bar("tile") as bar:
            bar.total("synthesis", 4, 1)
            time.sleep(0.2)
            said = capsys.readouterr().err
    assert ("halfulp: tile: synthesis, 1 of 4, 0 s\n" in said) == (not terminal)
    time.sleep(0.3)
    assert "halfulp" not in capsys.readouterr().err


@pytest.mark.parametrize(("seconds", "lines"), [("5", "halfulp: 21 LUT\n"), ("0", "")])
def test_bar_prints_results_of_a_long_run(seconds, lines, capsys, monkeypatch):
    monkeypatch.setenv("HALFULP_QUIET", seconds)
    with Bar("choose") as bar:
        bar.note("21 LUT")
    assert capsys.readouterr().err == lines


@pytest.mark.parametrize("seconds", ["-1", "inf", "no"])
def test_wrong_time_of_progress_is_refused(seconds, halfulp, monkeypatch):
    monkeypatch.setenv("HALFULP_QUIET", seconds)
    code, out, err = halfulp("list", "units")
    assert (code, out) == (2, "")
    assert (
        err == f"halfulp: HALFULP_QUIET={seconds} is no number of seconds; 0 stands for no lines about the progress\n"
    )


@pytest.mark.parametrize("terminal", [False, True])
def test_bar_shows_phases_on_a_terminal_only(terminal, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    clock = iter(range(100))
    monkeypatch.setattr("halfulp.tools.progress.monotonic", lambda: next(clock))
    with Bar("sim") as bar:
        bar.total("building")
        bar.total("checking", 8, 2)
        bar.advance(3)
    lines = capsys.readouterr().err.replace("\x1b[2K", "").split("\r")
    assert lines == (
        ["sim", "sim: building", f"sim: checking [{6 * '#':24}] 2/8, 1 s",
         f"sim: checking [{15 * '#':24}] 5/8, 3 s, 3 s left", "", ""] if terminal else [""]
    )  # fmt: skip
