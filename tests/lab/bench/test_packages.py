"""Products of other packages: the bits of ours, and rows of packages that are installed."""

import importlib.util

import pytest
import torch

from halfulp import golden
from halfulp.hdl.specs import UnitSpec
from halfulp.lab.bench import packages
from halfulp.lab.bench.packages import PACKAGES, Package


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "text"),
    [pytest.param(package, text, id=f"{package.name} {text}") for package in PACKAGES for text in package.texts],
)
def test_package_has_the_bits_of_ours(package, text):
    if importlib.util.find_spec(package.name) is None:
        pytest.skip(f"{package.name} is not installed")
    ours, theirs, _ = packages.products(text, package, side=48)
    assert torch.equal(golden.decode(ours(), UnitSpec.parse(text).o), theirs().double())


@pytest.mark.slow
def test_table_has_rows_of_installed_packages_only(monkeypatch):
    monkeypatch.setattr(packages, "SIDE", 16)
    texts = ("e5m2*e5m2+e6m5.rn",)
    # The module `json` stands for a package that is installed.
    present = Package("json", texts, lambda text, x, y: lambda: x @ y)
    monkeypatch.setattr(packages, "version", lambda name: "1.0")
    speeds = []
    lines = packages.table(speeds, (present, Package("no_such_package", texts, lambda *given: None)))
    assert lines[-1] == "no_such_package is not installed and not measured; pip install no_such_package adds its rows"
    assert [(speed.kind, speed.subject, speed.policy) for speed in speeds] == [
        ("golden", "16^3", texts[0]),
        ("json 1.0", "16^3", texts[0]),
    ]
    assert len(lines) == 4
