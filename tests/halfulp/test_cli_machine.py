"""Program on machines without a compiler, with a full disk, or with tools that fail."""

import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from halfulp.tools.errors import ToolError
from halfulp.tools.paths import machine_errors, replacing_folder, write_whole
from halfulp.tools.processes import Command, run_all
from tests.program import environment, leftovers, process, refused


@pytest.mark.slow
def test_sim_reports_missing_compiler(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    env = environment(HALFULP_BUILD=str(tmp_path / "build"), PATH=str(tmp_path / "bin"))
    env.pop("CXX", None)
    said = refused(process("sim", "mul", "e2m1fn", env=env), 3)
    assert "g++ was not found" in said
    assert "CXX" in said
    said = refused(process("sim", "mul", "e2m1fn", env=env | {"CXX": "no-such-compiler"}), 3)
    assert "no-such-compiler was not found" in said


@pytest.mark.slow
def test_sim_reports_failing_compiler(tmp_path: Path) -> None:
    compiler = tmp_path / "broken"
    compiler.write_text('#!/bin/sh\ntest "$1" = --version && exit 0\necho "error: out of ideas" >&2\nexit 7\n')
    compiler.chmod(0o755)
    env = environment(HALFULP_BUILD=str(tmp_path / "build"), CXX=str(compiler))
    said = refused(process("sim", "mul", "e2m1fn", env=env), 3)
    assert said == "the C++ compiler failed with exit code 7: error: out of ideas"
    assert leftovers(tmp_path / "build") == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("room", [1 << 10, 1 << 17])
def test_sim_reports_full_disk(tmp_path: Path, room: int) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    env = environment(HALFULP_BUILD=str(tmp_path / "build"), PYTHONDONTWRITEBYTECODE="1")
    said = refused(process("sim", "mul", "e2m1fn", env=env, preexec_fn=limit), 3)
    assert said.startswith("the disk is full: ")
    assert leftovers(tmp_path / "build") == []


def test_emit_preserves_old_file_on_full_disk(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 10, 1 << 10))

    path = tmp_path / "mac.v"
    path.write_text("old")
    said = refused(process("emit", "mac", "e5m2", "-o", str(path), preexec_fn=limit), 3)
    assert said.startswith("the disk is full: ")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["mac.v"]


@pytest.mark.slow
def test_emit_works_without_writable_build_folder() -> None:
    words = ("emit", "pwl", "fxp4.6", "--fn", "silu", "--pieces", "4")
    expected = process(*words)
    code, out, err = process(*words, env=environment(HALFULP_BUILD="/proc/x"))
    assert (code, out) == (0, expected[1])
    assert err.count("\n") == 1
    assert "cannot be written" in err


@pytest.mark.slow
def test_train_reports_unusable_build_folder(tmp_path: Path) -> None:
    """Requested results are never written to a temporary folder."""
    (tmp_path / "build").write_text("a file")
    env = environment(HALFULP_BUILD=str(tmp_path / "build"))
    code, out, err = process("train", "lenet5", "--mac", "fp32", "--limit", "10", env=env)
    assert (code, out) == (3, "")
    assert "could not be written" in err.splitlines()[-1]


def test_machine_errors_have_one_sentence(tmp_path: Path) -> None:
    full, denied = OSError(28, "No space left on device", "here"), PermissionError(13, "Permission denied")
    for error, sentence in (
        (full, r"^the disk is full: it could not be written \(here\); free some space$"),
        (denied, "^it could not be written: Permission denied$"),
    ):
        with pytest.raises(ToolError, match=sentence), machine_errors("it"):
            raise error
    log = tmp_path / "log"
    with pytest.raises(ToolError, match=r"^the tool was ended by signal 9"):
        run_all([Command("the tool", ["sh", "-c", "kill -9 $$"], log)])
    with pytest.raises(ToolError, match=r"^the disk is full: the tool reports: No space left on device$"):
        run_all([Command("the tool", ["sh", "-c", "echo No space left on device; exit 1"], log)])
    with pytest.raises(ToolError, match="nothing-there does not exist"):
        run_all([Command("the tool", ["nothing-there"], log)])


def test_run_all_ends_other_tools_after_failure(tmp_path: Path) -> None:
    began = time.monotonic()
    commands = [["sleep", "60"], ["sh", "-c", "exit 3"]]
    with pytest.raises(ToolError, match="exit code 3"):
        run_all([Command("it", argv, tmp_path / f"{n}.log") for n, argv in enumerate(commands)], jobs=2)
    assert time.monotonic() - began < 30


def test_run_all_limits_jobs(tmp_path: Path) -> None:
    ended = []

    def commands() -> Iterator[Command]:
        for number in range(3):
            ended.append(len(list(tmp_path.glob("*.end"))))
            yield Command("it", ["touch", str(tmp_path / f"{number}.end")], tmp_path / "log")

    run_all(commands(), jobs=1)
    assert ended == [0, 1, 2]


def test_replacing_folder_is_whole_or_absent(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    with pytest.raises(ZeroDivisionError), replacing_folder(folder) as scratch:
        (scratch / "half").write_text(str(1 / 0))
    assert list(tmp_path.iterdir()) == []
    for text in ("first", "second"):
        with replacing_folder(folder) as scratch:
            (scratch / "file").write_text(text)
        assert (folder / "file").read_text() == text
        assert list(tmp_path.iterdir()) == [folder]
    write_whole(folder / "file", "new")
    assert [entry.name for entry in folder.iterdir()] == ["file"]
