"""`halfulp report models`: policies, one step of a training, strict tests, the record and its files."""

import pandas as pd
import pytest
from click.testing import CliRunner

from halfulp.cli import cli
from halfulp.golden.kernels import build
from halfulp.golden.nn import Policy
from halfulp.lab.papers import models
from halfulp.lab.papers.models import FLOAT, NETWORKS, POLICIES
from halfulp.lab.train import models as networks
from tests.settings import ROOT

RECORD = ROOT / "fpga" / "results" / "models.csv"

ROWS = [
    {"network": network, "arithmetic": name, "loss": 2 + place / 64, "key": "abc"}
    for network in NETWORKS
    for place, name in enumerate(POLICIES)
]


@pytest.fixture
def one_step(monkeypatch, tmp_path):
    """Return a function that trains a smaller GPT-2 for one step and tests it in FP32 and in another policy."""
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path))
    monkeypatch.setenv(build.SETTING, "torch")
    monkeypatch.setattr(models, "NETWORKS", ("gpt2",))
    for name, size in {"LAYERS": 1, "WIDTH": 8, "INNER": 16, "CONTEXT": 8, "STRIDE": 4}.items():
        monkeypatch.setattr(networks, name, size)

    def losses(policy):
        monkeypatch.setattr(models, "POLICIES", {FLOAT: FLOAT, "bf16": policy})
        return models.losses(quick=True)

    return losses


def test_record_is_of_current_networks_and_policies(monkeypatch):
    rows = models.read(RECORD)
    assert models.stale(rows) == [], "run `halfulp report models -o FOLDER`, and copy models.csv to fpga/results"
    assert len(rows) == len(NETWORKS) * len(POLICIES)
    monkeypatch.setitem(POLICIES, "bf16", POLICIES["bf16"].replace("fp32", "bf16"))
    assert models.stale(rows) == ["bf16 on gpt2", "bf16 on llama"]
    assert models.stale(rows[1:])[0] == "fp32 on gpt2"


def test_policies_are_of_whole_programs():
    for name, text in POLICIES.items():
        policy = Policy.parse(text)
        assert (policy.elementwise is None) == (name == FLOAT), name


@pytest.mark.slow
def test_one_step_gives_losses_that_are_cached(one_step, monkeypatch):
    plain, bf16 = rows = one_step(POLICIES["bf16"])
    assert 0 < abs(bf16["loss"] - plain["loss"]) < 0.1
    monkeypatch.setattr(models, "run", None)
    assert one_step(POLICIES["bf16"]) == rows


def test_operation_in_arithmetic_of_torch_is_refused(one_step):
    with pytest.raises(RuntimeError, match="in torch's own arithmetic: the policy has no key elementwise"):
        one_step("bf16*bf16+fp32.rn")


def test_report_has_table_plot_and_record(tmp_path):
    report = models.report(ROWS)
    frame = report.tables["models-losses"].frame.set_index("products")
    assert frame.loc["bf16", ["llama", "llama, more"]].tolist() == [2 + 1 / 64, 1 / 64]
    assert {"models.svg", "models.csv", "models-losses.csv"} <= {path.name for path in report.write(tmp_path)}


def test_record_is_read_or_refused(tmp_path):
    path = tmp_path / "losses.csv"
    pd.DataFrame(ROWS).to_csv(path, index=False)
    assert models.read(path) == ROWS
    pd.DataFrame([ROWS[0] | {"arithmetic": "fp33"}]).to_csv(path, index=False)
    with pytest.raises(ValueError, match=r"losses.csv has 'fp33' on 'gpt2', which this report does not train"):
        models.read(path)


def test_command_names_missing_package(monkeypatch, tmp_path):
    monkeypatch.setattr("halfulp.lab.papers.cli.find_spec", lambda name: None)
    run = CliRunner().invoke(cli, ["report", "models", "--quick", "-o", str(tmp_path)])
    assert str(run.exception) == "transformers is not installed; run: pip install 'transformers>=5'"
