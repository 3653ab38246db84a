"""Cache: entries are checked, repaired if damaged, and made once."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from halfulp.hdl.formats.codebook import Codebook
from halfulp.tools import cache, digests, paths
from halfulp.tools.cache import Entry, cached, cached_all, cached_value
from halfulp.tools.digests import code, commit, digest
from halfulp.tools.errors import ToolError


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty build folder."""
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path / "build"))
    return tmp_path / "build"


class Maker:
    """Maker of an entry of two files that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, folder: Path) -> None:
        self.calls += 1
        (folder / "inner").mkdir()
        (folder / "first").write_text("one")
        (folder / "inner" / "second").write_text("two" * 100)


def contents(folder: Path) -> tuple[str, str]:
    return (folder / "first").read_text(), (folder / "inner" / "second").read_text()


def test_cached_makes_entry_once_for_each_parts(root: Path) -> None:
    make = Maker()
    folder = cached("kind", ("a", 1), make, name="some name")
    assert folder.parent == root / "cache" / "kind"
    assert folder.name.startswith("some_name-")
    assert contents(folder) == ("one", "two" * 100)
    assert cached("kind", ("a", 1), make, name="some name") == folder
    assert make.calls == 1
    assert cached("kind", ("a", 2), make, name="some name") != folder
    assert make.calls == 2
    assert not list(root.rglob(".*"))


def truncate(folder: Path) -> None:
    (folder / "first").write_text("on")


def flip(folder: Path) -> None:
    held = bytearray((folder / "inner" / "second").read_bytes())
    held[7] ^= 1
    (folder / "inner" / "second").write_bytes(held)


def empty(folder: Path) -> None:
    (folder / "inner" / "second").write_text("")


def remove(folder: Path) -> None:
    (folder / "first").unlink()


def remove_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def truncate_manifest(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text()[:20])


def flip_manifest(folder: Path) -> None:
    path = folder / "manifest.json"
    listed = json.loads(path.read_text())
    listed["first"][1] = listed["first"][1][::-1]
    path.write_text(json.dumps(listed))


def nest_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text("[" * 100_000)


@pytest.mark.parametrize(
    "damage", [truncate, flip, empty, remove, remove_manifest, truncate_manifest, flip_manifest, nest_manifest]
)
def test_damaged_entry_is_made_again_with_one_line(
    damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    make = Maker()
    folder = cached("kind", ("a",), make)
    damage(folder)
    assert cached("kind", ("a",), make) == folder
    assert contents(folder) == ("one", "two" * 100)
    assert make.calls == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert f"{folder} is damaged" in said.err
    assert cached("kind", ("a",), make) == folder
    assert capsys.readouterr().err == ""


def test_damaged_value_is_made_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert cached_value("kind", ("a",), lambda: [1, "x"]) == [1, "x"]
    assert cached_value("kind", ("a",), lambda: pytest.fail("it was there")) == [1, "x"]
    entry = Entry.of("kind", ("a",))
    (entry.folder / "value.json").write_text('[1, "y"]')
    assert entry.value() is None
    assert cached_value("kind", ("a",), lambda: [1, "x"]) == [1, "x"]
    assert capsys.readouterr().err.count("will be rebuilt") == 2


def test_entry_store_replaces_and_drop_removes() -> None:
    entry = Entry.of("kind", ("a",), "of mine")
    assert entry.value() is None
    for value in ({"x": 1}, {"x": 2}):
        entry.store(value)
        assert entry.value() == value
    entry.drop()
    assert entry.value() is None


def test_failing_make_writes_nothing(root: Path) -> None:
    def make(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached("kind", ("a",), make)
    assert list((root / "cache" / "kind").iterdir()) == []
    assert contents(cached("kind", ("a",), Maker())) == ("one", "two" * 100)


def test_files_of_killed_process_are_replaced(root: Path) -> None:
    folder = Entry.of("kind", ("a",)).folder
    left = folder.with_name(f".{folder.name}.new")
    left.mkdir(parents=True)
    (left / "half").write_text("half")
    folder.with_name(f".{folder.name}.lock").touch()
    cached("kind", ("a",), Maker())
    assert sorted(path.name for path in folder.iterdir()) == ["first", "inner", "manifest.json"]
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_full_disk_is_reported(root: Path) -> None:
    def make(folder: Path) -> None:
        raise OSError(28, "No space left on device", "here")

    with pytest.raises(ToolError, match="the disk is full"):
        cached("kind", ("a",), make)
    assert list((root / "cache" / "kind").iterdir()) == []


@pytest.mark.parametrize("place", ["/proc/x", "a file"])
def test_unwritable_build_folder_is_replaced_by_temporary_one(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path / place))
    make = Maker()
    folders = [cached("kind", ("a",), make) for _ in range(2)]
    assert contents(folders[0]) == ("one", "two" * 100)
    assert (folders[0], make.calls) == (folders[1], 1)
    with paths.scratch("it") as folder:
        (folder / "file").write_text("")
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "cannot be written" in said


@pytest.mark.parametrize("place", ["cache", "cache/kind"])
def test_unwritable_folder_of_a_kind_is_replaced_by_temporary_one(
    place: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / place).parent.mkdir(parents=True)
    (root / place).write_text("")
    assert contents(cached("kind", ("a",), Maker())) == ("one", "two" * 100)
    assert contents(cached("kind", ("b",), Maker())) == ("one", "two" * 100)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "cannot be written" in said


def in_child(work: Callable[[], None]) -> None:
    """Run a function in a process with the permissions of an unprivileged user."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def test_readonly_build_folder_serves_entries(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    make = Maker()

    def work() -> None:
        paths.writable.cache_clear()
        folders = [cached("kind", (part,), make) for part in "ab"]
        assert make.calls == 2
        assert [folder.is_relative_to(top) for folder in folders] == [True, False]
        assert [contents(folder) for folder in folders] == [("one", "two" * 100)] * 2
        Entry.of("kind", ("a",)).drop()
        shutil.rmtree(paths.work_root())

    # Other users cannot enter tmp_path.
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        monkeypatch.setenv("HALFULP_BUILD", name)
        folder = cached("kind", ("a",), make)
        folders = [top, *(path for path in top.rglob("*") if path.is_dir())]
        for path in folders:
            path.chmod(0o555)
        try:
            in_child(work)
        finally:
            for path in folders:
                path.chmod(0o755)
        assert contents(folder) == ("one", "two" * 100)
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "cannot be written" in said


RACING = """
import sys, time
from pathlib import Path
from halfulp.tools.cache import cached
def make(folder):
    with open(sys.argv[1], "a") as file:
        file.write("made\\n")
    time.sleep(0.5)
    (folder / "file").write_text("made")
print((cached("kind", ("a",), make) / "file").read_text())
"""


def test_two_processes_make_an_entry_once(root: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    running = [
        subprocess.Popen([sys.executable, "-c", RACING, str(log)], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    assert [process.communicate(timeout=60)[0] for process in running] == ["made\n"] * 3
    assert log.read_text() == "made\n"
    assert not list(root.rglob("*.lock"))


def test_threads_make_entries_once_without_deadlock() -> None:
    """Two threads request the same two entries in opposite order, and each entry requires a third one."""
    makes = {name: Maker() for name in "abc"}
    entries = {name: Entry.of("kind", (name,)) for name in "abc"}

    def make(folders: dict[str, Path]) -> None:
        cached_all({"c": entries["c"]}, lambda inner: makes["c"](inner["c"]))
        for name, folder in folders.items():
            makes[name](folder)

    threads = [
        threading.Thread(target=cached_all, args=({name: entries[name] for name in order}, make))
        for order in ("ab", "ba", "ab", "ba")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()
    assert [maker.calls for maker in makes.values()] == [1, 1, 1]


# Code ----------------------------------------------------------------------------------------------------------------

BEFORE = {
    "__init__": '"""A package."""\n',
    "top": """
        '''The module.'''
        from .inner import double as twice  # of numbers

        def four(x):
            '''Four times a number.'''
            return twice(twice(x))
        """,
    "inner": """
        from fractions import Fraction

        FEW = {"a", "b", "c", "d"}

        def double(x):
            def inner(y):
                return 2 * y if y not in {"a", "b", "c", "d"} else y
            return inner(x)
        """,
    "other": "X = 1\n",
}


@pytest.mark.parametrize(
    ("module", "old", "new", "same"),
    [
        ("top", "The module.", "Another text.", True),
        ("top", "Four times a number.", "x + x + x + x, with more\n            lines.", True),
        ("top", "  # of numbers", "", True),
        ("inner", "def double(x):", "# A comment.\n\n        def double(x):", True),
        ("inner", "2 * y", "(2  *  y)", True),
        ("other", "X = 1", "X = 2", True),
        ("top", "twice(twice(x))", "twice(x)", False),
        ("inner", "2 * y", "3 * y", False),
        ("inner", "2 * y", "2 + y", False),
        ("inner", "2 * y", "y * 2", False),
        ("inner", '"d"}\n\n', '"e"}\n\n', False),
        (
            "top",
            "from .inner import double as twice",
            "from . import inner, other\n        twice = inner.double",
            False,
        ),
    ],
)
def test_code_ignores_comments_and_detects_every_change(
    module: str, old: str, new: str, same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "path_of", lambda name: found if (found := place(name)).is_file() else None)

    def place(name: str) -> Path:
        *folders, last = name.split(".")
        path = tmp_path.joinpath(*folders, last)
        return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")

    def digest_of(texts: dict[str, str]) -> str:
        digests._module.cache_clear()
        (tmp_path / "halfulp").mkdir(exist_ok=True)
        for name, text in texts.items():
            (tmp_path / "halfulp" / f"{name}.py").write_text(textwrap.dedent(text))
        return code("halfulp.top")

    try:
        before = digest_of(BEFORE)
        assert old in BEFORE[module]
        assert (digest_of(BEFORE | {module: BEFORE[module].replace(old, new)}) == before) == same
        assert digest_of(BEFORE) == before
    finally:
        digests._module.cache_clear()


def test_code_has_the_headers_beside_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, header = tmp_path / "kernel.py", tmp_path / "sum.h"
    monkeypatch.setattr(digests, "path_of", lambda name: module if name == "halfulp.kernel" else None)
    module.write_text("X = 1\n")
    found = []
    try:
        for text in ("x += 1;\n", "x += 1;  // Add.\n", "x += 2;\n"):
            header.write_text(text)
            digests._module.cache_clear()
            digests.headers.cache_clear()
            found.append(code("halfulp.kernel"))
    finally:
        digests._module.cache_clear()
        digests.headers.cache_clear()
    assert found[0] == found[1] != found[2]


def test_code_is_the_same_in_every_process() -> None:
    line = "from halfulp.tools.digests import code; print(code('halfulp.units.mac'))"
    found = {
        subprocess.run(
            [sys.executable, "-c", line],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in (1, 2, 3)
    }
    assert found == {code("halfulp.units.mac") + "\n"}


def test_code_follows_imports_of_a_unit() -> None:
    modules = set()
    waiting = ["halfulp.units.arithmetic"]
    while waiting:
        name = waiting.pop()
        if name not in modules:
            modules.add(name)
            waiting += digests._module(name)[1]
    assert {"halfulp.units.base", "halfulp.hdl.round", "halfulp.hdl.formats.posit", "halfulp.hdl.shape"} <= modules
    assert not {"halfulp.units.division", "halfulp.units.catalogue", "halfulp.sim.build"} & modules


def test_digest_depends_on_values_of_format() -> None:
    one, other = (Codebook("levels", (0.0, 1.0, 2.0, last)) for last in (3.0, 4.0))
    assert str(one) == str(other)
    assert repr(one) == repr(other)
    assert digest({"a": one}) != digest({"a": other})
    assert digest({"a": one}) == digest({"a": Codebook("levels", (0.0, 1.0, 2.0, 3.0))})


def test_cache_kinds_are_in_one_folder(root: Path) -> None:
    cached("one", (), Maker())
    cached_value("two", (), lambda: 1)
    assert {path.name for path in (root / cache.FOLDER).iterdir()} == {"one", "two"}
    assert [path.name for path in root.iterdir()] == [cache.FOLDER]


def test_commit_marks_changed_code_and_is_empty_without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"rev-parse": "0123456789\n", "status": ""}
    monkeypatch.setattr(digests.subprocess, "check_output", lambda words, **_: answers[words[3]])
    assert commit() == "0123456789"
    answers["status"] = " M sim/signoff.py\n"
    assert commit() == "0123456789+"
    monkeypatch.undo()
    monkeypatch.setenv("PATH", "")
    assert commit() == ""
