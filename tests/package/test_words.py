"""Rules of wording in CONTRIBUTING.md: first words of docstrings, vague phrases, names of tests."""

import re
from pathlib import Path

import pytest

from tests.settings import ROOT

ROOMS = ("boards", "docs", "examples", "fpga", "golden", "halfulp", "hdl", "lab", "sim", "tests", "units")
SUFFIXES = {".py", ".md", ".h", ".cpp", ".toml", ".tcl", ".sv"}

QUESTION = re.compile(r'^[ \t]*[rf]?"""[^\w\n]*(what|where|how|whether|who|which|that|why|whose)\b', re.I | re.M)
"""Docstring that begins with a question word; closing quotes end their line, so they do not match."""

VAGUE = re.compile(r"\bunless told\b|\b(is|are|was|be) told\b|\bwhat it (is|says)\b|\bthereof\b|\bfor ever\b|\bmeant\b")
"""Phrases for which a plain word or the name of the thing is right."""

TEST_NAME = re.compile(r"def (test(?!_(?:what|where|how|whether|who|which|that|why|an?|it|the)_)(?:_[a-z0-9]+){2,})\(")
"""Definition of a test named by subject and behaviour."""


def sources():
    """Return the text of every source and page by its path, without generated pages and this file."""
    folders = [folder for room in ROOMS for folder in (ROOT / room).iterdir() if not folder.is_symlink()]
    paths = [path for folder in folders for path in ([folder] if folder.is_file() else folder.rglob("*"))]
    chosen = [path for path in (ROOT / "README.md", *paths) if path.suffix in SUFFIXES and path.is_file()]
    return {
        str(path.relative_to(ROOT)): path.read_text()
        for path in chosen
        if not {"generated", "_build", "build"} & set(path.parts[len(ROOT.parts) :]) and path != Path(__file__)
    }


@pytest.fixture(scope="module")
def texts():
    found = sources()
    assert {path.partition("/")[0] for path in found} == {"README.md", *ROOMS}
    return found


def lines_with(pattern, texts):
    """Return the place and text of every line with a match."""
    return [
        f"{path}:{text.count(chr(10), 0, found.start()) + 1}: {found[0].strip()}"
        for path, text in texts.items()
        for found in pattern.finditer(text)
    ]


def test_docstrings_begin_with_no_question_word(texts):
    python = {path: text for path, text in texts.items() if path.endswith(".py")}
    assert lines_with(QUESTION, python) == []


def test_vague_phrases_are_absent(texts):
    assert lines_with(VAGUE, texts) == []


def test_test_names_have_subject_and_behaviour(texts):
    defined = {path: text for path, text in texts.items() if path.startswith("tests/")}
    assert sum("/test_" in path for path in defined) > 150
    names = re.compile(r"def (test_?\w*)\(")
    wrong = [line for line in lines_with(names, defined) if not TEST_NAME.search(line)]
    assert wrong == []


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (QUESTION, '    """How late a result is."""'),
        (VAGUE, "nearest, unless told otherwise"),
    ],
)
def test_word_patterns_find_offences(pattern, text):
    assert lines_with(pattern, {"a": text})


@pytest.mark.parametrize(("name", "good"), [("test_mul_rejects_negative_width", True), ("test_what_is_wrong", False)])
def test_name_pattern_separates_good_and_bad_names(name, good):
    assert bool(TEST_NAME.match(f"def {name}(")) == good
