"""Mutants: a complete bench kills them, a blind one reports survivors, and equivalent ones are proved equivalent."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from halfulp.sim import regressions
from halfulp.sim.bench import plan
from halfulp.sim.model import CompiledModel
from halfulp.sim.mutation import mutants as mutation
from halfulp.sim.mutation.cli import mutate as command
from halfulp.sim.mutation.model import make, unit_ports
from halfulp.sim.mutation.mutants import EQUIVALENT, KILLED, SURVIVED, mutate, table
from halfulp.sim.mutation.recording import Recording, record
from halfulp.sim.ports import Codes
from halfulp.sim.reference import reference
from halfulp.tools.errors import ToolError
from tests.short_form import build


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of regressions for this test only."""
    monkeypatch.setenv("HALFULP_REGRESSIONS", str(tmp_path / "regressions"))
    return tmp_path / "regressions"


MUTANTS = 12

MUL: dict[str, Any] = {"unit": "mul", "fmt": "e2m1"}
MAC: dict[str, Any] = {"unit": "mac", "fmt": "e2m1", "acc": "e3m1"}


@pytest.mark.slow
def test_bench_kills_every_mutant_that_is_not_equivalent(own: Path) -> None:
    unit = build(**MUL)
    campaign = mutate(unit, count=MUTANTS)
    assert len(campaign.mutants) == MUTANTS
    assert {mutant.status for mutant in campaign.mutants} == {KILLED, EQUIVALENT}
    assert campaign.rate == 1.0
    # An equivalent mutant has equal results for every input.
    made = make(unit, unit_ports(unit), mutants=MUTANTS, seed=0)
    vectors = plan(unit, seed=0).vectors
    assert vectors.exhaustive
    recording = record(unit, [(vectors.codes, False)], 0)
    with CompiledModel(made.design) as model:
        for mutant in campaign.mutants:
            assert (recording.first_difference(model, mutant.number) is None) == (mutant.status == EQUIVALENT)
    row = table(campaign).frame.iloc[0]
    assert (row["mutants"], row["killed"], row["kill rate"]) == (MUTANTS, campaign.count(KILLED), 100)
    placed = [mutant.change.place for mutant in campaign.mutants if mutant.change.src]
    assert placed
    assert all("/" in place and ".py:" in place for place in placed)


@pytest.mark.slow
def test_small_netlist_has_as_many_mutants_as_asked(own: Path) -> None:
    # Yosys does not end if it has to choose most of the mutants of so few cells.
    campaign = mutate(build("pwl", "nf4", fn="tanh", pieces=8), count=60)
    assert len(campaign.mutants) == 60
    assert {mutant.status for mutant in campaign.mutants} == {KILLED, EQUIVALENT}


def blinded(keep: Callable[[dict[str, Codes]], Any]) -> Callable[..., Any]:
    """Return a bench with only some of its vectors."""

    def plan_(unit: Any, *, seed: int, **options: Any) -> Any:
        from dataclasses import replace

        chosen = plan(unit, seed=seed, **options)
        index = np.flatnonzero(keep(chosen.vectors.codes))
        some = replace(chosen.vectors, codes=chosen.vectors.take(index), count=len(index))
        return replace(chosen, vectors=some, chain=None)

    return plan_


def test_surviving_mutants_give_vectors_that_kill_them(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = build(**MUL)
    with monkeypatch.context() as patch:
        patch.setattr(mutation, "plan", blinded(lambda codes: (codes["a"] < 3) & (codes["b"] < 3)))
        blind = mutate(unit, count=MUTANTS)
        living = [mutant for mutant in blind.mutants if mutant.status == SURVIVED]
        assert living
        assert blind.rate < 1
        lines = mutation.survivors(blind)
        assert sum(line.startswith("survived ") for line in lines) == len(living)
        assert mutation.save(blind) == [own / "mul_e2m1_e2m1_e2m1_rn.txt"] * len(set(_vectors(unit, living)))
        assert "detects the mutant" in lines[2]
        # The saved regressions run first, even in an equally incomplete bench.
        assert mutate(unit, count=MUTANTS).rate == 1.0
    _, rows = regressions.read(own / "mul_e2m1_e2m1_e2m1_rn.txt")
    assert {row.text(unit).partition(" ->")[0] for row in rows} == set(_vectors(unit, living))


def _vectors(unit: Any, living: list[mutation.Mutant]) -> list[str]:
    kept = [mutation.witness_of(unit, mutant) for mutant in living]
    return [row.text(unit).partition(" ->")[0] for row in kept if row is not None]


@pytest.mark.slow
def test_accumulator_mutants_are_judged_from_reset(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = build(**MAC)
    with monkeypatch.context() as patch:
        patch.setattr(mutation, "plan", blinded(lambda codes: codes["a"] == 0))
        blind = mutate(unit, count=8)
    kept = [mutation.witness_of(unit, mutant) for mutant in blind.mutants if mutant.status == SURVIVED]
    assert any(row is not None and row.chained for row in kept)
    made = make(unit, unit_ports(unit), mutants=8, seed=0)
    with CompiledModel(made.design) as model:
        for mutant, row in zip([m for m in blind.mutants if m.status == SURVIVED], kept, strict=True):
            if row is not None:
                assert record(unit, [(row.columns(), True)], 0).first_difference(model, mutant.number) is not None


@pytest.mark.slow
def test_stream_mutants_run_as_streams(own: Path) -> None:
    unit = build("mul", "e2m1", pipeline=2)
    campaign = mutate(unit, count=8, stream=True)
    assert campaign.title == "mul_e2m1_e2m1_e2m1_rn_p2_stream"
    assert {mutant.status for mutant in campaign.mutants} == {KILLED, EQUIVALENT}
    assert campaign.count(KILLED) > 3


@pytest.mark.slow
def test_mutants_with_two_true_selects_run_to_the_end(own: Path) -> None:
    campaign = mutate(build("partmac", "e5m2x2", acc="e5m8"), count=24)
    assert {mutant.status for mutant in campaign.mutants} <= {KILLED, EQUIVALENT}


def shown_after_one_stage(recording: Recording, sums: list[int]) -> dict[int, int]:
    """Return the sums at the output of an accumulator after one register stage, by clock cycle after the reset."""
    edges = [n for n in range(10, len(recording.look)) if recording.inputs["en"][n]]
    started, shown = 0, {}
    for cycle, following in itertools.pairwise(edges):
        started += int(recording.inputs["valid"][cycle])
        if started:
            shown[following] = sums[started - 1]
    return shown


def test_recording_matches_golden_model() -> None:
    """Derive the recording of a unit with stalls from its inputs and compare."""
    unit = build("mac", "e2m1", pipeline=1)
    chosen = plan(unit, seed=3, limit=256)
    assert chosen.chain is not None
    recording = record(unit, [(chosen.chain, True)], 3)
    taken = [
        {name: int(recording.inputs[name][n]) for name in unit.inputs}
        for n in range(len(recording.look))
        if recording.inputs["en"][n] and recording.inputs["valid"][n] and n >= 10
    ]
    columns = {name: np.array([row[name] for row in taken], dtype=np.uint64) for name in unit.inputs}
    assert all((columns[name] == chosen.chain[name]).all() for name in unit.inputs)
    want = reference(unit, columns, chained=True)["o"]
    shown = shown_after_one_stage(recording, want.tolist())
    looked = {n: int(recording.outputs["o"][n]) for n in np.flatnonzero(recording.look).tolist()}
    assert len(looked) > 300
    assert {cycle: looked[cycle] for cycle in shown} == shown
    # In stalls, the output stays constant.
    for cycle in sorted(set(looked) - set(shown)):
        assert not recording.inputs["en"][cycle]
        assert looked[cycle] == looked[cycle - 1]


def test_recording_passes_for_unit_with_own_source() -> None:
    unit = build("sru", "int8", to="fxp4.0", random="plateau3", rounding="sr3")
    made = make(unit, unit_ports(unit), mutants=1)
    chosen = plan(unit, seed=0, limit=2000)
    recording = record(unit, [(chosen.vectors.codes, False)], 0)
    assert int(recording.look.sum()) >= chosen.vectors.count
    with CompiledModel(made.design) as model:
        assert recording.first_difference(model, 0) is None


def test_wrong_unit_is_not_mutated(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = build(**MUL)

    def spoilt(*args: Any, **options: Any) -> Recording:
        recording = record(*args, **options)
        recording.outputs["o"][5] ^= np.uint64(1)
        return recording

    monkeypatch.setattr(mutation, "record", spoilt)
    with pytest.raises(ToolError, match="fails the test bench without any change"):
        mutate(unit, count=MUTANTS)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("mul e2m1 --stream", "has no registers"),
        ("mul e1m1", "e1m1 has 1 exponent bit"),
    ],
)
def test_mutate_command_rejects_bad_requests(words: str, sentence: str) -> None:
    answer = CliRunner().invoke(command, words.split())
    assert answer.exit_code == 2
    assert sentence in answer.stderr


def test_mutate_command_prints_rate_and_writes_tables(own: Path, tmp_path: Path) -> None:
    answer = CliRunner().invoke(command, ["mul", "e2m1", "-n", str(MUTANTS), "--save", "-o", str(tmp_path / "out")])
    assert answer.exit_code == 0, answer.output
    assert "|      100.00 |" in answer.stdout
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        f"{stem}.{ending}" for stem in ("mutation", "mutants") for ending in ("md", "csv", "tex")
    }
    assert not own.exists()
