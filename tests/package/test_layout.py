"""Places of the tests: folders and names of files follow the modules of the library, as CONTRIBUTING.md describes."""

import re
from pathlib import PurePath

import pytest

from tests.package.test_words import sources
from tests.settings import ROOT

ROOMS = ("boards", "examples", "fpga", "golden", "halfulp", "hdl", "lab", "sim", "units")
ACROSS = ("agreement", "docs", "oracles", "package")
"""Folders of tests that span rooms."""


def has_module(path):
    """Return True if a path below `tests/` has the folder and the name of a module, or of its folder."""
    words = path.stem.split("_")[1:]
    names = ["_".join(words[:count]) for count in range(1, len(words) + 1)]
    folder = ROOT / path.parent
    modules = (place for name in names for place in (folder / f"{name}.py", folder / name / "__init__.py"))
    return path.parts[0] in ROOMS and (folder.name in names or any(place.is_file() for place in modules))


def test_test_files_have_names_of_modules():
    paths = [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(paths) > 150
    assert [str(path) for path in paths if path.parts[0] not in ACROSS and not has_module(path)] == []


@pytest.mark.parametrize(
    ("path", "good"),
    [
        ("golden/nn/test_swap.py", True),
        ("golden/nn/test_scaling_bias.py", True),
        ("golden/test_golden_devices.py", True),
        ("golden/test_kernels.py", True),
        ("golden/test_swap.py", False),
        ("golden/nn/test_devices.py", False),
        ("test_hdl.py", False),
    ],
)
def test_names_of_modules_are_recognised(path, good):
    assert has_module(PurePath(path)) == good


def test_paths_of_tests_in_sources_exist():
    texts = sources() | {name: (ROOT / name).read_text() for name in ("CONTRIBUTING.md", "Makefile")}
    named = {
        f"{source}: {path}": (ROOT / path).exists()
        for source, text in texts.items()
        for path in re.findall(r"\btests/\w[\w/]*(?:\.\w+)?", text)
    }
    assert len(named) > 20
    assert [place for place, exists in named.items() if not exists] == []
