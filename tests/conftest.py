"""Settings of every test run: threads, signals, slow tests and order."""

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from halfulp.cli import main
from halfulp.hdl.formats import Format
from halfulp.sim.signoff import MIXED
from halfulp.tools.paths import build_root
from tests.settings import EXHAUSTIVE

# A worker has one processor. torch would start a thread per processor, and these would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Lines about the progress of slow commands depend on the load of the machine.
os.environ["HALFULP_QUIET"] = "0"

# A runner that starts the tests in the background ignores Ctrl-C, and child processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the skipped cases of sampled tests as slow, and run regressions before all other tests."""
    seen: Counter[str] = Counter()
    left_out = []
    for item in items:
        function = item.nodeid.partition("[")[0]
        if sampled := item.get_closest_marker("sampled"):
            fast, slow = (*sampled.args, 1)[:2]
            if seen[function] % fast:
                item.add_marker(pytest.mark.slow)
                if seen[function] % slow and not EXHAUSTIVE:
                    left_out.append(item)
        seen[function] += 1
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        others = set(items).difference(left_out)
        items[:] = [item for item in items if item in others]
    items.sort(key=lambda item: item.path.name != "test_regressions.py")


@pytest.fixture
def own_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty build folder with links to the compiled parts of the shared one."""
    folder = tmp_path / "build"
    (folder / "cache").mkdir(parents=True)
    for kind in ("headers", "runtime", "verilog", "netlist", "bench", "models"):
        shared = build_root() / "cache" / kind
        shared.mkdir(parents=True, exist_ok=True)
        (folder / "cache" / kind).symlink_to(shared)
    monkeypatch.setenv("HALFULP_BUILD", str(folder))
    return folder


@pytest.fixture
def oracle(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Record vectors on which an independent library agrees with the golden model of a unit, for `halfulp signoff`."""

    def record(library: str, unit: str, vectors: int, *formats: Format) -> None:
        families = {fmt.family for fmt in formats}
        family = families.pop() if len(families) == 1 else MIXED
        record_property("oracle", f"{library},{unit},{family},{vectors}")

    return record


@pytest.fixture
def halfulp(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs the program in this process: exit code, standard output and standard error."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["halfulp", *map(str, words)])
        before = signal.getsignal(signal.SIGTERM)
        with pytest.raises(SystemExit) as end:
            main()
        signal.signal(signal.SIGTERM, before)
        return end.value.code, *capsys.readouterr()

    return run
