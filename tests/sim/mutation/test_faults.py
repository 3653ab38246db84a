"""Faults: effects of upsets and stuck nets, compared with the golden model where it can predict them."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from halfulp.hdl.formats import parse
from halfulp.sim.model import CompiledModel
from halfulp.sim.mutation import faults as campaigns
from halfulp.sim.mutation.cli import faults as command
from halfulp.sim.mutation.faults import BIT_FLIP, HIGH, LOW, STEPS, campaign, distances, last_place, operands, table
from halfulp.sim.mutation.model import Change, make, unit_ports
from halfulp.sim.reference import reference
from halfulp.units.catalogue import component
from tests.short_form import build

U64 = np.uint64


@pytest.mark.parametrize(
    "fmt", ["e3m2", "e2m1fn", "e3m2fnuz", "e3m2-finite", "posit6e1", "fxp3.3", "fxp3.3-wrap", "ufxp2.2"]
)
def test_ulps_match_fractions(fmt: str) -> None:
    """The distance is to the next number away from zero, or to the previous one at the end of the range."""
    of = parse(fmt)
    finite = {code: value for code in range(1 << of.width) if isinstance(value := of.decode(code), Fraction)}
    numbers = sorted(set(finite.values()))
    codes = np.array(list(finite), dtype=U64)
    for code, found in zip(finite, last_place(of, codes).tolist(), strict=True):
        at = numbers.index(finite[code])
        away = at + (1 if finite[code] > 0 or (finite[code] == 0 and not of.negative(code)) else -1)
        inward = 2 * at - away
        other = away if 0 <= away < len(numbers) else inward
        assert Fraction(found) == abs(numbers[other] - finite[code]), (fmt, hex(code))


def test_error_distances_of_numbers_and_specials() -> None:
    of = parse("e3m2")
    one, inf, nan = of.encode(1), of.infinity(False), of.nan_code
    right = np.array([one, one, one, inf, inf, nan, 0, of.encode(2)], dtype=U64)
    wrong = np.array([one, of.encode(1.5), inf, inf, nan, one, of.encode(-0.0), one], dtype=U64)
    lost, ulps = distances(of, right, wrong)
    assert lost.tolist() == [False, False, True, False, True, True, False, False]
    assert ulps[~lost].tolist() == [0, 2, 0, 0, 2]


@pytest.mark.slow
def test_accumulator_upset_matches_golden_sum_from_flipped_value() -> None:
    """Every effect equals a golden sum with the accumulator bit inverted after the cycle of the upset."""
    unit = build("mac", "e2m1", acc="e3m2")
    made = make(unit, unit_ports(unit), mutants=None)
    accumulator = {
        int(change.wire.partition("[")[2].rstrip("]")): number
        for number, change in enumerate(made.changes, 1)
        if change.mode == "inv"
    }
    assert sorted(accumulator) == list(range(6))
    assert all(made.changes[n - 1].wire.startswith("accumulator[") for n in accumulator.values())
    rng = np.random.default_rng(1)
    count = 12
    length = 1 + STEPS + 1
    feeds = operands(unit, count, rng)
    with CompiledModel(made.design) as model:
        for bit, number in accumulator.items():
            moments = campaigns._moments(unit, count, number, np.random.default_rng(2))
            got = model.record(feeds, moments)["o"].reshape(count, length)[:, STEPS]
            for row in range(count):
                at = int(np.flatnonzero(moments.reshape(count, length)[row])[0])
                rows = slice(row * length, (row + 1) * length)
                # The step in the cycle of the upset already reads the inverted bit, so the reference sum restarts.
                codes = {name: feeds[name][rows][1 : 1 + STEPS].copy() for name in unit.inputs}
                before = reference(unit, codes, chained=True)["o"]
                codes["load"][at - 1], codes["c"][at - 1] = 1, before[at - 2] ^ U64(1 << bit)
                assert got[row] == reference(unit, codes, chained=True)["o"][-1]


@pytest.mark.slow
def test_campaign_counts_requested_faults() -> None:
    unit = build("mac", "e2m1", acc="e3m2")
    found = campaign(unit, flips=100, stuck=16)
    upsets = [effect for effect in found.effects if effect.kind == BIT_FLIP]
    assert sum(effect.trials for effect in upsets) == 100
    assert {effect.trials for effect in upsets} <= {16, 17}
    stuck = [effect for effect in found.effects if effect.kind != BIT_FLIP]
    assert {effect.kind for effect in stuck} == {LOW, HIGH}
    assert all(effect.trials == 16 for effect in stuck)
    # A result with a stuck last bit is wrong if its last bit has the other value.
    sign = {e.kind: e for e in stuck if e.change.wire == "accumulator[5]"}
    assert sign[LOW].wrong > 0
    assert sign[HIGH].wrong > 0
    assert all(
        effect.wrong <= effect.trials and len(effect.errors) <= effect.wrong - effect.special for effect in stuck
    )
    assert campaign(unit, flips=100, stuck=16, seed=0).effects[0].wrong == found.effects[0].wrong
    rows = table(found).frame
    assert (rows["wrong"].diff().dropna() <= 0).all()
    assert set(rows[rows["net"] == "accumulator"]["fault"]) == {BIT_FLIP, LOW, HIGH}
    assert len(table(found, bits=True).frame) > len(rows)


def test_wrong_flags_count_as_wrong_results() -> None:
    """A step with only a wrong flag, one with the other zero, and one with a wrong number."""
    unit = component("mul e3m2*e3m2.rn flags")
    right = {"o": np.zeros(1 + STEPS, dtype=U64), "flags": np.zeros(1 + STEPS, dtype=U64)}
    wrong = {name: codes.copy() for name, codes in right.items()}
    wrong["flags"][2], wrong["o"][3], wrong["o"][4] = 1, 0x20, 1
    changed, lost, ulps = campaigns._worst(unit, right, wrong, 1, once=False)
    assert np.flatnonzero(changed).tolist() == [1, 2, 3]
    assert not lost.any()
    assert np.flatnonzero(ulps).tolist() == [3]
    effect = campaigns.Effect(Change("inv", "", "", "", "flags[0]"), STEPS, 3, 0, ulps[ulps > 0])
    (row,) = table(campaigns.Faults(unit, [effect])).frame.to_dict("records")
    assert (row["wrong"], row["special"], row["same value"]) == (300 / STEPS, 0, 200 / STEPS)


@pytest.mark.slow
def test_stuck_flag_is_a_wrong_result() -> None:
    made = campaign(component("mul e2m1*e2m1.rn flags"), flips=None, stuck=64)
    assert any(
        effect.wrong and not len(effect.errors) and not effect.special
        for effect in made.effects
        if effect.change.net.startswith("flags")
    )


@pytest.mark.slow
def test_pipelined_unit_recovers_from_upset() -> None:
    """Only operands in flight have wrong results, and none after the next reset."""
    unit = build("mul", "e2m0fn", pipeline=2)
    made = make(unit, unit_ports(unit), mutants=None)
    number = next(n for n, change in enumerate(made.changes, 1) if change.mode == "inv")
    feeds = operands(unit, 8, np.random.default_rng(0))
    length = 1 + STEPS + 2
    at = np.zeros(8 * length, dtype=U64)
    at[5] = number
    with CompiledModel(made.design) as model:
        right, wrong = (model.record(feeds, moments)["o"] for moments in (np.zeros_like(at), at))
    assert set(np.flatnonzero(right != wrong).tolist()) <= {5, 6}
    found = campaign(unit, flips=200, stuck=None)
    assert {effect.kind for effect in found.effects} == {BIT_FLIP}
    assert any(effect.wrong for effect in found.effects)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("mul e2m1 --bit-flips 10", "no registers"),
        ("mac e2m1 --bit-flips 0.5", "number of trials 0.5"),
        ("mac e2m1 --stuck-at many", "number of trials many"),
        ("mac e1m1", "e1m1 has 1 exponent bit"),
    ],
)
def test_faults_command_rejects_bad_requests(words: str, sentence: str) -> None:
    answer = CliRunner().invoke(command, words.split())
    assert answer.exit_code == 2
    assert sentence in answer.output


@pytest.mark.slow
def test_faults_command_writes_tables_and_plot(tmp_path: Path) -> None:
    answer = CliRunner().invoke(
        command, ["mac", "e2m1", "--acc", "e3m2", "--bit-flips", "1e2", "--stuck-at", "16", "-o", str(tmp_path)]
    )
    assert answer.exit_code == 0, answer.output
    assert answer.stdout.startswith("## Faults in mac_e2m1_e2m1_e3m2_rn\n")
    assert "| accumulator " in answer.stdout
    stem = "faults-mac_e2m1_e2m1_e3m2_rn"
    tables = {f"{name}.{ending}" for name in (stem, f"{stem}-bits") for ending in ("md", "csv", "tex")}
    assert {path.name for path in tmp_path.iterdir()} == tables | {f"{stem}.svg", f"{stem}.pdf"}


def test_net_without_a_name_has_the_kind_and_line_of_its_cell():
    place = ["/x/hdl/wire.py:3", "/x/hdl/multiply.py:88"]
    change = Change("const0", "$112", "Y", "3", kind="$and", src=place)
    assert change.net == "and at hdl/multiply.py:88[3]"
    assert replace(change, wire="o[1]").net == "o[1]"
    assert replace(change, src=[]).net == "and[3]"
    assert replace(change, kind="").net == "$112.Y[3]"
