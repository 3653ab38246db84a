"""Trainings on matrix units: policies, costs from records, and files of losses."""

import pandas as pd
import pytest
import torch

from halfulp.golden.nn import Policy
from halfulp.lab.papers import matrix_trainings
from halfulp.lab.papers.matrix_trainings import NETWORKS, POLICIES
from halfulp.lab.papers.trainings import QUICK, train
from halfulp.lab.train import quick

ROWS = [
    {"network": network, "unit": name, "loss": 1 + place / 100 + len(network)}
    for network in NETWORKS
    for place, name in enumerate(POLICIES)
]


def test_policies_are_those_of_their_names():
    for name, text in POLICIES.items():
        policy = Policy.parse(text)
        gradients = (
            {str(getattr(policy, f"{kind}_gradient").a) for kind in ("input", "weight")} if "FP8" in name else set()
        )
        assert gradients <= {"e5m2", "e5m2fnuz"}
    assert {name: matrix_trainings.bits_of(name) for name in POLICIES if matrix_trainings.bits_of(name)} == {
        "h100.wgmma, FP8": 13,
        "b200.tcgen05, FP8": 25,
        "aligned5, FP8": 5,
        "aligned3, FP8": 3,
    }


def test_table_has_costs_of_records_and_empty_cells(tmp_path):
    unit = str(matrix_trainings.step("h100.wgmma, FP8"))
    assert "every" not in unit
    for name, target, column, cost in (("a", "vu9p", "LUT", 4000), ("b", "ecp5-85k", "MHz", 12.5)):
        row = {"unit": unit, "target": target, "LUT": 9000, "path": 40} | {column: cost}
        pd.DataFrame([row]).to_csv(tmp_path / f"{name}.csv", index=False)
    frame = matrix_trainings.table(ROWS, tmp_path).frame.set_index("unit")
    for name in ("h100.wgmma, FP8", "h100.wgmma, FP8, every=128"):
        assert frame.loc[name, ["products", "LUT", "MHz"]].tolist() == [32, 4000, 12.5]
    others = frame.drop(["h100.wgmma, FP8", "h100.wgmma, FP8, every=128"])
    assert others["LUT"].isna().all()
    assert others["MHz"].isna().all()
    assert frame.loc["exact, FP8", "gpt, loss"] == ROWS[list(POLICIES).index("exact, FP8")]["loss"]


def test_losses_of_files_are_read_or_refused(tmp_path):
    path = tmp_path / "losses.csv"
    pd.DataFrame(ROWS).to_csv(path, index=False)
    assert matrix_trainings.read(path) == ROWS
    pd.DataFrame([{"network": "gpt", "unit": "v101", "loss": 1}]).to_csv(path, index=False)
    with pytest.raises(ValueError, match=r"losses.csv has 'v101' on 'gpt', which this report does not train"):
        matrix_trainings.read(path)


def test_gpt_predicts_target_words_only():
    model, (words, targets), (tests, _), loss, _ = quick.gpt()
    assert words.shape[1] == 8
    assert words[:, :4].max() < 28 <= words[:, 4:].min()
    assert torch.equal(words[:, 5:], targets[:, :3])
    scores = model(tests[:3])
    assert scores.shape == (3, 4, 69)
    # A later word changes no score before it.
    changed = tests[:3].clone()
    changed[:, -1] = 30
    assert torch.equal(model(changed)[:, :3], scores[:, :3])
    assert loss(scores, targets[:3]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_units_change_trainings(network):
    values = {name: train(matrix_trainings.case(network, name), QUICK, "loss") for name in ("fp32", "aligned3, FP8")}
    assert values["fp32"] != values["aligned3, FP8"]
