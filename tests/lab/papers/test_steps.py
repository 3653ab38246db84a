"""Training steps on published arrays: the record, the published figures and the fastest arrays."""

import csv
from collections import Counter

import pandas as pd
import pytest

from halfulp.fpga.match.products import Gemm
from halfulp.fpga.match.published import TABLE_IV, clocks
from halfulp.fpga.match.workload import workload
from halfulp.fpga.package.manifest import RECORDS
from halfulp.lab.papers import steps


@pytest.fixture(scope="module")
def record():
    return list(csv.DictReader((RECORDS / "steps.csv").read_text().splitlines()))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in ("vgg16", "resnet50") else name for name in steps.PLACES],
)
def test_record_of_steps_is_current(name, record):
    found = [{key: str(value) for key, value in row.items()} for row in steps.rows([name])]
    assert found == [row for row in record if row["network"].partition(",")[0] == name]
    assert len(found) == len(clocks()) * (1 + (name == "nanogpt"))


def test_table_of_steps_has_published_figures_and_few_differences(record):
    table = steps.table_iv(pd.DataFrame(record))
    frame = table.frame
    assert list(frame["resnet50, published"]) == list(frame["resnet50, ours"]) == [row.resnet50 for row in TABLE_IV]
    expected = {"lenet5": 1, "vgg16": 3, "resnet20": 1, "resnet50": 0, "nanogpt": 10}
    for name, count in expected.items():
        differences = [
            abs(float(a) - float(b)) for a, b in zip(frame[f"{name}, published"], frame[f"{name}, ours"], strict=True)
        ]
        assert sum(one > 0 for one in differences) == count
        if name != "nanogpt":
            # One in the last place.
            assert max(differences) < 1.5 * 10 ** -steps.PLACES[name]
    seconds = {(row["network"], int(row["C"])): float(row["seconds"]) for row in record if row["N"] == row["M"] == "8"}
    for name, bound in (("nanogpt", 0.05), (steps.BY_TEXT, 0.0015)):
        assert all(abs(seconds[name, row.cores] / float(row.nanogpt) - 1) < bound for row in TABLE_IV)
    # Each column with differences has its cause.
    text = table.markdown()
    for name, count in expected.items():
        assert f"{name}: {count} of 10 figures differ{': ' if count else '.'}" in text


def test_table_of_sizes_names_the_fastest_arrays(record):
    text = steps.sizes(pd.DataFrame(record)).markdown()
    assert "lenet5 <8, 8, 5>, " in text
    assert "nanogpt <32, 16, 4>, nanogpt, by text <32, 16, 4>. Published for Nano-GPT: <32, 16, 4>" in text


def test_products_by_text_have_as_many_macs():
    load = workload("nanogpt", batch=2)
    found = Counter(steps.by_text(load))
    assert sum(gemm.macs * count for gemm, count in found.items()) == sum(gemm.macs for gemm in load.gemms)
    # The gradients of the widest layers, for each text; the scores of six heads in six layers.
    assert found[Gemm(1536, 256, 384, "backward", 2)] + found[Gemm(384, 256, 1536, "backward", 2)] == 12
    assert found[Gemm(256, 64, 256, "forward", 2)] == 36


def test_report_of_steps_writes_the_record(record, tmp_path):
    """The files of the tables have other names than the record."""
    steps.report(record).write(tmp_path)
    assert (tmp_path / "steps.csv").read_text() == (RECORDS / "steps.csv").read_text()
    assert "Training steps on every published array" in (tmp_path / "steps-sizes.md").read_text()
