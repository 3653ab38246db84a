"""Regressions: they run before all other vectors, and one command saves a new one."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from amaranth.hdl import Module, Value
from amaranth.sim import Simulator

from halfulp.cli import main
from halfulp.sim import regressions
from halfulp.sim.bench import run
from halfulp.sim.model import CompiledModel
from halfulp.sim.ports import Ports
from halfulp.sim.reference import reference
from halfulp.sim.regressions import Regression, parse_steps, place, read, save, with_results
from halfulp.sim.report import Check, exact_codes, summary
from halfulp.tools.errors import CheckError
from tests.settings import ROOT
from tests.short_form import build

FILES = sorted((ROOT / "tests" / "regressions").glob("*.txt"))


def simulated(unit: Any, row: Regression) -> tuple[dict[str, int], ...]:
    """Simulate a unit in Amaranth's simulator, which needs no build."""
    found: list[dict[str, int]] = []

    async def drive(context: Any) -> None:
        for step in row.steps:
            for name, code in step.items():
                context.set(Value.cast(getattr(unit, name)), code)
            if unit.latency:
                await context.tick()
            else:
                await context.delay(1e-9)
            found.append({name: context.get(Value.cast(getattr(unit, name)).as_unsigned()) for name in unit.outputs})

    m = Module()
    m.submodules += unit
    simulator = Simulator(m)
    if unit.clocked:
        simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    simulator.run()
    return tuple(found)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_regressions_match_in_every_model(path: Path) -> None:
    unit, rows = read(path)
    assert rows
    assert path.stem == unit.name
    assert unit.latency <= 1
    for row in rows:
        golden = reference(unit, row.columns(), chained=row.chained)
        assert [{name: int(codes[n]) for name, codes in golden.items()} for n in range(len(row.steps))] == list(
            row.results
        )
        if not row.chained:
            assert exact_codes(unit, row.steps[0], row.results[0]) == row.results[0]
        assert simulated(unit, row) == row.results, row.text(unit)


def test_regressions_exist_and_run_first(request: pytest.FixtureRequest) -> None:
    assert len(FILES) >= 4
    assert request.session.items[0].path == Path(__file__)
    assert all(path.read_text().startswith("# Written by `halfulp save`") for path in FILES)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of regressions for this test only."""
    monkeypatch.setenv("HALFULP_REGRESSIONS", str(tmp_path / "regressions"))
    return tmp_path / "regressions"


def saved(unit: Any, vector: str, why: str = "for a test") -> tuple[Path, bool]:
    return save(unit, with_results(unit, parse_steps(vector, Ports.inputs_of(unit)), why))


class Said:
    """Compiled model with given results."""

    def __init__(self, *results: int) -> None:
        self.results = np.array(results, dtype=np.uint64)

    def reset(self) -> None:
        """Do nothing, because the model has no state."""

    def run(self, vectors: Any, count: int) -> dict[str, Any]:
        assert all(len(column) == count for column in vectors.values())
        return {"o": self.results[:count]}


def replayed(unit: Any, rows: list[Regression], *results: int) -> Check:
    return regressions.replay(unit, cast(CompiledModel, Said(*results)), rows)


@pytest.mark.slow
def test_regression_runs_first_in_bench(own: Path) -> None:
    """It has its own line before that of an exhaustive run."""
    unit = build("mul", "e2m1fn")
    path, _ = saved(unit, "0x7,0x0", "6 times 0")
    assert path == place(unit) == own / "mul_e2m1fn_e2m1fn_e2m1fn_rn.txt"
    result = run(unit)
    assert result.passed
    assert [(check.tool, check.name, check.checked) for check in result.checks if check.name == "regressions"] == [
        ("compiled loop", "regressions", 1)
    ]
    assert "1  regressions, before all others" in summary(result)


def test_regression_failure_shows_reason(own: Path) -> None:
    unit = build("mul", "e3m2")
    saved(unit, "0x1f,0x00", "0 times NaN")
    rows = regressions.of(unit)
    assert replayed(unit, rows, 0x1E).failed == 0
    check = replayed(unit, rows, 0x1F)
    assert (check.checked, check.failed, check.failures[0].kind) == (1, 1, "mismatch")
    assert check.failures[0].text.startswith("0 times NaN\n")
    assert "save:  halfulp save 'mul e3m2*e3m2.rn' --vector 0x1f,0x00" in check.failures[0].text


def test_wrong_regression_file_is_detected(own: Path) -> None:
    unit = build("mul", "e3m2")
    path, _ = saved(unit, "0x0c,0x0c")
    path.write_text(path.read_text().replace("-> 0x0c", "-> 0x0d"))
    check = replayed(unit, regressions.of(unit), 0x0C)
    assert {failure.kind for failure in check.failures} == {"golden", "mismatch"}


def test_regressions_are_keyed_by_result_not_structure(own: Path) -> None:
    path, new = saved(build("mac", "e5m2", rounding="sr10", stochastic="eager", pipeline=2), "0x3c,0x3c,0x001,0x155")
    assert new
    assert path.stem == "mac_e5m2_e5m2_e6m5_sr10"
    assert len(regressions.of(build("mac", "e5m2", rounding="sr10"))) == 1
    assert not regressions.of(build("mac", "e5m2", rounding="sr10", random="lfsr16"))
    assert not regressions.of(build("mac", "e5m2"))
    assert saved(build("mac", "e5m2", rounding="sr10"), "0x3c,0x3c,0x001,0x155") == (path, False)
    assert saved(build("mac", "e5m2", rounding="sr10"), "0x3c,0x3c,0x001,0,0,0x155;0,0,0,0,1,0") == (path, True)
    unit, rows = read(path)
    assert [row.chained for row in rows] == [False, True]
    assert rows[1].results[1] == {"o": 0}
    first = rows[1].results[0]["o"]
    assert replayed(unit, rows[1:], first, 0).failed == 0
    assert "the steps from reset gave" in replayed(unit, rows[1:], first, 1).failures[0].text


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("0x0c,0x0c -> 0x0c", "line 2: .*# reason"),
        ("0x0c,0x0c  # why", "line 2: .*# reason"),
        ("0x0c -> 0x0c  # why", "line 2: .* 2 codes"),
        ("0x0c,0x4c -> 0x0c  # why", "line 2: .*0x4c"),
        ("0x0c,0x0c -> 0x0c,1  # why", "line 2: .* 1 codes"),
        ("0x0c,0x0c; 1,1 -> 0x0c; 1  # why", "line 2: .*state"),
        ("unit mul e1m2*e1m2.rn", "line 2: .*e1m2"),
    ],
)
def test_regression_file_rejects_bad_lines(tmp_path: Path, line: str, sentence: str) -> None:
    path = tmp_path / "some.txt"
    path.write_text(f"# a file\n{line}\n" if line.startswith("unit") else f"unit mul e3m2*e3m2.rn\n{line}\n")
    with pytest.raises(ValueError, match=rf"^some\.txt, {sentence}"):
        read(path)


def test_regression_file_rejects_missing_unit(tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    path.write_text("0x0c,0x0c -> 0x0c  # why\n")
    with pytest.raises(ValueError, match=r"^some\.txt, line 1: .*unit"):
        read(path)
    path.write_text("# nothing\n")
    with pytest.raises(ValueError, match="names no unit"):
        read(path)


def halfulp(words: str) -> "subprocess.CompletedProcess[str]":
    # The search path of this process, which may be that of a checkout.
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    argv = [sys.executable, "-m", "halfulp", *shlex.split(words)]
    return subprocess.run(argv, capture_output=True, text=True, env=env)


@pytest.mark.slow
def test_save_command_writes_regression(own: Path) -> None:
    answer = halfulp("save mul e3m2 --pipeline 1 --vector 0x1f,0x00 --why '0 times NaN'")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == "0x1f,0x00 -> 0x1e  # 0 times NaN\n"
    (path,) = own.iterdir()
    assert path.read_text().splitlines()[1:] == ["unit mul e3m2*e3m2.rn", "# a,b -> o", answer.stdout.strip()]
    refused = halfulp("save mul e3m2 --vector 0x1f")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("halfulp: ")
    assert "2 codes" in refused.stderr


def test_regression_needs_one_line_reason_and_agreeing_models(
    own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unit = build("mul", "e3m2")
    with pytest.raises(ValueError, match="one line"):
        saved(unit, "0x0c,0x0c", "two\nlines")
    from halfulp import golden

    right = golden.mul
    monkeypatch.setattr(golden, "mul", lambda *operands, **parameters: right(*operands, **parameters) ^ 1)
    with pytest.raises(CheckError, match="wrong golden model"):
        saved(unit, "0x0c,0x0c")
    # The result of the unit is wrong, not the request.
    monkeypatch.setattr(
        "sys.argv", ["halfulp", "save", "mul", "e3m2", "--vector", "0x0c,0x0c", "--why", "models differ"]
    )
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    assert "halfulp: wrong golden model" in capsys.readouterr().err
    assert not own.exists()
