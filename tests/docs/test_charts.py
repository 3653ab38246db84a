"""Charts on the page of costs: they show the records, have no colour of their own, and the page includes them."""

import csv
import re

import pytest

from tests.docs.test_diagrams import texts
from tests.docs.test_figures import figures
from tests.docs.test_pages import page_module
from tests.settings import ROOT

charts = page_module("charts")
RECORDS = figures.Records()
PAGES = charts.pages(RECORDS)


def peers(**columns):
    """Return the records of third-party units with these values."""
    rows = csv.DictReader((ROOT / "fpga/results/peers.csv").read_text().splitlines())
    return [row for row in rows if all(row[name] == value for name, value in columns.items())]


def shown(name):
    """Return the sentence and the words of a chart."""
    sentence, _, picture = PAGES[name]
    return sentence, texts(re.search("<svg.*</svg>", picture)[0])


def test_chart_of_lookup_tables_has_every_unit_of_both_designs():
    sentence, words = shown("chart_luts")
    rows = [row for row in peers(design="FPnew", target="vu9p") if row["unit"].endswith("flags")]
    own = [f"{RECORDS.row(row['unit'])['LUT']:.0f}" for row in rows]
    assert len(rows) == 6
    for number in [*own, *(row["LUT"] for row in rows)]:
        assert number in words
    ratios = [100 * int(lut) / int(row["LUT"]) for lut, row in zip(own, rows, strict=True)]
    assert re.findall(r"(\d+) %", sentence) == [f"{end(ratios):.0f}" for end in (min, max)]
    assert {
        "halfulp",
        "FPnew",
        "LUT",
        "Lookup tables of UltraScale+ (vu9p) with rounding mode as an input and flags",
    } <= set(words)


def test_chart_of_clocks_has_every_stage_of_three_designs():
    sentence, words = shown("chart_clocks")
    own = RECORDS["clocks_stages"]
    clocks = own[own["unit"] == "fma fp16*fp16+fp16.rn"]["MHz"]
    assert len(clocks) == 9
    assert {f"{clock:.0f}" for clock in clocks} <= set(words)
    assert {"halfulp", "FPnew", "FloPoCo", "MHz", "stages"} <= set(words)
    rows = {design: peers(unit="fma fp16", design=design, target="ecp5-85k") for design in ("FPnew", "FloPoCo")}
    assert PAGES["chart_clocks"][2].count("<circle") == len(clocks) + sum(map(len, rows.values())) + 3
    for design, given in rows.items():
        (clock,) = (row["MHz"] for row in given if row["stages"] == "3")
        assert re.search(rf"{design}[^.]*? {float(clock):.0f}\b", sentence)


@pytest.mark.parametrize("name", PAGES)
def test_page_of_costs_includes_chart(name):
    assert f"```{{include}} generated/{name}.txt\n" in (ROOT / "docs/costs.md").read_text()
    sentence = PAGES[name][0]
    assert sentence.endswith(".")


def test_chart_follows_the_record():
    changed = figures.Records()
    changed.rows["mul e5m2*e5m2.port flags", "vu9p"]["LUT"] = 111
    assert charts.pages(changed)["chart_luts"] != PAGES["chart_luts"]
    assert charts.pages(changed)["chart_clocks"] == PAGES["chart_clocks"]
