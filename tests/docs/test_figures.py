"""Figures on the pages: they are those of the records, and a stale one fails."""

import importlib.util
import re
import shutil

import pandas as pd
import pytest

from tests.settings import ROOT


def _module():
    spec = importlib.util.spec_from_file_location("figures", ROOT / "docs/figures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


figures = _module()
RECORDS = figures.Records()
LUT = 'It takes <!--= cost("mul e5m2")[0] -->46 LUT.'
TABLE = "| unit | LUT |\n|---|---|\n| `mul e5m2` | 46 (11) |"
WORDS = TABLE.replace("46", "now 46")


def problems(page, records=RECORDS):
    """Return the renewed page, and the lines of the report."""
    found = []
    now = figures.renewed(page, records, lambda line, text: found.append((line, text)))
    return now, found


def test_figures_on_pages_are_those_of_the_records():
    assert figures.problems() == [], "run `make figures`, and look at what changes"


def test_every_page_with_figures_names_its_records():
    text = "".join((ROOT / page).read_text() for page in figures.PAGES)
    assert len(re.findall("<!--=", text)) > 50


@pytest.mark.parametrize(
    "page",
    [
        LUT,
        '<!--= cost(c[0]), peer(c[0], "FPnew") -->\n| a | b | c |\n|---|---|---|\n| `mul e5m2` | 46 (11) | 125 (20) |',
        "<!--= cost(c[0]) -->\n```\n| unit     |   LUT |   path |\n| mul e5m2 |    46 |     11 |\n```",
        "It has `46 LUT`, and takes <!--: a setting -->300 MHz.",
        "2^28 inputs, 5 formats and 8 bits need no record.",
    ],
)
def test_right_figure_passes(page):
    assert problems(page) == (page, [])


@pytest.mark.parametrize(
    ("page", "renewed", "keyword"),
    [
        (LUT.replace("46", "47"), LUT, "46 in the record"),
        ("<!--= cost(c[0]), -->\n" + WORDS.replace("46", "47"), "<!--= cost(c[0]), -->\n" + WORDS, "46 in"),
        ("<!--= cost(c[0]), -->\n" + TABLE.replace("11", "12"), "<!--= cost(c[0]), -->\n" + TABLE, "11 in"),
        ("It takes 46 LUT.", None, "names no record"),
        ('It takes <!--= cost("mul e5m2")[0] -->46 LUT and 11 cells.', None, "11 cells names no record"),
        (TABLE, None, "no source"),
        ("<!--= cost(c[0])[0], -->\n" + TABLE, None, "has 1 figures"),
        ('It takes <!--= cost("mul e5m9")[0] -->46 LUT.', None, "no record has mul e5m9"),
        ('It takes <!--= cots("mul e5m2") -->46 LUT.', None, "cannot be evaluated"),
        ('It takes\n<!--= cost("mul e5m2")[0] -->46 LUT.', None, "start of a line"),
    ],
)  # fmt: skip
def test_wrong_figure_fails_and_is_renewed(page, renewed, keyword):
    now, found = problems(page)
    assert keyword in found[0][1]
    assert now == (renewed or page)


def test_changed_record_fails(tmp_path):
    folder = tmp_path / "results"
    shutil.copytree(figures.RESULTS, folder)
    text = (folder / "others.csv").read_text()
    assert text.count(",1625,") == 1
    (folder / "others.csv").write_text(text.replace(",1625,", ",1626,"))
    (line,) = figures.problems(records=figures.Records(folder))
    assert "docs/costs.md" in line
    assert "1,625 on the page, 1,626 in the record" in line


@pytest.mark.slow
def test_changed_page_fails_and_is_renewed(tmp_path):
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("generated"))
    page = (ROOT / "README.md").read_text()
    (tmp_path / "README.md").write_text(page.replace("| 46 (11) |", "| 45 (11) |"))
    (line,) = figures.problems(root=tmp_path)
    assert "45 on the page, 46 in the record" in line
    assert figures.problems(True, tmp_path) == [line]
    assert (tmp_path / "README.md").read_text() == page
    assert figures.problems(root=tmp_path) == []


def test_records_of_one_unit_that_differ_are_refused(tmp_path):
    for name, lut in (("one", 46), ("two", 47)):
        frame = pd.DataFrame([{"unit": "mul e5m2*e5m2.rn", "target": "vu9p", "LUT": lut, "path": 11}])
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    with pytest.raises(ValueError, match="another LUT"):
        figures.Records(tmp_path)


def test_peers_have_origin_and_command():
    peers = pd.read_csv(figures.RESULTS / "peers.csv")
    for column in ("version", "commit", "configuration", "command"):
        assert peers[column].str.len().gt(3).all()
    assert peers["command"].str.startswith("halfulp report peers").all()
    assert peers[peers["target"] == "ecp5-85k"]["MHz"].notna().all()
