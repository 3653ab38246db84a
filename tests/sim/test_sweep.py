"""Sweeps: every input once, resumable, and able to fail."""

import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module, Mux, Value

from halfulp.hdl.formats import E5M2
from halfulp.hdl.number import pack
from halfulp.sim import sweep as sweeping
from halfulp.sim.report import summary
from halfulp.sim.sweep import Interrupted, State, sweep, vectors_of
from halfulp.tools.progress import Progress
from halfulp.units.arithmetic import Mul
from tests.short_form import build


class Counter(Progress):
    """Progress that counts vectors and raises Ctrl-C after some of them."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.stop_after = stop_after
        self.before = self.count = 0

    def total(self, text: str, count: int | None = None, done: int = 0) -> None:
        self.before = done

    def advance(self, count: int) -> None:
        self.count += count
        if self.stop_after is not None and self.count >= self.stop_after:
            self.stop_after = None
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            time.sleep(0.2)


@pytest.fixture(autouse=True)
def states(own_build: Path) -> Path:
    """Return a folder of states and results for this test only, with the shared compiled models."""
    return own_build / "cache" / "sweeps"


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "CHUNK_BITS", 10)


def test_sweep_takes_every_input_once(small_chunks: None) -> None:
    unit = build("mul", "e3m2fn")
    work = vectors_of(unit, seed=0)
    chunks = [work.codes(chunk) for chunk in range(work.chunks)]
    pairs = np.concatenate([codes["a"] | codes["b"] << np.uint64(6) for codes in chunks])
    assert np.array_equal(np.sort(pairs), np.arange(1 << 12, dtype=np.uint64))
    result = sweep(unit, restart=True)
    assert result.passed
    assert result.checked == 1 << 12
    assert "all 2^12 inputs" in summary(result)


@pytest.mark.slow
def test_sweep_of_stateful_unit_loads() -> None:
    result = sweep(build("mac", "e2m1fn", acc="e3m2"), restart=True)
    assert result.passed
    assert result.checked == 1 << 14


def test_sweep_random_words_depend_on_seed_and_chunk(small_chunks: None) -> None:
    unit = build("mul", "e3m2fn", rounding="sr10")
    first, again, other = vectors_of(unit, seed=1), vectors_of(unit, seed=1), vectors_of(unit, seed=2)
    assert np.array_equal(first.codes(3)["random"], again.codes(3)["random"])
    assert not np.array_equal(first.codes(3)["random"], first.codes(2)["random"])
    assert not np.array_equal(first.codes(3)["random"], other.codes(3)["random"])
    assert "random words sampled" in sweep(unit, restart=True).vectors


def test_sweep_resumes_after_interrupt(small_chunks: None) -> None:
    unit = build("mul", "e5m2")
    stopping = Counter(stop_after=20 << 10)
    with pytest.raises(Interrupted, match=r"is done and saved"):
        sweep(unit, restart=True, progress=stopping)
    assert 20 << 10 <= stopping.count < 1 << 16
    rest = Counter()
    result = sweep(unit, progress=rest)
    assert result.passed
    assert result.checked == 1 << 16
    assert rest.before == stopping.count
    assert rest.before + rest.count == 1 << 16
    assert any(note.startswith("resumed at") for note in result.notes)
    # A finished sweep leaves no state, so that the next one runs in full; --restart discards a state.
    for restart in (False, True):
        full = Counter()
        assert sweep(unit, progress=full, restart=restart).passed
        assert full.count == 1 << 16


def test_sweep_restart_forgets_state(small_chunks: None) -> None:
    unit = build("mul", "e5m2", rounding="rz")
    with pytest.raises(Interrupted):
        sweep(unit, restart=True, progress=Counter(stop_after=8 << 10))
    full = Counter()
    assert sweep(unit, restart=True, progress=full).passed
    assert full.count == 1 << 16


def test_sweep_ignores_truncated_state(states: Path, small_chunks: None) -> None:
    unit = build("mul", "e5m2", rounding="ru")
    with pytest.raises(Interrupted):
        sweep(unit, restart=True, progress=Counter(stop_after=8 << 10))
    (path,) = states.glob(f"{unit.name}-*/value.json")
    path.write_text(path.read_text()[:10])
    full = Counter()
    assert sweep(unit, progress=full).passed
    assert full.count == 1 << 16


class Wrong(Mul):
    """Multiplier that is wrong for a single pair of operands."""


def test_sweep_finds_single_wrong_pair(monkeypatch: pytest.MonkeyPatch, small_chunks: None) -> None:
    def flip(m: Module, x: Any, o: Any, rounding: Any, saturate: bool, random: Any) -> Value:
        code = pack(m, x, o, rounding, saturate, random)
        # 0.0004272461 * 20480 is the only product with this significand and these exponents in this order.
        return code ^ Mux(flip.unit.a.as_value() == 0x0F, flip.unit.b.as_value() == 0x75, 0)  # type: ignore[attr-defined]  # set below

    unit = Wrong(a=E5M2, b=E5M2, o=E5M2)
    flip.unit = unit  # type: ignore[attr-defined]  # read above
    monkeypatch.setattr("halfulp.units.base.pack", flip)
    result = sweep(unit, restart=True)
    assert not result.passed
    assert result.failed == 1
    text = summary(result)
    assert "halfulp sim 'mul e5m2*e5m2.rn' --vector 0x0f,0x75" in text
    assert text.split("\n\n")[0].endswith("FAIL")


def test_sweep_rejects_or_samples_large_space() -> None:
    unit = build("add", "fp32")
    with pytest.raises(ValueError, match=r"2\^65 inputs.*--vectors N"):
        sweep(unit)
    result = sweep(unit, limit=300_000)
    assert result.passed
    assert result.checked == 300_000
    assert "every" not in result.vectors


def test_sweep_ends_on_worker_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Any:
        raise MemoryError("no more")

    monkeypatch.setattr(sweeping, "run_and_compare", broken)
    with pytest.raises(MemoryError, match="no more"):
        sweep(build("mul", "e3m2fn"), restart=True)


def test_sweep_state_joins_finished_chunks() -> None:
    state = State(10)
    for chunk in (3, 1, 2, 9, 0):
        state.finish(chunk)
    assert state.done == [[0, 4], [9, 10]]
    assert state.waiting() == [4, 5, 6, 7, 8]
    assert state.count() == 5


def test_sweep_state_is_plain_json(states: Path, small_chunks: None) -> None:
    unit = build("mul", "e5m2", rounding="rd")
    with pytest.raises(Interrupted):
        sweep(unit, restart=True, progress=Counter(stop_after=8 << 10))
    (path,) = states.glob(f"{unit.name}-*/value.json")
    known = json.loads(path.read_text())
    assert known["chunks"] == 64
    assert known["failed"] == 0
