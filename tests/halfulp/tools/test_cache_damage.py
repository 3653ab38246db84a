"""Damaged files of every stored kind: truncated and flipped files are refused or made again."""

import contextlib
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from halfulp.fpga.report.dots import layer_of
from halfulp.hdl.fit.store import segments_of, write
from halfulp.lab.train.data import cifar
from halfulp.lab.train.loop import _sealed, read
from halfulp.tools.cache import FOLDER, Entry
from halfulp.tools.errors import ToolError
from halfulp.tools.paths import build_root, check_private
from halfulp.tools.processes import Command, run_all
from tests.settings import EXHAUSTIVE

PROBES = {
    "fits": "from halfulp.unit import unit; print(unit('pwl silu(fxp4.6) pieces=4').table.text)",
    "verilog": "from halfulp.sim.build import design; from halfulp.unit import unit\n"
    "print(design(unit('mul e2m1fn*e2m1fn').component()).verilog)",
    "data": "from halfulp.lab.train.data import mnist; print(mnist(None).digest)",
    "kernels": "import torch; from halfulp import golden; x = torch.arange(256).reshape(16, 16)\n"
    "print(golden.gemm(x, x, 'e5m2*e5m2+e6m5.rn'))",
    "models": "from halfulp.sim.model import CompiledModel; from halfulp.unit import unit\n"
    "from halfulp.sim.build import *\n"
    "made = unit('mul e2m1fn*e2m1fn').component(); CompiledModel.of_unit(made)\n"
    "print(list(models(design(made, ('cocotb',)), ('cocotb',))))",
    "synth": "from halfulp.boards.targets import target_of; from halfulp.fpga.synth.measure import *\n"
    "from halfulp.implementation import implementation\n"
    "print(measure_modules([module_of(implementation('mul', 'e2m1fn'))], target_of('vu9p')))",
}
"""Programs that need an entry of a kind. Compiled models also need the headers and the runtime."""


PLACES = 50 if EXHAUSTIVE else 8
"""Damaged places of each file of an entry."""


def run(program: str) -> tuple[str, str]:
    """Run a program that succeeds, and return its output and messages."""
    env = os.environ | {"HALFULP_KERNEL": "native"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, done.stderr


def damages(path: Path, places: int) -> Iterator[tuple[str, int]]:
    """Damage a file at several places in turn, and restore it at the end."""
    whole = path.read_bytes()
    try:
        for place in sorted({number * len(whole) // places for number in range(places)}):
            for bit in (place % 8, 6):
                path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :])
                yield "flip", place
            path.write_bytes(whole[:place])
            yield "truncate", place
    finally:
        path.write_bytes(whole)


def check_entry(folder: Path, places: int) -> int:
    """Check that no damaged file of an entry is used; return the number of damages."""
    entry = Entry(folder.parent.name, folder.name)
    assert entry.find() == folder
    count = 0
    for path in (path for path in folder.rglob("*") if path.is_file()):
        for damage, place in damages(path, min(places, path.stat().st_size)):
            assert entry.find() is None, f"{path}: {damage} at {place}"
            count += 1
    assert entry.find() == folder
    return count


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["fits", "verilog"])
def test_damaged_entries_are_found(kind: str, own_build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own_build / FOLDER / kind).unlink(missing_ok=True)
    wanted = run(PROBES[kind])
    (folder,) = (own_build / FOLDER / kind).iterdir()
    damaged = check_entry(folder, 5)
    assert damaged == 30
    assert capsys.readouterr().err.count("will be rebuilt\n") == damaged
    (folder / "value.json").write_bytes((folder / "value.json").read_bytes()[:-9])
    said = run(PROBES[kind])
    assert said[0] == wanted[0]
    assert said[1].count("is damaged") == 1


@pytest.mark.slow
@pytest.mark.sampled(6, 6)
@pytest.mark.parametrize("kind", PROBES)
def test_damage_campaign_of_cache_finds_no_wrong_result(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path))
    wanted, _ = run(PROBES[kind])
    folders = [folder for folder in (tmp_path / FOLDER).glob("*/*") if not folder.name.startswith(".")]
    assert kind in {folder.parent.name for folder in folders}
    for folder in folders:
        assert check_entry(folder, PLACES) > 2 * PLACES
        paths = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".log"]
        for place, path in enumerate(paths):
            whole = path.read_bytes()
            half = whole[: len(whole) // 2]
            changes = (half, half + b"\0" + whole[len(half) + 1 :])
            for damaged in changes if EXHAUSTIVE else (changes[place % 2],):
                if damaged != whole:
                    path.write_bytes(damaged)
                    found, said = run(PROBES[kind])
                    assert found == wanted, path
                    # Headers and runtime are needed only to build a model.
                    if folder.parent.name not in ("headers", "runtime", "verilog", "bench"):
                        assert f"{folder} is damaged" in said


@pytest.mark.slow
def test_damage_campaign_covers_every_kind_of_the_shared_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = build_root() / FOLDER
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path))
    for kind in shared.iterdir():
        for folder in [folder for folder in sorted(kind.iterdir()) if (folder / "manifest.json").is_file()][:1]:
            own = tmp_path / FOLDER / kind.name / folder.name
            shutil.copytree(folder, own)
            assert check_entry(own, PLACES) > 0


def check_file(path: Path, give: Callable[[], object], places: int = 50) -> None:
    """Check that a damaged file gives the same result or is refused."""
    wanted = give()
    refused = 0
    for damage, place in damages(path, min(places, path.stat().st_size)):
        try:
            found = give()
        except ValueError:
            refused += 1
        else:
            assert found == wanted, f"{damage} at {place}"
    assert refused > places


def test_damaged_segments_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path / "build"))
    table = segments_of("silu", fmt="fxp4.6", pieces=4)
    path = write(table)
    check_file(path, lambda: segments_of(str(table)))
    check_file(path, lambda: segments_of(str(path)))
    # A file written by a user has no digest.
    path.write_text(table.text)
    assert segments_of(str(path)) == table


def test_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    torch.save({"key": "a", "plan": {}, "model": {"weight": [*range(1000)]}}, path)
    path.write_bytes(_sealed(path.read_bytes()))
    assert torch.load(path, weights_only=True) == read(path)
    check_file(path, lambda: read(path))


def test_tool_without_output_on_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = Command("the C++ compiler", ["false"], tmp_path / "log")
    with pytest.raises(ToolError, match="no output"):
        run_all([command])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1 << 30, 1 << 30, 4096))
    with pytest.raises(ToolError, match="disk is full"):
        run_all([command])


# Folders that others can write --------------------------------------------------------------------------------

USE = "from halfulp.tools.cache import cached_value; print(cached_value('kind', ('a',), lambda: 1))"


@pytest.mark.parametrize("place", [".", "cache", "cache/kind", "cache/kind/*"])
def test_cache_folder_that_others_can_write_is_refused(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path))
    assert run(USE)[0] == "1\n"
    (folder,) = tmp_path.glob(place) if place != "." else [tmp_path]
    for mode, allowed in ((0o777, False), (0o1777, False), (0o755, True)):
        folder.chmod(mode)
        done = subprocess.run([sys.executable, "-c", USE], capture_output=True, text=True)
        assert ("ToolError: other users can write" in done.stderr) is not allowed
        assert done.stdout == "1\n" * allowed


@pytest.mark.parametrize(
    ("owner", "group", "mode", "allowed"),
    [(1 << 20, 0, 0o755, False), (0, 1 << 20, 0o775, False), (0, 1 << 20, 0o755, True), (0, 0, 0o775, True)],
)
def test_cache_folder_of_another_user_is_refused(
    owner: int, group: int, mode: int, allowed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Path.stat

    def stat(path: Path, **options: Any) -> Any:
        """Report another owner, because only root can change the owner of a folder."""
        own = SimpleNamespace(st_mode=mode, st_uid=owner, st_gid=group)
        return own if path == tmp_path else plain(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    with contextlib.nullcontext() if allowed else pytest.raises(ToolError, match="other users can write"):
        check_private(tmp_path)


def test_command_refuses_cache_that_others_can_write(
    halfulp: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path))
    tmp_path.chmod(0o777)
    code, out, err = halfulp("sim", "mul", "e2m1fn")
    assert (code, out) == (3, "")
    assert err.count("\n") == 1
    assert "chmod go-w" in err


# Data -----------------------------------------------------------------------------------------------------------------


class Bomb:
    """Object that creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("kind", ["checkpoint.pt", "layer.pt", "data_batch_1"])
def test_stored_data_runs_no_code(kind: str, tmp_path: Path) -> None:
    path, proof = tmp_path / kind, tmp_path / "ran"
    held = {"key": "a", "plan": {}, "model": {}, "activations": Bomb(proof), b"data": Bomb(proof)}
    if kind.endswith(".pt"):
        torch.save(held, path)
        path.write_bytes(_sealed(path.read_bytes()))
    else:
        path.write_bytes(pickle.dumps(held))
    readers = {"checkpoint.pt": read, "layer.pt": layer_of, "data_batch_1": lambda _: cifar(tmp_path)}
    with pytest.raises(ValueError, match=kind):
        readers[kind](path)
    assert not proof.exists()
