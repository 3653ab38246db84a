"""Tables of formats, units, reports and codes for notebooks."""

import xml.etree.ElementTree as ET

import pandas as pd
import pytest
import torch

import halfulp
from halfulp import golden
from halfulp.golden import nn
from halfulp.hdl.formats import BLOCKS, NAMED, parse
from halfulp.tools import html
from halfulp.tools.report import Report
from halfulp.tools.tables import Table
from halfulp.units import Mac


def cells(made):
    """Return the rows of well-formed tables, which have equally many columns in each."""
    rows = []
    for table in ET.fromstring(f"<html>{made}</html>").iter("table"):
        lines = list(table.iter("tr"))
        assert len({sum(int(cell.get("colspan")) for cell in line) for line in lines}) == 1
        rows += [[cell.text for cell in line] for line in lines]
    return rows


@pytest.mark.parametrize("text", [*NAMED, *BLOCKS, "e8m23-ftz", "ufxp0.8", "posit16", "takum12", "bf16x3", "e2m0"])
def test_html_of_formats_is_well_formed(text):
    fmt = BLOCKS.get(text) or parse(text)
    rows = cells(fmt._repr_html_())
    assert len(rows) >= 2
    if text not in BLOCKS:
        widths = [int(cell.get("colspan")) for cell in ET.fromstring(f"<a>{fmt._repr_html_()}</a>").iter("th")]
        assert sum(widths) == fmt.width


def test_html_of_a_float_has_bits_and_special_codes():
    rows = cells(parse("e5m2")._repr_html_())
    assert rows[:2] == [["sign", "exponent", "mantissa"], ["7", "6:2", "1:0"]]
    assert ["largest", "57344"] in rows
    assert ["inf", "0x7c"] in rows


def test_html_of_units_has_their_ports():
    unit = Mac(a="e5m2", b="e5m2", acc="e6m5", rounding="sr10")
    rows = cells(unit._repr_html_())
    assert ["a", "in", "e5m2"] in rows
    assert ["random", "in", "10"] in rows
    assert ["o", "out", "e6m5"] in rows
    made = halfulp.unit("mac e5m2*e5m2+e6m5.sr10")
    assert made._repr_html_() == made.spec._repr_html_()
    assert ["random", "random", "10"] in cells(made._repr_html_())


@pytest.mark.slow
def test_html_of_reports_has_their_tables():
    table = Table("Costs <of> units", pd.DataFrame({"unit": ["a & b"], "LUT": [1234]}), {"LUT": ",.0f"}, ["A note."])
    rows = cells(Report({"costs": table, "other": table}, hidden=["other"])._repr_html_())
    assert rows == [["unit", "LUT"], ["a & b", "1,234"]]
    model = torch.nn.Sequential(torch.nn.Linear(4, 2))
    converted = nn.convert(model, "e5m2*e5m2+e6m5.rn")
    assert cells(converted._repr_html_())[1][:2] == ["0", "Linear"]
    with golden.emulate("e5m2*e5m2+e6m5.rn") as run:
        model(torch.ones(1, 4))
    assert len(cells(run.report()._repr_html_())) >= 2


def test_html_of_codes_has_fields_and_numbers():
    table = golden.table_of(torch.tensor([[0x3C, 0xFC]]), "e5m2")
    assert cells(table._repr_html_()) == [
        ["code", "sign", "exponent", "mantissa", "number"],
        ["0x3c", "0", "01111", "00", "1"],
        ["0xfc", "1", "11111", "00", "-inf"],
    ]
    assert str(table).splitlines()[1] == "0x3c  0     01111     00        1"
    assert str(golden.table_of(torch.arange(100), "int8", limit=3)).endswith("3 of 100 codes")
    with pytest.raises(ValueError, match="limit"):
        golden.table_of(torch.arange(3), "int8", limit=0)
    blocks = golden.quantize_blocks(torch.ones(2, 32), "mxfp4")
    assert ["elements", "torch.uint8", "(2, 32)"] in cells(blocks._repr_html_())


def test_html_escapes_texts():
    assert cells(html.table("a < b", [("<b>", 1)])) == [["<b>", "1"]]
