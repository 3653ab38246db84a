"""Delay model of ECP5 and its records of place and route."""

import re
from dataclasses import replace

import pandas as pd
import pytest

from halfulp.fpga.package.manifest import RECORDS
from halfulp.hdl.delay import ECP5
from halfulp.lab.bench.delays import OPERATORS, STAGES, UNITS, error, fit, modelled

FRAME = pd.read_csv(RECORDS / "delays.csv")
STATED = re.findall(r"([0-9.]+)%", ECP5.source)


def test_delay_records_cover_operators_and_units() -> None:
    wanted = [(kind, width) for kind, (_, widths) in OPERATORS.items() for width in widths]
    wanted += [(text, stages) for text in UNITS for stages in STAGES]
    assert list(zip(FRAME["operator"], FRAME["size"], strict=True)) == wanted


def test_delay_model_has_its_stated_error_of_operators() -> None:
    assert f"{error(FRAME[FRAME['operator'].isin(OPERATORS)], ECP5):.1%}" == f"{STATED[2]}%"


@pytest.mark.slow
def test_delay_model_has_its_stated_error_of_units() -> None:
    assert f"{error(FRAME[~FRAME['operator'].isin(OPERATORS)], ECP5):.1%}" == f"{STATED[0]}%"


@pytest.mark.slow
def test_fit_finds_constants_of_delays() -> None:
    frame = FRAME[FRAME["operator"].isin(["add", "select", "shift left"])]
    other = replace(ECP5, level=ECP5.level + 80, chain=ECP5.chain - 40)
    assert fit(frame.assign(ps=modelled(frame, other)), ECP5) == other
