"""Pictures in files: they are those of the records and of the commands, and the page explains their fields."""

import re
from xml.etree import ElementTree

import pytest

from tests.docs.test_pages import page_module
from tests.settings import ROOT

pictures = page_module("pictures")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "mismatch.svg")) for name in pictures.PICTURES]
)
def test_picture_is_current(name):
    assert (ROOT / "docs" / name).read_text() == pictures.PICTURES[name](), "run `make figures`"


def test_bars_have_the_lengths_of_their_numbers():
    root = ElementTree.fromstring(
        pictures.bars("a < b", {"first": "ours"}, [("x", "first", 2, "two"), ("y", "first", 1, "")])
    )
    shown = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert shown == ["a < b", "ours", "x", "two", "y", None]
    *_, two, one = (float(element.get("width")) for element in root.iter("{http://www.w3.org/2000/svg}rect"))
    assert two == pytest.approx(2 * one, abs=0.1)


def test_page_explains_the_fields_of_a_mismatch():
    picture = (ROOT / "docs" / "mismatch.svg").read_text()
    table = (ROOT / "docs" / "simulation.md").read_text().partition("(mismatch.svg)\n")[2].partition("\n## ")[0]
    fields = re.findall(r"^\| ([a-z][\w, ]*) \|", table, re.MULTILINE)[1:]
    assert len(fields) == 5
    assert [word for field in fields for word in field.split(", ") if not re.search(rf"[ >]{word}[ :]", picture)] == []
    # No field of the report is left out.
    labels = re.findall(r">  +(\w+)[: ]", picture)
    assert set(labels) == {"a", "b", "exact", "expected", "got"}
