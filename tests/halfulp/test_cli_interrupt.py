"""Ctrl-C while the program runs, and two runs at once."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from halfulp.tools.commands import run
from halfulp.tools.paths import build_root
from halfulp.tools.processes import uninterrupted
from tests.program import PROGRAM, environment, leftovers, process

# Ctrl-C ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def running(*words: str, build: Path) -> Iterator["subprocess.Popen[str]"]:
    """Start the program in an empty build folder, with precompiled headers of Verilator."""
    common = build_root() / "cache" / "headers"
    common.mkdir(parents=True, exist_ok=True)
    (build / "cache").mkdir(parents=True, exist_ok=True)
    if not (build / "cache" / "headers").exists():
        (build / "cache" / "headers").symlink_to(common)
    process = subprocess.Popen(
        [*PROGRAM, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(HALFULP_BUILD=str(build)),
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def interrupt(process: "subprocess.Popen[str]", when: Callable[[], bool], how: int = signal.SIGINT) -> tuple[str, str]:
    deadline = time.monotonic() + 120
    while not when():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(how)
    return process.communicate(timeout=30)


def processes_in(folder: Path) -> list[str]:
    """Return the command lines of the processes that use a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(folder) in words:
                found.append(words)
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_sim_stops_on_ctrl_c_while_compiling(tmp_path: Path, how: int) -> None:
    build = tmp_path / "build"
    with running("sim", "mul", "e2m1fn", build=build) as process:
        out, err = interrupt(process, lambda: any((build / "cache" / "runtime").glob(".*/*.log")), how)
        assert (process.returncode, out, err) == (130, "", "halfulp: stopped\n")
    assert processes_in(build) == []
    assert leftovers(build) == []


def test_ctrl_c_in_a_destructor_stops_the_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Unit:
        def __del__(self) -> None:
            raise KeyboardInterrupt

    @click.command()
    def delete() -> None:
        Unit()
        # The interrupt ends the wait at once; without one the command succeeds after it, and the test fails.
        time.sleep(10)

    monkeypatch.setattr(sys, "argv", ["halfulp"])
    with pytest.raises(SystemExit) as end:
        run(delete)
    assert (end.value.code, capsys.readouterr().err) == (130, "halfulp: stopped\n")


def test_ctrl_c_waits_for_a_starting_tool() -> None:
    """An interrupt during the start of a tool would leave a process that nothing ends."""
    started = []

    def interrupted_start() -> None:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            started.append("tool")

    with pytest.raises(KeyboardInterrupt):
        interrupted_start()
    assert started == ["tool"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.slow
def test_sim_stops_on_ctrl_c_while_simulating(tmp_path: Path) -> None:
    build = shared_runtime(tmp_path)
    with running("sim", "mul", "fp32", "--vectors", "20000000", build=build) as process:
        out, err = interrupt(process, lambda: any((build / "runs").glob("*/simulator.log")))
        assert (process.returncode, out, err) == (130, "", "halfulp: stopped\n")
    assert processes_in(build) == []
    assert leftovers(build) == []


@pytest.mark.slow
def test_sweep_saves_state_on_ctrl_c(tmp_path: Path) -> None:
    build = shared_runtime(tmp_path)
    for _ in range(2):
        with running("sweep", "mac", "e5m2", build=build) as process:
            saved = save_times(build)
            out, err = interrupt(process, lambda known=saved: bool(save_times(build) - known))  # type: ignore[misc]  # a default binds the name
            assert (process.returncode, out) == (130, "")
        assert err.startswith("halfulp: stopped; ")
        assert err.endswith("% is done and saved; the same command resumes the sweep\n")
    assert leftovers(build) == []


def save_times(build: Path) -> set[int]:
    """Return the times at which the states of sweeps were written."""
    return {path.stat().st_mtime_ns for path in (build / "cache" / "sweeps").glob("[!.]*/value.json")}


def shared_runtime(tmp_path: Path) -> Path:
    """Return an empty build folder with the compiled runtime."""
    process("sim", "mul", "e2m1fn", "--vectors", "16")
    (tmp_path / "build" / "cache").mkdir(parents=True)
    (tmp_path / "build" / "cache" / "runtime").symlink_to(build_root() / "cache" / "runtime")
    return tmp_path / "build"


# Concurrent runs ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_sim_runs_twice_in_one_build_folder(tmp_path: Path) -> None:
    build = tmp_path / "build"
    words = ("sim", "mul", "e3m2fn", "--wave", "--vectors", "2000")
    with running(*words, build=build) as first, running(*words, build=build) as second:
        for process in (first, second):
            out, err = process.communicate(timeout=240)
            assert process.returncode == 0, out + err
            assert out.endswith("PASS\n")
    assert leftovers(build) == []
    assert len(list((build / "cache" / "runtime").iterdir())) == 1
