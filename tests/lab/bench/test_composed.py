"""The record of errors of composed units is that of the units."""

import csv

import pytest
import torch

from halfulp.hdl.formats import parse
from halfulp.hdl.specs import COMPOSED, UnitSpec
from halfulp.lab.bench import composed
from tests.settings import ROOT

ROWS = list(csv.DictReader((ROOT / "fpga/results/composed.csv").read_text().splitlines()))


def test_record_has_all_units():
    assert [(row["unit"], int(row["length"])) for row in ROWS] == [
        (text, length) for text in composed.UNITS for length in composed.LENGTHS
    ]
    assert {UnitSpec.parse(text).form.unit for text in composed.UNITS} == set(COMPOSED)


@pytest.mark.sampled(3, 9)
@pytest.mark.parametrize(
    "row",
    [
        pytest.param(
            row, marks=[] if row["length"] == "64" and "bf16 reductions=fp32" in row["unit"] else pytest.mark.slow
        )
        for row in ROWS
    ],
    ids=lambda row: f"{row['unit']}, {row['length']}",
)
def test_errors_are_those_of_the_record(row):
    measured = composed.measure(row["unit"], int(row["length"]))
    assert {name: str(value) for name, value in measured.items()} == row


def test_last_place_of_numbers():
    fmt = parse("e4m3")
    ulps = composed._ulp(torch.tensor([1.0, 1.9, 2.0, 2.0**-6, 2.0**-7, 0.0], dtype=torch.float64), fmt)
    assert ulps.tolist() == [2.0**-3, 2.0**-3, 2.0**-2, 2.0**-9, 2.0**-9, 2.0**-9]
